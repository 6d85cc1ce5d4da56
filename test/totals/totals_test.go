package totals

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrint_KeepsTheLastTotalOfEachName(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "totals")
	t.Setenv("CAPK3S_TOTALS", folder)
	Print("points tried", "%d", 1)
	Print("points tried", "%d in %s", 2, "rounds")
	Print("races run", "3")
	for name, want := range map[string]string{"points tried": "points tried: 2 in rounds\n", "races run": "races run: 3\n"} {
		kept, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		require.Equal(t, want, string(kept))
	}
}

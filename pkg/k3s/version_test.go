package k3s

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompare_OrdersReleases(t *testing.T) {
	ascending := []string{
		"v1.33.9+k3s1",
		"v1.36.3-alpha1+k3s1",
		"v1.36.3-rc2+k3s1",
		"v1.36.3-rc10+k3s1",
		"v1.36.3-rc10+k3s2",
		"v1.36.3+k3s1",
		"v1.36.3+k3s2",
		"v1.36.3+k3s10",
		"v1.36.10+k3s1",
		"v2.0.0+k3s1",
	}
	for i, a := range ascending {
		for j, b := range ascending {
			order, err := Compare(a, b)
			require.NoError(t, err)
			switch {
			case i < j:
				require.Negative(t, order, "%s before %s", a, b)
			case i > j:
				require.Positive(t, order, "%s after %s", a, b)
			default:
				require.Zero(t, order, a)
			}
		}
	}
}

func TestParseVersion_RefusesWhatIsNoRelease(t *testing.T) {
	for _, s := range []string{
		"", "v1.36.3", "1.36.3+k3s1", "v1.36+k3s1", "v1.36.3+rke2r1", "v1.36.3+k3s", "v1.36.3+k3s1 ", "v1.36.3-k3s1",
		"v01.36.3+k3s1", "v1.36.3+k3s99999999999999999999", "latest", "v1.36.3+k3s1; reboot",
	} {
		_, err := ParseVersion(s)
		require.Error(t, err, s)
		_, err = Compare("v1.36.3+k3s1", s)
		require.Error(t, err, s)
	}
}

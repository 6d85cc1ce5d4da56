//go:build e2e

package e2e

import (
	"context"
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capk3s/capk3s/test/silence"
	"github.com/capk3s/capk3s/test/totals"
	"github.com/capk3s/capk3s/test/world"
)

// guard knows the tokens of all clusters of the run, and what all objects said.
var guard = silence.New()

// listenTo has the guard watch a management cluster until the test ends, before which the cluster has to be there.
func listenTo(t *testing.T, m *world.Management) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	require.NoError(t, guard.Watch(ctx, m.Config))
}

// checkSilence looks for tokens and private keys in the logs of all programs and machines, the audit logs, and the
// events and objects of all management clusters.
func checkSilence() ([]string, error) {
	logs := []string{here.LogDir, management.AuditLog}
	for _, m := range others.started {
		logs = append(logs, m.AuditLog)
	}
	report, err := guard.Search(logs...)
	if err != nil {
		return nil, err
	}
	tokens := guard.Tokens()
	totals.Print("silence", "%d tokens and all private keys looked for in %d texts of objects and events and %d logs of %d MB, found: %d",
		tokens, report.Texts, report.Files, report.Bytes>>20, len(report.Found))
	if tokens == 0 && flag.Lookup("test.run").Value.String() == "" {
		return append(report.Found, "no token was ever seen"), nil
	}
	return report.Found, nil
}

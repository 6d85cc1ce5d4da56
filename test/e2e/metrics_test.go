//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMetrics_AreServedToWhoMayReadThem reads the metrics of both providers over TLS, as a monitoring system does.
func TestMetrics_AreServedToWhoMayReadThem(t *testing.T) {
	for _, pod := range management.Operator() {
		// A pod may be ready a moment before its metrics are served.
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			metrics, err := management.Metrics(t.Context(), pod)
			require.NoError(collect, err)
			require.Contains(collect, string(metrics), "\nrest_client_requests_total{", pod.Name)
		}, time.Minute, 100*time.Millisecond)
	}
}

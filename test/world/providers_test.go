package world

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestManagement_SharesNoEndpointWithAnother(t *testing.T) {
	var taken []netip.Prefix
	for nth := 1; nth <= 8; nth++ {
		m := &Management{options: ManagementOptions{Address: "127.0.0." + strconv.Itoa(nth)}}
		endpoints, err := m.endpoints()
		require.NoError(t, err)
		require.True(t, Endpoints.Overlaps(endpoints))
		for _, others := range taken {
			require.Falsef(t, others.Overlaps(endpoints), "%s and %s", others, endpoints)
		}
		taken = append(taken, endpoints)
	}
	for _, nth := range []string{"0", "9", "255"} {
		m := &Management{options: ManagementOptions{Address: "127.0.0." + nth}}
		_, err := m.endpoints()
		require.ErrorContains(t, err, m.options.Address)
	}
}

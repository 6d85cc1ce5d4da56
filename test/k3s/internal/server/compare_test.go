package server

import (
	"net"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capk3s/capk3s/test/k3s/internal/config"
)

func critical(t *testing.T, change func(*config.Critical)) config.Critical {
	t.Helper()
	_, clusters, err := net.ParseCIDR("10.42.0.0/16")
	require.NoError(t, err)
	settings := config.Critical{
		ClusterIPRange: clusters, ClusterIPRanges: []*net.IPNet{clusters},
		ClusterDNS: net.ParseIP("10.43.0.10"), FlannelBackend: "vxlan",
	}
	change(&settings)
	normal, err := settings.Normalized()
	require.NoError(t, err)
	return normal
}

func TestDiff_NamesWhatDiffers(t *testing.T) {
	same := critical(t, func(*config.Critical) {})
	for name, row := range map[string]struct {
		change func(*config.Critical)
		want   []string
	}{
		"nothing": {func(*config.Critical) {}, nil},
		"scalar":  {func(c *config.Critical) { c.FlannelBackend, c.DisableCCM = "none", true }, []string{"disable-cloud-controller", "flannel-backend"}},
		"network": {func(c *config.Critical) {
			_, other, _ := net.ParseCIDR("10.52.0.0/16")
			c.ClusterIPRange, c.ClusterIPRanges = other, []*net.IPNet{other}
		}, []string{"ClusterIPRanges.slice[0].IP.slice[13]", "ClusterIPRange.IP.slice[13]"}},
		"missing": {func(c *config.Critical) { c.ClusterIPRange = nil }, []string{"cluster-cidr"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, path := range diff("", reflect.ValueOf(same), reflect.ValueOf(critical(t, row.change))) {
				got = append(got, flagOf(path))
			}
			assert.Equal(t, row.want, got)
		})
	}
}

package controllers

import (
	"fmt"
	"testing"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// BenchmarkUserDataBytes reports the bytes of user data of each role and format with an empty spec; the time means
// nothing.
func BenchmarkUserDataBytes(b *testing.B) {
	for _, limit := range sizeLimits {
		fmt.Printf("limit of user data: %d bytes, %s\n", limit.bytes, limit.cloud)
	}
	for _, format := range []struct {
		name string
		spec bootstrapv1.KThreesConfigSpec
	}{
		{"cloud-config", bootstrapv1.KThreesConfigSpec{}},
		{"cloud-config-compressed", bootstrapv1.KThreesConfigSpec{Compression: bootstrapv1.CompressionGzip}},
		{"cloud-config-cis", bootstrapv1.KThreesConfigSpec{Profile: bootstrapv1.ProfileCIS}},
		{"ignition", bootstrapv1.KThreesConfigSpec{Format: bootstrapv1.Ignition}},
		{"ignition-cis", bootstrapv1.KThreesConfigSpec{Format: bootstrapv1.Ignition, Profile: bootstrapv1.ProfileCIS}},
	} {
		w := newWorld(b).complete()
		for _, role := range []string{"first-server", "joining-server", "worker"} {
			size := userDataSize(w, role, format.spec)
			b.Run(fmt.Sprintf("%s/%s", format.name, role), func(b *testing.B) {
				b.ReportMetric(float64(size), "bytes")
				b.ReportMetric(100*float64(size)/float64(sizeLimits[0].bytes), "%-of-smallest-limit")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

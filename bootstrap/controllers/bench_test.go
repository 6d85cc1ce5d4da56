package controllers

import (
	"testing"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// BenchmarkUserDataBytes reports the bytes of user data of each role with an empty spec; the time means nothing.
func BenchmarkUserDataBytes(b *testing.B) {
	w := newWorld(b).complete()
	for _, role := range []string{"first-server", "joining-server", "worker"} {
		size := userDataSize(w, role, bootstrapv1.KThreesConfigSpec{})
		b.Run(role, func(b *testing.B) {
			b.ReportMetric(float64(size), "bytes")
			b.ReportMetric(0, "ns/op")
		})
	}
}

package controllers

import "testing"

// BenchmarkUserDataBytes reports the bytes of user data of each role with an empty spec; the time means nothing.
func BenchmarkUserDataBytes(b *testing.B) {
	w := newWorld(b).complete()
	for _, role := range []string{"first-server", "joining-server", "worker"} {
		size := userDataSize(w, role)
		b.Run(role, func(b *testing.B) {
			b.ReportMetric(float64(size), "bytes")
			b.ReportMetric(0, "ns/op")
		})
	}
}

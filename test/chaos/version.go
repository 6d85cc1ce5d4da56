package chaos

import (
	"fmt"

	"github.com/capk3s/capk3s/pkg/k3s"
)

// The newest release that the emulator can pose as, besides any patch number.
const maxMinor, maxBuild = 39, 9

// newer lists versions that a cluster may be upgraded to: the next build, which
// semantic versioning can't tell apart, the next patch, the next minor.
func newer(version string) []string {
	v, err := k3s.ParseVersion(version)
	if err != nil {
		panic(err) // the caller's mistake
	}
	format := func(minor, patch, build uint64) string {
		return fmt.Sprintf("v%d.%d.%d+k3s%d", v.Kubernetes.Major, minor, patch, build)
	}
	versions := []string{format(v.Kubernetes.Minor, v.Kubernetes.Patch+1, 1)}
	if v.Build < maxBuild {
		versions = append(versions, format(v.Kubernetes.Minor, v.Kubernetes.Patch, v.Build+1))
	}
	if v.Kubernetes.Minor < maxMinor {
		versions = append(versions, format(v.Kubernetes.Minor+1, v.Kubernetes.Patch, 1))
	}
	return versions
}

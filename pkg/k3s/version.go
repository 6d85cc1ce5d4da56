package k3s

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"

	"github.com/blang/semver/v4"
)

// Version is the version of a K3s release, such as v1.36.3+k3s1 or v1.36.3-rc2+k3s1.
type Version struct {
	// Kubernetes is the version of Kubernetes, with the pre-release of a candidate and without build metadata.
	Kubernetes semver.Version

	// Build is the number after +k3s: 2 for v1.36.3+k3s2.
	Build uint64
}

// A candidate's number is taken apart from its name, so that rc10 comes after rc9.
var versionForm = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-([a-z]+)\.?(\d+))?\+k3s(\d+)$`)

// ParseVersion parses the version of a K3s release. The v and the number of the K3s build are needed.
func ParseVersion(s string) (Version, error) {
	parts := versionForm.FindStringSubmatch(s)
	if parts == nil {
		return Version{}, fmt.Errorf("%q isn't the version of a K3s release: write it as v1.36.3+k3s1", s)
	}
	number := parts[1]
	if parts[2] != "" {
		number += "-" + parts[2] + "." + parts[3]
	}
	kubernetes, err := semver.Parse(number)
	if err != nil {
		return Version{}, fmt.Errorf("%q isn't the version of a K3s release: %w", s, err)
	}
	build, err := strconv.ParseUint(parts[4], 10, 32)
	if err != nil {
		return Version{}, fmt.Errorf("%q isn't the version of a K3s release: build number: %w", s, err)
	}
	return Version{Kubernetes: kubernetes, Build: build}, nil
}

// Compare is negative if v is older than w, zero if they are the same release, positive if v is newer.
func (v Version) Compare(w Version) int {
	if order := v.Kubernetes.Compare(w.Kubernetes); order != 0 {
		return order
	}
	return cmp.Compare(v.Build, w.Build)
}

// Compare parses two versions and is negative if a is older than b, zero if they are the same release, positive if
// a is newer. Unlike semantic versioning it tells v1.36.3+k3s1 from v1.36.3+k3s2.
func Compare(a, b string) (int, error) {
	first, err := ParseVersion(a)
	if err != nil {
		return 0, err
	}
	second, err := ParseVersion(b)
	if err != nil {
		return 0, err
	}
	return first.Compare(second), nil
}

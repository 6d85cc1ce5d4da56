package controllers

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
	"github.com/capk3s/capk3s/bootstrap/internal/cloudconfig"
	"github.com/capk3s/capk3s/bootstrap/internal/ignition"
)

// render returns the bootstrap data in the format that the spec asks for. An error begins with the path of a field.
func render(spec *bootstrapv1.KThreesConfigSpec, m bootdata.Machine) ([]byte, error) {
	switch {
	case formatOf(spec) == bootstrapv1.Ignition:
		return ignition.Render(m, spec.Ignition.AdditionalConfig)
	case spec.Compression == bootstrapv1.CompressionGzip:
		return cloudconfig.RenderCompressed(m)
	}
	return cloudconfig.Render(m)
}

func formatOf(spec *bootstrapv1.KThreesConfigSpec) bootstrapv1.Format {
	if spec.Format == "" {
		return bootstrapv1.CloudConfig
	}
	return spec.Format
}

// sizeLimits are how many bytes of user data clouds take. Some infrastructure providers have ways around them.
var sizeLimits = []struct {
	cloud string
	bytes int
}{
	{"Amazon EC2", 16 << 10},
	{"Hetzner Cloud", 32 << 10},
	{"OpenStack", 48 << 10}, // 64 KiB of base64
	{"Azure", 64 << 10},
	{"Google Cloud", 256 << 10},
}

// fitsSecret refuses bootstrap data that no Secret can hold, before anything is written for their sake.
func fitsSecret(spec *bootstrapv1.KThreesConfigSpec, data []byte) error {
	limit := corev1.MaxSecretSize - len(formatKey) - len(formatOf(spec))
	if len(data) <= limit {
		return nil
	}
	return invalid(fmt.Errorf("files: the bootstrap data have %d bytes, more than the %d that a Secret holds: make the files smaller, or let "+
		"a command download what is big", len(data), limit))
}

// sizeWarning says which clouds may refuse bootstrap data of that size; it is empty if none does.
func sizeWarning(size int) string {
	var clouds []string
	for _, limit := range sizeLimits {
		if size > limit.bytes {
			clouds = append(clouds, fmt.Sprintf("%s (%d)", limit.cloud, limit.bytes))
		}
	}
	if len(clouds) == 0 {
		return ""
	}
	return fmt.Sprintf("The bootstrap data have %d bytes, more than these take as user data: %s. Make spec.files smaller, let a command "+
		"download what is big, or, for cloud-init, set spec.compression", size, strings.Join(clouds, ", "))
}

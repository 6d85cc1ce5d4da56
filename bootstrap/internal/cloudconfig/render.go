package cloudconfig

import (
	"slices"

	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// runDir has the files that only the bootstrap needs. Nothing in it outlives a reboot.
const runDir = "/run/cluster-api/k3s"

// Render returns the cloud-config of a machine. An error tells the user what to change in the spec; it quotes neither
// contents nor settings.
func Render(m bootdata.Machine) ([]byte, error) {
	d, err := newDocument(m)
	if err != nil {
		return nil, err
	}
	return d.encode()
}

// RenderCompressed is [Render] with the whole cloud-config gzipped, which cloud-init takes as well.
func RenderCompressed(m bootdata.Machine) ([]byte, error) {
	d, err := newDocument(m)
	if err != nil {
		return nil, err
	}
	d.compressed = true
	data, err := d.encode()
	if err != nil {
		return nil, err
	}
	return bootdata.Compress(data)
}

func newDocument(m bootdata.Machine) (document, error) {
	plan, err := m.Plan(runDir)
	if err != nil {
		return document{}, err
	}
	d := document{run: plan.Command}
	for _, f := range bootdata.ForCloudInit(plan.Files, runDir) {
		d.files = append(d.files, file{File: f})
	}
	return d, d.renderOnMachine(m.Config)
}

// renderOnMachine makes a template of the document if a file or a setting holds an expression over cloud-init's
// instance data.
func (d *document) renderOnMachine(config k3s.Config) error {
	d.templated = slices.ContainsFunc(d.files, func(f file) bool { return f.Rendered && HasExpression(string(f.Content)) })
	inConfig := false
	text, err := config.YAMLFunc(func(value string) string {
		inConfig = inConfig || HasExpression(value)
		// A value is in the config.yaml, which is in the cloud-config.
		return template(value, 2)
	})
	if err != nil {
		return err
	}
	if !inConfig {
		return nil
	}
	d.templated = true
	i := slices.IndexFunc(d.files, func(f file) bool { return f.Path == bootdata.ConfigPath })
	d.files[i].text = string(text)
	return nil
}

package ignition

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	butane "github.com/coreos/butane/config"
	"github.com/coreos/butane/config/common"
	ignconfig "github.com/coreos/ignition/v2/config/v3_4"
	"github.com/coreos/ignition/v2/config/v3_4/types"
	"github.com/coreos/vcontext/report"
)

// merge adds the user's config to the operator's. What the operator writes isn't the user's to change.
func merge(config types.Config, additional string) (types.Config, error) {
	theirs, problem := Parse(additional)
	if problem != nil {
		return types.Config{}, problem
	}
	for i, file := range theirs.Storage.Files {
		if strings.HasPrefix(file.Path, runDir+"/") ||
			slices.ContainsFunc(config.Storage.Files, func(f types.File) bool { return f.Path == file.Path }) {
			return types.Config{}, fmt.Errorf("ignition.additionalConfig: storage.files[%d].path: %s is written already, "+
				"by the operator or by spec.files, or is in a folder of the operator: remove it", i, file.Path)
		}
	}
	if slices.ContainsFunc(theirs.Systemd.Units, func(u types.Unit) bool { return u.Name == unitName }) {
		return types.Config{}, fmt.Errorf("ignition.additionalConfig: systemd.units: %s is the operator's: remove it", unitName)
	}
	return ignconfig.Merge(theirs, config), nil
}

// Parse returns the user's own config, of any version of Ignition up to the one that is rendered, or written for Butane.
// An error doesn't quote it.
func Parse(additional string) (types.Config, error) {
	data, translation := []byte(additional), report.Report{}
	if !json.Valid(data) {
		var err error
		// Without a folder, a Butane config can't name files of this machine.
		if data, translation, err = butane.TranslateBytes(data, common.TranslateBytesOptions{}); err != nil || isDoubtful(translation) {
			return types.Config{}, refused(translation)
		}
	}
	config, found, err := ignconfig.ParseCompatibleVersion(data)
	if err != nil || isDoubtful(found) {
		return types.Config{}, refused(found)
	}
	return config, nil
}

// isDoubtful says whether something in the config has no effect, which is a warning, or can't be.
func isDoubtful(found report.Report) bool {
	return slices.ContainsFunc(found.Entries, func(entry report.Entry) bool { return entry.Kind != report.Info })
}

func refused(found report.Report) error {
	return fmt.Errorf("ignition.additionalConfig isn't a config that Ignition takes, in JSON, of a version from 3.0.0 to %s, nor "+
		"a Butane config in YAML, as of fcos 1.5.0 or flatcar 1.1.0%s", types.MaxVersion, problems(found))
}

// problems lists where a report finds what, without the values.
func problems(found report.Report) string {
	var out strings.Builder
	for _, entry := range found.Entries {
		out.WriteString(": " + entry.Message)
		if place := entry.Context.String(); place != "" {
			out.WriteString(" at " + place)
		}
	}
	return out.String()
}

package ignition

import (
	"fmt"
	"slices"
	"strings"

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
		if slices.ContainsFunc(config.Storage.Files, func(f types.File) bool { return f.Path == file.Path }) {
			return types.Config{}, fmt.Errorf("ignition.additionalConfig: storage.files[%d].path: %s is written already, "+
				"by the operator or by spec.files: remove it", i, file.Path)
		}
	}
	if slices.ContainsFunc(theirs.Systemd.Units, func(u types.Unit) bool { return u.Name == unitName }) {
		return types.Config{}, fmt.Errorf("ignition.additionalConfig: systemd.units: %s is the operator's: remove it", unitName)
	}
	return ignconfig.Merge(theirs, config), nil
}

// Parse returns the user's own Ignition config, of any version up to the one that is rendered. An error doesn't quote
// it.
func Parse(additional string) (types.Config, error) {
	config, found, err := ignconfig.ParseCompatibleVersion([]byte(additional))
	if err != nil || found.IsFatal() {
		return types.Config{}, fmt.Errorf("ignition.additionalConfig isn't a config that Ignition takes, in JSON, of a "+
			"version from 3.0.0 to %s%s", types.MaxVersion, problems(found))
	}
	return config, nil
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

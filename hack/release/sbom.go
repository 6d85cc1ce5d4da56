package release

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// mainModule is the module of the operator.
const mainModule = "github.com/capk3s/capk3s"

// module is a Go module that is compiled into the operator or the plugin.
type module struct{ path, version, sum string }

// sbom lists what the programs of a release are made of, in the format of CycloneDX. It has neither a time nor a
// serial number, so that it can be made again.
func sbom(o Options) ([]byte, error) {
	modules, err := modulesOf(o.Platforms)
	if err != nil {
		return nil, err
	}
	operator := component(module{path: mainModule, version: o.Version})
	operator.Type = cyclonedx.ComponentTypeApplication
	operator.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}}
	components := make([]cyclonedx.Component, 0, len(modules))
	for _, m := range modules {
		c := component(m)
		if c.Hashes, err = hashes(m.sum); err != nil {
			return nil, fmt.Errorf("reading the checksum of %s: %w", m.path, err)
		}
		components = append(components, c)
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &operator}
	bom.Components = &components
	var content bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&content, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return nil, fmt.Errorf("encoding the SBOM: %w", err)
	}
	return content.Bytes(), nil
}

func component(m module) cyclonedx.Component {
	purl := "pkg:golang/" + m.path + "@" + m.version
	return cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, BOMRef: purl, PackageURL: purl, Name: m.path, Version: m.version,
	}
}

// hashes decodes a checksum as it is in go.sum.
func hashes(sum string) (*[]cyclonedx.Hash, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
	if err != nil {
		return nil, err
	}
	return &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}, nil
}

// modulesOf lists the modules whose packages the operator is compiled from, and the plugin on its platforms.
func modulesOf(pluginPlatforms []string) ([]module, error) {
	lines, err := listModules("linux/amd64", ".")
	if err != nil {
		return nil, err
	}
	for _, platform := range pluginPlatforms {
		more, err := listModules(platform, pluginFolder)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	slices.Sort(lines)
	var modules []module
	for _, line := range slices.Compact(lines) {
		if fields := strings.Fields(line); len(fields) == 3 {
			modules = append(modules, module{path: fields[0], version: fields[1], sum: fields[2]})
		}
	}
	return modules, nil
}

func listModules(platform, folder string) ([]string, error) {
	out, err := goCommand(platform, "list", "-deps", "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Sum}}{{end}}{{end}}", folder)
	if err != nil {
		return nil, fmt.Errorf("listing the modules of %s: %w", folder, err)
	}
	return strings.Split(strings.TrimSpace(out), "\n"), nil
}

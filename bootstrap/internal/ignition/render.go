package ignition

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	ignconfig "github.com/coreos/ignition/v2/config/v3_4"
	"github.com/coreos/ignition/v2/config/v3_4/types"
	"k8s.io/utils/ptr"

	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
	"github.com/capk3s/capk3s/bootstrap/internal/cloudconfig"
	"github.com/capk3s/capk3s/pkg/k3s"
)

const (
	// runDir has the files that only the bootstrap needs. Ignition writes before /run of the running system exists.
	runDir = "/etc/cluster-api/k3s"

	// unitName is the unit that runs the script.
	unitName = "k3s-bootstrap.service"

	defaultMode = 0o644
)

// Render returns the Ignition config of a machine, merged with the user's own config unless that is empty. An error
// tells the user what to change in the spec; it quotes neither contents nor settings.
func Render(m bootdata.Machine, additional string) ([]byte, error) {
	for _, check := range []func(bootdata.Machine) error{refuseExpressions, refuseVolatile} {
		if err := check(m); err != nil {
			return nil, err
		}
	}
	plan, err := m.Plan(runDir)
	if err != nil {
		return nil, err
	}
	config := types.Config{Ignition: types.Ignition{Version: types.MaxVersion.String()}}
	for _, file := range plan.Files {
		entry, err := fileEntry(file)
		if err != nil {
			return nil, err
		}
		config.Storage.Files = append(config.Storage.Files, entry)
	}
	config.Systemd.Units = []types.Unit{{Name: unitName, Enabled: ptr.To(true), Contents: ptr.To(unit(plan.Command))}}
	if additional != "" {
		if config, err = merge(config, additional); err != nil {
			return nil, err
		}
	}
	return encode(config)
}

// encode returns a config that Ignition takes without a warning.
func encode(config types.Config) ([]byte, error) {
	data, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding the Ignition config: %w", err)
	}
	if _, report, err := ignconfig.Parse(data); err != nil || report.IsFatal() {
		return nil, fmt.Errorf("format ignition: the result would be refused%s", problems(report))
	}
	return data, nil
}

func fileEntry(file bootdata.File) (types.File, error) {
	content, err := resource(file)
	if err != nil {
		return types.File{}, err
	}
	entry := types.File{Node: types.Node{Path: file.Path}}
	entry.User, entry.Group = owner(file.Owner)
	if file.Permissions != "" || !file.Append {
		mode, err := modeOf(file)
		if err != nil {
			return types.File{}, err
		}
		entry.Mode = &mode
	}
	if file.Append {
		entry.Append = []types.Resource{content}
		return entry, nil
	}
	entry.Overwrite, entry.Contents = ptr.To(true), content
	return entry, nil
}

func modeOf(file bootdata.File) (int, error) {
	if file.Permissions == "" {
		return defaultMode, nil
	}
	mode, err := strconv.ParseUint(file.Permissions, 8, 9)
	if err != nil {
		return 0, fmt.Errorf("files: permissions of %s: Ignition knows neither setuid, setgid nor sticky bit: write at most 0777, "+
			"and let a command of preK3sCommands set them", file.Path)
	}
	return int(mode), nil
}

// owner splits user:group, each a name or a number.
func owner(text string) (types.NodeUser, types.NodeGroup) {
	user, group, _ := strings.Cut(text, ":")
	userID, userName := idOrName(user)
	groupID, groupName := idOrName(group)
	return types.NodeUser{ID: userID, Name: userName}, types.NodeGroup{ID: groupID, Name: groupName}
}

func idOrName(text string) (*int, *string) {
	if text == "" {
		return nil, nil
	}
	if id, err := strconv.ParseUint(text, 10, 31); err == nil {
		return ptr.To(int(id)), nil
	}
	return nil, &text
}

// resource returns the content of a file as a URL, compressed where that is smaller.
func resource(file bootdata.File) (types.Resource, error) {
	content, packed := file.Content, file.Gzipped
	if !packed {
		compressed, err := bootdata.Compress(content)
		if err != nil {
			return types.Resource{}, fmt.Errorf("compressing file %s: %w", file.Path, err)
		}
		if len(compressed) < len(content) {
			content, packed = compressed, true
		}
	}
	r := types.Resource{Source: ptr.To("data:;base64," + base64.StdEncoding.EncodeToString(content))}
	if packed {
		r.Compression = ptr.To("gzip")
	}
	return r, nil
}

// unit runs the command once in the life of the machine, as cloud-init would.
func unit(command []string) string {
	const started = runDir + "/started"
	return strings.Join([]string{
		"[Unit]",
		"Description=Make a K3s node of this machine",
		"Wants=network-online.target",
		"After=network-online.target",
		"ConditionPathExists=!" + started,
		"",
		"[Service]",
		"Type=oneshot",
		"RemainAfterExit=yes",
		"Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin",
		"ExecStartPre=/bin/sh -c ': >" + started + "'",
		"ExecStart=/bin/" + strings.Join(command, " "),
		"StandardOutput=journal+console",
		"",
		"[Install]",
		"WantedBy=multi-user.target",
		"",
	}, "\n")
}

// refuseExpressions refuses what only cloud-init could render.
func refuseExpressions(m bootdata.Machine) error {
	const advice = "holds an expression over cloud-init's instance data, which Ignition doesn't have"
	for i, file := range m.Files {
		if file.Rendered && cloudconfig.HasExpression(string(file.Content)) {
			return fmt.Errorf("files[%d].content %s: give it encoding base64 if the braces are meant as they are", i, advice)
		}
	}
	for _, list := range []struct {
		field    string
		commands []string
	}{{"preK3sCommands", m.PreCommands}, {"postK3sCommands", m.PostCommands}} {
		if i := slices.IndexFunc(list.commands, cloudconfig.HasExpression); i >= 0 {
			return fmt.Errorf("%s[%d] %s: let the command find the value, for example in /run/metadata", list.field, i, advice)
		}
	}
	for _, key := range m.Config.Keys() {
		if slices.ContainsFunc(m.Config.Strings(key), cloudconfig.HasExpression) {
			return fmt.Errorf("%s %s: let a command of preK3sCommands write it into a file in %s.d",
				fieldOf(key), advice, bootdata.ConfigPath)
		}
	}
	return nil
}

// volatile are folders that are empty when the machine has booted, whatever Ignition wrote there before.
var volatile = []string{"/run/", "/tmp/", "/dev/", "/proc/", "/sys/"}

func refuseVolatile(m bootdata.Machine) error {
	for i, file := range m.Files {
		for _, dir := range volatile {
			if strings.HasPrefix(file.Path, dir) {
				return fmt.Errorf("files[%d].path: Ignition writes %s before the machine has its %s, so that it would be lost: "+
					"choose a folder that lasts", i, file.Path, dir)
			}
		}
	}
	return nil
}

// fieldOf names the field of the API that a setting comes from.
func fieldOf(setting string) string {
	if key, known := k3s.ServerKey(setting); known && key.Owner != "" {
		return key.Owner
	}
	return "extraConfig." + setting
}

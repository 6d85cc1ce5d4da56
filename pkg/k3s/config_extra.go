package k3s

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

var keyForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// addExtra adds the settings of an extraConfig map, which is at that path of the API, unless a field has set them as
// well. Null is the same as absent.
func (c Config) addExtra(path string, extra bootstrapv1.ExtraConfig, fields Config, check func(name string) (Type, error)) error {
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		raw := bytes.TrimSpace(extra[name].Raw)
		if len(raw) == 0 || string(raw) == "null" {
			continue
		}
		kind, err := check(name)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if _, set := fields[name]; set {
			return fmt.Errorf("%s: %s is set by a field of its own already: remove one of the two", path, name)
		}
		value, err := convert(raw, kind)
		if err != nil {
			return fmt.Errorf("%s: the value of %s %w", path, name, err)
		}
		c[name] = value
	}
	return nil
}

// checkServerKey says whether serverConfig.extraConfig may hold the setting. A setting that this release doesn't
// know yet may be there, since a server skips what it doesn't know; its type is empty.
func checkServerKey(name string) (Type, error) {
	key, known := ServerKey(name)
	if _, ofAgent := AgentKey(name); !known && ofAgent {
		return "", fmt.Errorf("a server doesn't know %s", name)
	}
	return checkKey(name, key, known)
}

// checkAgentKey says whether agentConfig.extraConfig may hold the setting.
func checkAgentKey(name string) (Type, error) {
	key, known := AgentKey(name)
	if serverKey, ofServer := ServerKey(name); !known && ofServer {
		if serverKey.Owner != "" && !serverKey.InExtra {
			return checkKey(name, serverKey, true)
		}
		return "", fmt.Errorf("an agent doesn't know %s; set it in serverConfig.extraConfig", name)
	}
	return checkKey(name, key, known)
}

// checkKeyOfAgent is [checkAgentKey] for a machine that runs an agent, which doesn't start with a setting that it doesn't
// know. A server skips one.
func checkKeyOfAgent(name string) (Type, error) {
	kind, err := checkAgentKey(name)
	if err == nil && kind == "" {
		return "", fmt.Errorf("an agent that doesn't know %s doesn't start: correct the name, or, if K3s is newer than this release, let a "+
			"file below /etc/rancher/k3s/config.yaml.d set it", name)
	}
	return kind, err
}

func checkKey(name string, key Key, known bool) (Type, error) {
	if long, isShort := longName(name); isShort {
		return "", fmt.Errorf("write %s in place of its short form %s", long, name)
	}
	switch {
	case !keyForm.MatchString(name):
		return "", fmt.Errorf("%q isn't a key of config.yaml: write it in lower case, without leading dashes or a plus sign", name)
	case !known:
		return "", nil
	case key.OperatorOwned():
		return "", fmt.Errorf("%s is decided by the operator; remove it", name)
	case key.Owner != "" && !key.InExtra:
		return "", fmt.Errorf("%s has a field of its own: use %s", name, key.Owner)
	}
	return key.Type, nil
}

// convert turns a JSON value into one that a Config holds. Errors complete the sentence "the value ...".
func convert(raw []byte, kind Type) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("isn't valid JSON: %w", err)
	}
	elements, isList := value.([]any)
	switch {
	case isList && kind != List && kind != "":
		return nil, fmt.Errorf("must be of type %s, not a list", kind)
	case isList:
		return convertList(elements)
	case kind == List:
		return convertList([]any{value})
	}
	return convertScalar(value, kind)
}

func convertList(elements []any) ([]string, error) {
	list := make([]string, 0, len(elements))
	for _, element := range elements {
		text, err := scalarText(element)
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
}

func convertScalar(value any, kind Type) (any, error) {
	text, err := scalarText(value)
	if err != nil {
		return nil, err
	}
	switch kind {
	case Bool:
		if isTrue, err := strconv.ParseBool(strings.TrimSpace(text)); err == nil {
			return isTrue, nil
		}
		return nil, fmt.Errorf("must be true or false")
	case Int:
		if number, err := strconv.ParseInt(text, 10, 64); err == nil {
			return number, nil
		}
		return nil, fmt.Errorf("must be a whole number")
	case Duration:
		if _, err := time.ParseDuration(text); err != nil {
			return nil, fmt.Errorf("must be a duration, for example 5m")
		}
		return text, nil
	case "":
		if isTrue, ok := value.(bool); ok {
			return isTrue, nil
		}
	}
	return text, nil
}

// scalarText returns a string, a bool or a number as K3s reads it from the command line.
func scalarText(value any) (string, error) {
	switch value := value.(type) {
	case string:
		return value, nil
	case bool:
		return strconv.FormatBool(value), nil
	case json.Number:
		return value.String(), nil
	}
	return "", fmt.Errorf("must be a string, a number, true, false or a list of these")
}

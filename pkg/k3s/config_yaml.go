package k3s

import (
	"bytes"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// YAML returns the config.yaml, with its keys in order. Every string is quoted, so that K3s can't take one for a
// number or a bool.
func (c Config) YAML() ([]byte, error) {
	return c.YAMLFunc(func(s string) string { return s })
}

// YAMLFunc is [Config.YAML] with each string value replaced by what text makes of it. What text returns stands
// between double quotes, so a template language's expression survives if it holds neither double quotes nor
// backslashes.
func (c Config) YAMLFunc(text func(string) string) ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, key := range c.Keys() {
		value, err := valueNode(c[key], text)
		if err != nil {
			return nil, fmt.Errorf("encoding config.yaml: %s: %w", key, err)
		}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, value)
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, fmt.Errorf("encoding config.yaml: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("encoding config.yaml: %w", err)
	}
	return out.Bytes(), nil
}

func valueNode(value any, text func(string) string) (*yaml.Node, error) {
	switch value := value.(type) {
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: text(value)}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(value)}, nil
	case int64:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(value, 10)}, nil
	case []string:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, element := range value {
			node, err := valueNode(element, text)
			if err != nil {
				return nil, err
			}
			list.Content = append(list.Content, node)
		}
		return list, nil
	}
	return nil, fmt.Errorf("a value can't be of type %T", value)
}

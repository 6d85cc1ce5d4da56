package cloudconfig

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is a cloud-config.
type document struct {
	// files are written in this order.
	files []file

	// run is the command line that runcmd starts.
	run []string

	// templated says whether cloud-init renders the document with its instance data first.
	templated bool

	// compressed says whether the document as a whole will be compressed.
	compressed bool
}

func (d document) encode() ([]byte, error) {
	files := &yaml.Node{Kind: yaml.SequenceNode}
	for _, file := range d.files {
		entry, err := d.fileNode(file)
		if err != nil {
			return nil, err
		}
		files.Content = append(files.Content, entry)
	}
	command := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, word := range d.run {
		command.Content = append(command.Content, d.quoted(word))
	}
	root := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
		plain("write_files"), files,
		plain("runcmd"),
		{Kind: yaml.SequenceNode, Content: []*yaml.Node{command}},
	}}

	var out bytes.Buffer
	if d.templated {
		out.WriteString(jinjaHeader)
	}
	out.WriteString("#cloud-config\n")
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return nil, fmt.Errorf("encoding the cloud-config: %w", err)
	}
	if err := encoder.Close(); err != nil {
		return nil, fmt.Errorf("encoding the cloud-config: %w", err)
	}
	return out.Bytes(), nil
}

func (d document) fileNode(file file) (*yaml.Node, error) {
	content, encoding, err := d.content(file)
	if err != nil {
		return nil, err
	}
	entry := &yaml.Node{Kind: yaml.MappingNode}
	add := func(key string, value *yaml.Node) { entry.Content = append(entry.Content, plain(key), value) }
	add("path", d.quoted(file.Path))
	if file.Permissions != "" {
		add("permissions", d.quoted(file.Permissions))
	}
	if file.Append {
		add("append", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"})
	}
	if encoding != "" {
		add("encoding", plain(encoding))
		add("content", d.quoted(content))
		return entry, nil
	}
	add("content", textNode(content))
	return entry, nil
}

// quoted is a string between double quotes that arrives as it is.
func (d document) quoted(text string) *yaml.Node {
	if d.templated {
		text = escape(text)
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: text}
}

func plain(word string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: word}
}

// textNode shows a text of plain lines as such a block. Everything else, templates included, stands between double
// quotes, where each byte that YAML could change is escaped.
func textNode(text string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: text}
	if isPlainLines(text) && !opening.MatchString(text) {
		node.Style = yaml.LiteralStyle
	}
	return node
}

// isPlainLines leaves out what implementations of YAML disagree about: white space at the start of the text, and
// white space or more than one newline at its end.
func isPlainLines(text string) bool {
	body, ended := strings.CutSuffix(text, "\n")
	if !ended || body == "" || !isText([]byte(text)) || strings.TrimSpace(body) != body {
		return false
	}
	return !slices.ContainsFunc(strings.Split(body, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" && line != "" })
}

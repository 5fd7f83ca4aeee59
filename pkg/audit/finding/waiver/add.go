package waiver

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// Add returns the file's content with one more waiver, its comments kept. It
// refuses what [Parse] would: a file that is wrong, and a waiver that is.
func Add(content []byte, w finding.Waiver, rules []string) ([]byte, error) {
	if _, err := Parse(content, rules); err != nil {
		return nil, err
	}
	document, err := one(content)
	if err != nil {
		return nil, err
	}
	if document == nil {
		document = &yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	entries, err := load(content)
	if err != nil {
		return nil, err
	}
	if entries == nil {
		entries = &yaml.Node{Kind: yaml.SequenceNode}
	}
	entries.Style = 0
	entries.Content = append(entries.Content, entry(&w))
	top := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: "waivers"}, entries}}
	if old := document.Content[0]; old.Kind == yaml.MappingNode && len(old.Content) == 2 {
		top.Content[0] = old.Content[0] // with the comments above it
	}
	document.Content[0] = top
	changed, err := encode(document)
	if err != nil {
		return nil, err
	}
	if _, err := Parse(changed, rules); err != nil {
		return nil, fmt.Errorf("with the new waiver: %w", err)
	}
	return changed, nil
}

// entry quotes only where YAML asks for it.
func entry(w *finding.Waiver) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	fields := fieldsOf(w)
	for _, name := range names() {
		value := &yaml.Node{}
		value.SetString(*fields[name])
		if name == "until" {
			value.Style, value.Tag = 0, "!!timestamp"
		}
		node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, value)
	}
	return node
}

func encode(document *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(document); err != nil {
		return nil, fmt.Errorf("encode waivers: %w", err)
	}
	return b.Bytes(), nil
}

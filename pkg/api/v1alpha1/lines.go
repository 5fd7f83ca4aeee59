package v1alpha1

import (
	"errors"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// Lines are the lines of a YAML document's fields, from one on, by path: "devices[1].match". The document as a whole
// has an empty path.
type Lines map[string]int

// At returns the line of the field at path. For a field that the document lacks, it returns the line of the nearest field around it; 0 if
// there is none.
func (l Lines) At(path string) int {
	line := l[path]
	for line == 0 && path != "" {
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
		line = l[path]
	}
	return line
}

// add adds the lines of the node's fields and items. A field's line is its key's: its value may begin below.
func (l Lines) add(path string, n *yamlv3.Node) {
	switch n.Kind {
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			at := join(path, n.Content[i].Value)
			l[at] = n.Content[i].Line
			l.add(at, n.Content[i+1])
		}
	case yamlv3.SequenceNode:
		for i, item := range n.Content {
			at := index(path, i)
			l[at] = item.Line
			l.add(at, item)
		}
	case yamlv3.DocumentNode, yamlv3.ScalarNode, yamlv3.AliasNode:
	}
}

// withLines adds the lines of the text to the problems of an [InvalidError]. Other errors stay as they are.
func withLines(err error, text []byte) error {
	invalid, ok := errors.AsType[*InvalidError](err)
	if !ok {
		return err
	}
	var document yamlv3.Node
	if yamlv3.Unmarshal(text, &document) != nil || len(document.Content) == 0 {
		return err
	}
	lines := Lines{"": document.Content[0].Line}
	lines.add("", document.Content[0])
	for i := range invalid.Problems {
		if p := &invalid.Problems[i]; p.Path != "" {
			p.Line = lines.At(p.Path)
		}
	}
	return err
}

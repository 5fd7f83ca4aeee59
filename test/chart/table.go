package chart

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Table returns the values as a table in Markdown, in the order of values.yaml. The comments in values.yaml say what the values
// are for. It is an error if a value is not in the schema, if the schema requires it and it has no default, or if neither a
// comment of its own nor one of a value above it explains it.
func Table(schemaText, values []byte) (string, error) {
	root, err := readSchema(schemaText)
	if err != nil {
		return "", err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(values, &document); err != nil {
		return "", fmt.Errorf("read the values: %w", err)
	}
	w := &writer{root: root}
	w.text.WriteString("| Value | Takes | Default | Meaning |\n|---|---|---|---|\n")
	w.members("", document.Content[0], root, false)
	return w.text.String(), errors.Join(w.problems...)
}

type writer struct {
	root     *schema
	text     strings.Builder
	problems []error
}

// members writes the rows of a mapping's members. explained is true if a comment already explains all of them.
func (w *writer) members(path string, mapping *yaml.Node, s *schema, explained bool) {
	written := map[string]bool{}
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		written[key.Value] = true
		of := s.Properties[key.Value]
		if of == nil {
			w.problem(path+key.Value, "is not in the schema")
			continue
		}
		w.member(path+key.Value, commentOf(key), value, of, explained)
	}
	for _, name := range s.Required {
		if !written[name] {
			w.problem(path+name, "is not in values.yaml")
		}
	}
}

func (w *writer) member(path, comment string, value *yaml.Node, s *schema, explained bool) {
	target := s.resolve(w.root)
	if value.Kind == yaml.MappingNode && len(target.Properties) > 0 && len(value.Content) > 0 && !w.plain(value, target) {
		if comment != "" {
			w.row(path, "", "", comment)
		}
		w.members(path+".", value, target, explained || comment != "")
		return
	}
	if comment == "" && !explained {
		w.problem(path, "has no comment")
	}
	text, err := defaultOf(value)
	if err != nil {
		w.problem(path, err.Error())
	}
	w.row(path, s.takes(w.root), text, comment)
}

// plain reports whether a mapping's default shows all that rows for its members would show: no member has a comment, or takes
// less than each value of its type.
func (w *writer) plain(mapping *yaml.Node, s *schema) bool {
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		of := s.Properties[key.Value]
		if of == nil || commentOf(key) != "" {
			return false
		}
		if value.Kind == yaml.MappingNode && !w.plain(value, of.resolve(w.root)) || of.takes(w.root) != "" {
			return false
		}
	}
	return true
}

func (w *writer) row(path, takes, standard, comment string) {
	if standard != "" {
		standard = "`" + standard + "`"
	}
	cells := []string{"`" + path + "`", takes, standard, linked(strings.ReplaceAll(comment, "<", "&lt;"))}
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(c, "|", `\|`)
	}
	fmt.Fprintf(&w.text, "| %s |\n", strings.Join(cells, " | "))
}

// linked makes links of the references to the README's sections, which values.yaml has for its readers.
func linked(comment string) string {
	return regexp.MustCompile(`See README\.md, "([^"]+)"\.`).ReplaceAllStringFunc(comment, func(reference string) string {
		heading := strings.Trim(strings.TrimPrefix(reference, "See README.md, "), `".`)
		return "[" + heading + "](#" + strings.ReplaceAll(strings.ToLower(heading), " ", "-") + ")"
	})
}

func (w *writer) problem(path, what string) {
	w.problems = append(w.problems, fmt.Errorf("%s %s", path, what))
}

// commentOf is the comment above a key, as one line.
func commentOf(key *yaml.Node) string {
	var words []string
	for line := range strings.Lines(key.HeadComment) {
		words = append(words, strings.Fields(strings.TrimPrefix(line, "#"))...)
	}
	return strings.Join(words, " ")
}

// defaultOf is a value on one line.
func defaultOf(value *yaml.Node) (string, error) {
	var decoded any
	if err := value.Decode(&decoded); err != nil {
		return "", err
	}
	text, err := json.Marshal(decoded)
	return string(text), err
}

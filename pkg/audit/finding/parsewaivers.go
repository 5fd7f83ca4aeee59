package finding

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// MaxWaivers is the largest size of a file, in bytes.
const MaxWaivers = 1 << 20

// ParseWaivers reads the file of accepted failures:
//
//	waivers:
//	  - rule: IOM-013
//	    scope: 0000:3b:00.0
//	    until: 2027-03-31
//	    reason: the driver needs identity until the firmware is replaced (SEC-1234)
//	    author: alice@example.org
//
// A misspelled waiver would silently accept nothing, or too much. So all five fields are required, no others are allowed, and the
// error names all lines that are wrong. rules are the IDs of the rules that a waiver may name.
func ParseWaivers(content []byte, rules []string) ([]Waiver, error) {
	entries, err := load(content)
	if err != nil || entries == nil {
		return nil, err
	}
	var (
		waivers []Waiver
		wrong   []string
	)
	lines := map[Waiver]int{}
	for _, e := range entries.Content {
		w, problems := read(e, rules)
		same := Waiver{Rule: w.Rule, Scope: w.Scope}
		if first, ok := lines[same]; ok && len(problems) == 0 {
			problems = append(problems, at(e, "%s for %q is waived in line %d already", w.Rule, w.Scope, first))
		}
		lines[same] = e.Line
		waivers, wrong = append(waivers, w), append(wrong, problems...)
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "; "))
	}
	return waivers, nil
}

// load returns the list of entries, nil if the file is empty.
func load(content []byte) (*yaml.Node, error) {
	if len(content) > MaxWaivers {
		return nil, fmt.Errorf("larger than %d bytes", MaxWaivers)
	}
	document, err := one(content)
	if document == nil || err != nil {
		return nil, err
	}
	top := document.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil, nil
	}
	if top.Kind != yaml.MappingNode || len(top.Content) != 2 || top.Content[0].Value != "waivers" {
		return nil, errors.New(at(top, "want `waivers:` with a list below it, and nothing else"))
	}
	entries := top.Content[1]
	switch {
	case entries.Kind == yaml.ScalarNode && entries.Tag == "!!null":
		return nil, nil
	case entries.Kind != yaml.SequenceNode:
		return nil, errors.New(at(entries, "want a list of waivers"))
	}
	return entries, nil
}

// one returns the only document, nil if there is none.
func one(content []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document, more yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, errors.New(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " "))
	}
	// The decoder would ignore further documents, and a waiver in one of them would accept nothing.
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("want one document only")
	}
	return &document, nil
}

// read returns an entry and its problems.
func read(entry *yaml.Node, rules []string) (w Waiver, problems []string) {
	if entry.Kind != yaml.MappingNode {
		return w, []string{at(entry, "want a waiver with rule, scope, until, reason and author")}
	}
	fields, given := listFields(&w), map[string]*yaml.Node{}
	// The nodes of a mapping are its keys and values in turn.
	for i := 0; i+1 < len(entry.Content); i += 2 {
		key, value := entry.Content[i], entry.Content[i+1]
		field, ok := fields[key.Value]
		switch {
		case !ok:
			problems = append(problems, at(key, "unknown field %q", key.Value))
		case given[key.Value] != nil:
			problems = append(problems, at(key, "%s is given twice", key.Value))
		case value.Kind != yaml.ScalarNode || value.Tag == "!!null" || strings.TrimSpace(value.Value) == "":
			problems = append(problems, at(value, "%s wants a text", key.Value))
		default:
			*field = strings.TrimSpace(value.Value)
		}
		given[key.Value] = value
	}
	for _, name := range names() {
		if given[name] == nil {
			problems = append(problems, at(entry, "%s is missing", name))
		}
	}
	return w, append(problems, wrongValues(&w, given, rules)...)
}

// wrongValues returns the problems of the given values.
func wrongValues(w *Waiver, given map[string]*yaml.Node, rules []string) (problems []string) {
	if w.Rule != "" && !slices.Contains(rules, w.Rule) {
		hint := ""
		if strings.HasPrefix(w.Rule, rule.OwnGroup+"-") {
			hint = "; give your own rules with --rules, and no waiver of them to the plugin, which does not ask them"
		}
		problems = append(problems, at(given["rule"], "there is no rule %q%s", w.Rule, hint))
	}
	if w.Until != "" {
		if _, err := time.Parse(time.DateOnly, w.Until); err != nil {
			problems = append(problems, at(given["until"], "until wants a day as 2027-03-31, not %q", w.Until))
		}
	}
	return problems
}

func names() []string { return []string{"rule", "scope", "until", "reason", "author"} }

func listFields(w *Waiver) map[string]*string {
	return map[string]*string{
		"rule": &w.Rule, "scope": &w.Scope, "until": &w.Until, "reason": &w.Reason, "author": &w.Author,
	}
}

func at(n *yaml.Node, format string, args ...any) string {
	return fmt.Sprintf("line %d: ", n.Line) + fmt.Sprintf(format, args...)
}

// AddWaivers returns the file's content with one more waiver, its comments kept. Like [ParseWaivers], it refuses an
// invalid file and an invalid waiver.
func AddWaivers(content []byte, w Waiver, rules []string) ([]byte, error) {
	if _, err := ParseWaivers(content, rules); err != nil {
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
	if _, err := ParseWaivers(changed, rules); err != nil {
		return nil, fmt.Errorf("with the new waiver: %w", err)
	}
	return changed, nil
}

// entry quotes only values for which YAML requires it.
func entry(w *Waiver) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode}
	fields := listFields(w)
	for _, name := range names() {
		value := &yaml.Node{}
		value.SetString(*fields[name])
		if name == "until" {
			// As a string, a day would be quoted, because without quotes YAML reads it as a date.
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

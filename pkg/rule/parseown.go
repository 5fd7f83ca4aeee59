package rule

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxOwnRules is the largest size of a file of an organization's rules, in bytes.
const MaxOwnRules = 1 << 20

// parseOwn reads a file of an organization's rules:
//
//	rules:
//	  - id: ORG-001
//	    title: Ensure that root can't start another kernel
//	    severity: high
//	    why: A kernel that was started by kexec has booted without the checks of Secure Boot.
//	    fix: put `kernel.kexec_load_disabled=1` into /etc/sysctl.d, and run `sysctl --system`
//	    settings:
//	      - sysctl: kernel.kexec_load_disabled
//	        values: ["1"]
//
// A rule with a misspelled field could pass on every node. So unknown fields are refused, and the error names all lines that are wrong.
func parseOwn(file string, content []byte) ([]Own, error) {
	entries, err := ownEntries(file, content)
	if err != nil {
		return nil, err
	}
	p := &ownParser{file: file}
	var all []Own
	lines := map[string]int{}
	for i, e := range entries.Content {
		o := p.rule(e, i)
		if first, twice := lines[o.Rule.ID]; twice && o.Rule.ID != "" {
			p.wrong(e, "id", "%s is the rule of line %d already", o.Rule.ID, first)
		}
		lines[o.Rule.ID] = e.Line
		all = append(all, o)
	}
	return all, errors.Join(p.problems...)
}

// ownEntries returns the list of rules, which is not empty.
func ownEntries(file string, content []byte) (*yaml.Node, error) {
	if len(content) > MaxOwnRules {
		return nil, fmt.Errorf("%s: larger than %d bytes", file, MaxOwnRules)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document, more yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: the file is empty; want `rules:` with a list below it", file)
	case err != nil:
		return nil, fmt.Errorf("%s: %s", file, strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " "))
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: want one document only: rules of another one would never be asked", file)
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode || len(top.Content) != 2 || top.Content[0].Value != "rules" {
		return nil, fmt.Errorf("%s: line %d: want `rules:` with a list below it, and nothing else", file, top.Line)
	}
	entries := top.Content[1]
	if entries.Kind != yaml.SequenceNode || len(entries.Content) == 0 {
		return nil, fmt.Errorf("%s: line %d: rules: want a list of one rule or more", file, entries.Line)
	}
	return entries, nil
}

// ownParser reads the rules of a file, and collects what is wrong.
type ownParser struct {
	file     string
	problems []error
	// about is the ID of the rule that is being read, "ORG-001". It is empty while the ID is not known.
	about string
}

func (p *ownParser) wrong(n *yaml.Node, field, format string, args ...any) {
	where := fmt.Sprintf("%s: line %d: ", p.file, n.Line)
	if p.about != "" {
		where += p.about + ": "
	}
	p.problems = append(p.problems, fmt.Errorf("%s%s: "+format, append([]any{where, field}, args...)...))
}

// fields returns the values of a mapping by name. It reports unknown names as problems, and leaves them out.
func (p *ownParser) fields(n *yaml.Node, field string, known ...string) map[string]*yaml.Node {
	found := map[string]*yaml.Node{}
	if n.Kind != yaml.MappingNode {
		p.wrong(n, field, "want fields (%s)", strings.Join(known, ", "))
		return found
	}
	// The nodes of a mapping are its keys and values in turn.
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case !slices.Contains(known, key.Value):
			p.wrong(key, field, "unknown field %q; want one of %s", key.Value, strings.Join(known, ", "))
		case found[key.Value] != nil:
			p.wrong(key, field, "%s is given twice", key.Value)
		default:
			found[key.Value] = value
		}
	}
	return found
}

// text returns the value of a field that is one text. It is empty if the field is missing, which is a problem if the field is required.
func (p *ownParser) text(of *yaml.Node, fields map[string]*yaml.Node, field, name string, required bool) string {
	n := fields[name]
	switch {
	case n == nil && required:
		p.wrong(of, field+name, "it is missing")
		return ""
	case n == nil:
		return ""
	case n.Kind != yaml.ScalarNode || n.Tag == "!!null" || strings.TrimSpace(n.Value) == "":
		p.wrong(n, field+name, "want a text, not %s", kindWord(n))
		return ""
	}
	return strings.TrimSpace(n.Value)
}

// texts returns the value of a field that is a list of texts; nil if there is none.
func (p *ownParser) texts(fields map[string]*yaml.Node, field, name string) []string {
	n := fields[name]
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		p.wrong(n, field+name, "want a list of one text or more, such as [\"1\"], not %s", kindWord(n))
		return nil
	}
	var all []string
	for i, e := range n.Content {
		if e.Kind != yaml.ScalarNode || e.Tag != "!!str" {
			p.wrong(e, fmt.Sprintf("%s%s[%d]", field, name, i), "want a text, not %s: put it in quotes", kindWord(e))
			continue
		}
		all = append(all, e.Value)
	}
	return all
}

// kindWord names what a node is, for an error.
func kindWord(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "fields"
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
		return "an empty list"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "a reference (*" + n.Value + ")"
	case n.Tag == "!!null" || strings.TrimSpace(n.Value) == "":
		return "nothing"
	case n.Tag != "!!str":
		return fmt.Sprintf("the %s %s", map[string]string{"!!int": "number", "!!float": "number", "!!bool": "boolean", "!!timestamp": "date"}[n.Tag], n.Value)
	}
	return fmt.Sprintf("%q", n.Value)
}

// ownID matches ORG-001 to ORG-999. The chart's schema has the same pattern.
var ownID = regexp.MustCompile(`^` + OwnGroup + `-(00[1-9]|0[1-9][0-9]|[1-9][0-9]{2})$`)

func (p *ownParser) rule(n *yaml.Node, at int) Own {
	p.about = ""
	place := fmt.Sprintf("rules[%d]", at)
	fields := p.fields(n, place, "id", "title", "severity", "why", "fix", "verify", "sources", "settings")
	id := p.text(n, fields, place+".", "id", true)
	if id != "" {
		place, p.about = "", id
		if !ownID.MatchString(id) {
			p.wrong(fields["id"], "id", "want %s-001 to %s-999: all other IDs are those of kata-vfio", OwnGroup, OwnGroup)
		}
	} else {
		place += "."
	}
	o := Own{File: p.file, Line: n.Line, Rule: Rule{
		ID: id, Title: p.text(n, fields, place, "title", true), Severity: Severity(p.text(n, fields, place, "severity", true)),
		Why: p.text(n, fields, place, "why", true), Fix: p.text(n, fields, place, "fix", true), Verify: p.text(n, fields, place, "verify", false),
		Sources: p.texts(fields, place, "sources"), File: fmt.Sprintf("%s line %d", p.file, n.Line),
	}}
	if s := o.Rule.Severity; s != "" && !slices.Contains(Severities(), s) {
		p.wrong(fields["severity"], place+"severity", "want one of %v, not %q", Severities(), s)
	}
	o.Rule.Settings = p.settings(n, fields["settings"], place+"settings")
	if o.Rule.Verify == "" {
		o.Rule.Verify = verifyByHand(o.Rule.Settings)
	}
	return o
}

// verifyByHand returns the commands that show the settings.
func verifyByHand(settings []Setting) string {
	var commands []string
	for i := range settings {
		if command := settings[i].Command(); !slices.Contains(commands, command) {
			commands = append(commands, command)
		}
	}
	return strings.Join(commands, "; ")
}

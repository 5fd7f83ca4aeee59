package facts

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// UdevRule is one rule of udev's (udev(7)).
type UdevRule struct {
	// File has the rule's line as its value.
	File  Fact
	Terms []UdevTerm
}

// UdevTerm is a condition or an assignment: KERNEL=="vfio", MODE="0666".
type UdevTerm struct{ Key, Operator, Value string }

// Matches reports whether the rule asks for the key to be as one of the patterns of
// which the value is a list with "|" between.
func (r *UdevRule) Matches(key string, is func(pattern string) bool) bool {
	return slices.ContainsFunc(r.Terms, func(t UdevTerm) bool {
		return t.Key == key && t.Operator == "==" && slices.ContainsFunc(strings.Split(t.Value, "|"), is)
	})
}

// Assigned returns the values that the rule gives a key.
func (r *UdevRule) Assigned(key string) []string {
	var values []string
	for _, t := range r.Terms {
		if t.Key == key && (t.Operator == "=" || t.Operator == ":=" || t.Operator == "+=") {
			values = append(values, t.Value)
		}
	}
	return values
}

// UdevRules returns the rules in force: a file hides those of its name in the
// directories behind its own.
func (n *Node) UdevRules() []UdevRule {
	var rules []UdevRule
	hidden := map[string]bool{}
	for _, dir := range []string{"etc/udev/rules.d", "run/udev/rules.d", "usr/lib/udev/rules.d", "lib/udev/rules.d"} {
		for _, file := range n.Glob(dir, "*.rules") {
			name := path.Base(file.Path)
			if !hidden[name] {
				rules = append(rules, parseUdev(file)...)
			}
			hidden[name] = true
		}
	}
	return rules
}

var udevTerm = regexp.MustCompile(`([A-Z]+(?:\{[^}"]*\})?)\s*(==|!=|:=|\+=|-=|=)\s*i?e?"([^"]*)"`)

func parseUdev(file Fact) []UdevRule {
	var rules []UdevRule
	for line := range strings.Lines(strings.ReplaceAll(file.Value, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		var terms []UdevTerm
		for _, m := range udevTerm.FindAllStringSubmatch(line, -1) {
			terms = append(terms, UdevTerm{Key: m[1], Operator: m[2], Value: m[3]})
		}
		if len(terms) > 0 {
			rules = append(rules, UdevRule{File: Fact{Path: file.Path, Value: line, How: "read"}, Terms: terms})
		}
	}
	return rules
}

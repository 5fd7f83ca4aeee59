package rule

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// settings reads the settings of the rule.
func (p *ownParser) settings(rule, n *yaml.Node, field string) []Setting {
	if n == nil {
		p.wrong(rule, field, "it is missing")
		return nil
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		p.wrong(n, field, "want a list of one setting or more, not %s", kindWord(n))
		return nil
	}
	var all []Setting
	for i, e := range n.Content {
		all = append(all, p.setting(e, fmt.Sprintf("%s[%d]", field, i)))
	}
	return all
}

func settingKinds() []SettingKind { return []SettingKind{Sysctl, Parameter, Argument} }

// setting reads one setting: its kind with the name, the values, and what its absence means.
func (p *ownParser) setting(n *yaml.Node, field string) (s Setting) {
	fields := p.fields(n, field, string(Sysctl), string(Parameter), string(Argument), "values", "forbidden", "absent")
	for _, kind := range settingKinds() {
		if fields[string(kind)] == nil {
			continue
		}
		if s.Kind != "" {
			p.wrong(n, field, "want one of sysctl, parameter and argument, not both %s and %s", s.Kind, kind)
		}
		s.Kind, s.Name = kind, p.text(n, fields, field+".", string(kind), true)
	}
	if s.Kind == "" && n.Kind == yaml.MappingNode {
		p.wrong(n, field, "want one of sysctl, parameter and argument")
	}
	if s.Name != "" {
		if why := s.wrongName(); why != "" {
			p.wrong(fields[string(s.Kind)], field+"."+string(s.Kind), "%s", why)
		}
	}
	s.Values, s.Forbidden = p.texts(fields, field+".", "values"), p.texts(fields, field+".", "forbidden")
	p.lists(n, fields, field, s.Kind)
	switch word := p.text(n, fields, field+".", "absent", false); word {
	case "", "fail":
	case "accept":
		s.AbsentAccepted = true
	default:
		p.wrong(fields["absent"], field+".absent", "want fail or accept, not %q", word)
	}
	return s
}

// lists checks which of the lists of values a setting has.
func (p *ownParser) lists(n *yaml.Node, fields map[string]*yaml.Node, field string, kind SettingKind) {
	values, forbidden := fields["values"], fields["forbidden"]
	switch {
	case n.Kind != yaml.MappingNode:
	case values != nil && forbidden != nil:
		p.wrong(forbidden, field+".forbidden", "want values or forbidden, not both: all but the values are bad already")
	case forbidden != nil && kind != Argument:
		p.wrong(forbidden, field+".forbidden", "only an argument has forbidden values: list the good ones in values")
	case forbidden != nil && fields["absent"] != nil:
		p.wrong(fields["absent"], field+".absent", "an argument with forbidden values may always be absent")
	case values == nil && forbidden == nil && kind == Argument:
		p.wrong(n, field+".values", "it is missing: list the good values in values, or the bad ones in forbidden")
	case values == nil && forbidden == nil:
		p.wrong(n, field+".values", "it is missing")
	}
}

var (
	sysctlName    = regexp.MustCompile(`^[a-z0-9_]+(\.[A-Za-z0-9_-]+)+$`)
	parameterName = regexp.MustCompile(`^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$`)
	argumentName  = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
	// namespaced are the sysctls that each network, IPC, user or UTS namespace has of its own.
	namespaced = regexp.MustCompile(`^(net\.|user\.|fs\.mqueue\.|kernel\.(msg|sem$|sem_|shm|auto_msgmni$|hostname$|domainname$))`)
)

// wrongName returns why the setting can't have its name, or "".
func (s *Setting) wrongName() string {
	switch {
	case s.Kind == Sysctl && !sysctlName.MatchString(s.Name):
		return fmt.Sprintf("want a name with dots, such as kernel.dmesg_restrict, not %q", s.Name)
	case s.Kind == Sysctl && namespaced.MatchString(s.Name):
		// The audit's pod would see its own value, and pass a node that has another.
		return fmt.Sprintf("%s belongs to a namespace of Linux: each pod, also the audit's, has its own value", s.Name)
	case s.Kind == Parameter && !parameterName.MatchString(s.Name):
		return fmt.Sprintf("want module and parameter with a dot between, such as vfio_pci.disable_idle_d3, not %q", s.Name)
	case s.Kind == Argument && !argumentName.MatchString(s.Name):
		return fmt.Sprintf("want the name of an argument without its value, such as iommu, not %q", s.Name)
	}
	return ""
}

// IsForbidden reports whether the value of an argument, words with commas between, is a bad one.
func (s *Setting) IsForbidden(value string) bool {
	return slices.ContainsFunc(s.Forbidden, func(bad string) bool {
		return bad == AnyValue || bad == value || slices.Contains(strings.Split(value, ","), bad)
	})
}

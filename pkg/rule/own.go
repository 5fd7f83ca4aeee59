package rule

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// OwnGroup is the group of the rules that an organization writes itself.
const OwnGroup = "ORG"

// Own is a rule of an organization: it compares settings of a node's kernel with values. The plugin never checks it, so it can't
// refuse a claim.
type Own struct {
	// Rule has the settings.
	Rule Rule
	// File and Line are where it was read.
	File string
	Line int
}

// Setting is a setting of the kernel and its values.
type Setting struct {
	Kind SettingKind `json:"kind"`
	// Name is "kernel.dmesg_restrict", "vfio_pci.disable_idle_d3" (module and parameter), or "iommu".
	Name string `json:"name"`
	// Values are the good values. Forbidden are the bad values of an argument. An argument has one of the two lists.
	Values    []string `json:"values,omitempty"`
	Forbidden []string `json:"forbidden,omitempty"`
	// AbsentAccepted is set if a node without the setting passes. Otherwise, such a node fails, so that a misspelled name is noticed.
	AbsentAccepted bool `json:"absentAccepted,omitempty"`
}

// SettingKind is the kind of a [Setting]. In YAML, it is the field that contains the setting's name.
type SettingKind string

// Kinds of [Setting].
const (
	// Sysctl is a setting below /proc/sys.
	Sysctl SettingKind = "sysctl"
	// Parameter is a parameter of a module, below /sys/module.
	Parameter SettingKind = "parameter"
	// Argument is an argument of the kernel's command line.
	Argument SettingKind = "argument"
)

// AnyValue in [Setting.Forbidden] stands for every value: the argument must not be there.
const AnyValue = "*"

// Command returns the command by which a person sees the setting.
func (s *Setting) Command() string {
	switch s.Kind {
	case Sysctl:
		return "sysctl " + s.Name
	case Parameter:
		module, name := s.OfModule()
		return "cat /sys/module/" + module + "/parameters/" + name
	case Argument:
	}
	return "cat /proc/cmdline"
}

// Wanted returns the setting and its values in words: "sysctl kernel.dmesg_restrict: 1 or 2".
func (s *Setting) Wanted() string {
	text := string(s.Kind) + " " + s.Name + ": "
	switch {
	case slices.Contains(s.Forbidden, AnyValue):
		return text + "not there"
	case len(s.Forbidden) > 0:
		return text + "not " + strings.Join(s.Forbidden, ", not ") + "; or not there"
	}
	values := make([]string, len(s.Values))
	for i, v := range s.Values {
		if values[i] = v; v == "" {
			values[i] = "without a value"
		}
	}
	if text += strings.Join(values, " or "); s.AbsentAccepted {
		text += "; or not there"
	}
	return text
}

// ReadIn returns where the audit reads the setting for this boot, and for the next one.
func (s *Setting) ReadIn() string {
	switch s.Kind {
	case Sysctl:
		return "/proc/sys/" + strings.ReplaceAll(s.Name, ".", "/") + "; for the next boot, sysctl.d and /etc/sysctl.conf"
	case Parameter:
		module, name := s.OfModule()
		return "/sys/module/" + module + "/parameters/" + name + "; for the next boot, modprobe.d and the boot loader's files"
	case Argument:
	}
	return "/proc/cmdline; for the next boot, the boot loader's files"
}

// OfModule returns the module of a [Parameter], as /sys/module has it, and the parameter's own name.
func (s *Setting) OfModule() (module, name string) {
	module, name, _ = strings.Cut(s.Name, ".")
	return strings.ReplaceAll(module, "-", "_"), name
}

// File is a file of an organization's rules, as reports and archives name it.
type File struct {
	Name string `json:"name"`
	// SHA256 is the hash of its content, in hexadecimal digits.
	SHA256 string `json:"sha256"`
	// Rules are the IDs of its rules.
	Rules []string `json:"rules"`
}

// Words returns the file for people: "rules.yaml (ORG-001, ORG-002; sha256 1f2e3d4c)".
func (f *File) Words() string {
	return fmt.Sprintf("%s (%s; sha256 %.8s)", f.Name, strings.Join(f.Rules, ", "), f.SHA256)
}

// AddOwn adds the rules of a file after the other rules for nodes. If it returns an error, the catalogue is unchanged. The error
// names the file, the lines and the fields that are wrong.
func (c *Catalogue) AddOwn(file string, content []byte) error {
	own, err := parseOwn(file, content)
	if err != nil {
		return err
	}
	for i := range own {
		if j := slices.IndexFunc(c.Own, func(o Own) bool { return o.Rule.ID == own[i].Rule.ID }); j >= 0 {
			return fmt.Errorf("%s: line %d: id: %s is a rule of %s line %d already", file, own[i].Line, own[i].Rule.ID, c.Own[j].File, c.Own[j].Line)
		}
	}
	sum := sha256.Sum256(content)
	added := File{Name: file, SHA256: hex.EncodeToString(sum[:])}
	end := len(c.OfNodes())
	for i := range own {
		c.Rules = slices.Insert(c.Rules, end+i, own[i].Rule)
		added.Rules = append(added.Rules, own[i].Rule.ID)
	}
	c.Own, c.Files = append(c.Own, own...), append(c.Files, added)
	return nil
}

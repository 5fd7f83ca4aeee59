package finding

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed controls/*.yaml
var frameworkFiles embed.FS

// Strength is the strength of a check's evidence for a control.
type Strength string

// Strengths.
const (
	// Direct: the check judges the control's requirement itself.
	Direct Strength = "direct"
	// Supporting: the check is evidence for a part of the requirement.
	Supporting Strength = "supporting"
)

// Framework is a catalogue of the controls that checks support. That every check passes on a node does not make the node compliant,
// and no text of the audit may claim so. The tables are the files in the folder controls.
type Framework struct {
	// ID is the name on command lines: "nist-800-53".
	ID       string    `json:"id"`
	Title    string    `json:"title"`
	Version  string    `json:"version"`
	Controls []Control `json:"controls"`
}

// Name returns title and version.
func (f *Framework) Name() string { return f.Title + " " + f.Version }

// Control is one control and the checks that support it.
type Control struct {
	Control  string   `json:"control"`
	Title    string   `json:"title"`
	Strength Strength `json:"strength"`
	// Rules are the IDs of rules. "IOM-*" stands for all rules of the group.
	Rules []string `json:"rules"`
	// Rationale says why the rules support the control, as one sentence without its full stop.
	Rationale string `json:"rationale"`
}

// Covers reports whether the rule supports the control.
func (c *Control) Covers(rule string) bool {
	return slices.ContainsFunc(c.Rules, func(pattern string) bool {
		group, whole := strings.CutSuffix(pattern, "*")
		return pattern == rule || whole && strings.HasPrefix(rule, group)
	})
}

// FrameworkIDs returns the IDs of the frameworks, sorted. It does not read the frameworks, because their files are named by ID.
func FrameworkIDs() []string {
	files, _ := fs.Glob(frameworkFiles, "controls/*.yaml") // its only error is a bad pattern
	for i, name := range files {
		files[i] = strings.TrimSuffix(path.Base(name), ".yaml")
	}
	return files
}

// Frameworks returns all frameworks, by id. The error is a defect of the build.
func Frameworks() ([]Framework, error) {
	var frameworks []Framework
	files, err := fs.Glob(frameworkFiles, "controls/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list mappings: %w", err)
	}
	for _, name := range files {
		content, err := frameworkFiles.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read mapping: %w", err)
		}
		var f Framework
		if err := yaml.UnmarshalStrict(content, &f); err != nil {
			return nil, fmt.Errorf("decode mapping %s: %w", name, err)
		}
		frameworks = append(frameworks, f)
	}
	slices.SortFunc(frameworks, func(a, b Framework) int { return strings.Compare(a.ID, b.ID) })
	return frameworks, nil
}

// Support is one control that a rule supports.
type Support struct {
	// Framework is the id of the framework, and Name its title and version.
	Framework string   `json:"framework"`
	Name      string   `json:"name"`
	Control   string   `json:"control"`
	Title     string   `json:"title"`
	Strength  Strength `json:"strength"`
	Rationale string   `json:"rationale"`
}

// ControlsFor returns the controls that the rule supports, in the order of the frameworks; it is empty
// and not nil if it supports nothing.
func ControlsFor(frameworks []Framework, rule string) []Support {
	supports := []Support{}
	for i := range frameworks {
		f := &frameworks[i]
		for _, c := range f.Controls {
			if c.Covers(rule) {
				supports = append(supports, Support{
					Framework: f.ID, Name: f.Name(), Control: c.Control, Title: c.Title, Strength: c.Strength, Rationale: c.Rationale,
				})
			}
		}
	}
	return supports
}

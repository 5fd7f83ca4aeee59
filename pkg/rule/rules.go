package rule

import (
	"bytes"
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed rules/*.yaml
var rulesYAML embed.FS

// Rule describes a check of the audit and its reason. IDs and their meaning are stable: a rule that changes its meaning gets
// a new ID.
type Rule struct {
	// ID is the group and a number, "IOM-003".
	ID string `json:"id" yaml:"id"`
	// Title is the ensured state, "Ensure that VFIO's no-IOMMU mode is off".
	Title string `json:"title" yaml:"title"`
	// Severity is the severity for untrusted tenants. Profiles of the audit can change it.
	Severity Severity `json:"severity" yaml:"severity"`
	// Why is the consequence of a failure, in sentences.
	Why string `json:"why" yaml:"why"`
	// Code is the code for the same fault of a function. The rule's Fix begins with the code's.
	Code Code `json:"-" yaml:"code,omitempty"`
	// Codes are the codes whose texts name the rule among their checks: the same fault, seen elsewhere. Code is one of them.
	Codes []Code `json:"codes,omitempty" yaml:"-"`
	// Fix is the solution, and Verify the way to see the fault by hand. They apply if the check's finding has nothing more precise.
	Fix    string `json:"fix" yaml:"fix"`
	Verify string `json:"verify,omitempty" yaml:"verify,omitempty"`
	// Sources are the sources of the fact: a kernel file, a specification, a CVE.
	Sources []string `json:"sources,omitempty" yaml:"sources,omitempty"`
	// Cheap marks a check that reads only the snapshot and a few attributes. The plugin runs it whenever the node changes.
	Cheap bool `json:"cheap,omitempty" yaml:"cheap,omitempty"`
	// Static marks a rule whose failure no configuration repairs: advice, such as where to place tenants.
	Static bool `json:"static,omitempty" yaml:"static,omitempty"`
	// Settings are what a rule of an organization compares. Rules of kata-vfio have none.
	Settings []Setting `json:"settings,omitempty" yaml:"-"`
	// File is where an organization's rule was read: "rules.yaml line 3".
	File string `json:"file,omitempty" yaml:"-"`
}

// Expected returns the ensured state as a clause: "VFIO's no-IOMMU mode is off".
func (r *Rule) Expected() string { return strings.TrimPrefix(r.Title, "Ensure that ") }

// Group returns the letters of the rule's ID: "IOM".
func (r *Rule) Group() string {
	letters, _, _ := strings.Cut(r.ID, "-")
	return letters
}

// NotAsked is a question that a reviewer of passthrough may ask and that no check answers. A check that is added later for the
// question takes over its ID.
type NotAsked struct {
	ID string `json:"id" yaml:"id"`
	// Title is the state that the check would ensure.
	Title string `json:"title" yaml:"title"`
	// Why is the reason why there is no check.
	Why string `json:"why" yaml:"why"`
	// ByHand is the way for a person to answer it: a command, or words.
	ByHand string `json:"byHand" yaml:"byHand"`
}

// Group is a part of the catalogue.
type Group struct {
	// Letters begin the IDs of its rules: "IOM".
	Letters string `json:"letters"`
	Title   string `json:"title"`
}

// ClusterGroup is the group of the rules for a cluster. All others are for a node.
const ClusterGroup = "K8S"

// Groups returns all groups, in the order of the catalogue.
func Groups() []Group {
	return []Group{
		{"IOM", "IOMMU and interrupts"},
		{"ACS", "PCIe topology and ACS"},
		{"VFIO", "VFIO"},
		{"RST", "Reset and residue between tenants"},
		{"GPU", "GPUs"},
		{"NIC", "NICs and SR-IOV"},
		{"HOST", "Host, CPU and boot"},
		{"RT", "Kata, containerd and NRI"},
		{"CDI", "CDI"},
		{ClusterGroup, "Cluster"},
		{"CC", "Confidential computing"},
		{"OBS", "Quality of the evidence"},
		{OwnGroup, "Rules of your organization"},
	}
}

// Catalogue has all rules, and the questions without a rule: first those for a node by group, then those for a cluster.
// Rules of one topic are next to each other.
type Catalogue struct {
	Rules    []Rule     `yaml:"rules"`
	NotAsked []NotAsked `yaml:"notAsked"`
	// Own are the rules that an organization wrote, and Files are the files that they are in. See [Catalogue.AddOwn].
	Own   []Own  `yaml:"-"`
	Files []File `yaml:"-"`
}

// ReadCatalogue reads the catalogue from the embedded files. It takes milliseconds: read it once, and pass it on. The error is a
// defect of the build.
func ReadCatalogue() (*Catalogue, error) {
	texts, err := Texts()
	if err != nil {
		return nil, err
	}
	all := &Catalogue{}
	for _, letters := range filesInOrder() {
		one, err := readGroup(letters)
		if err != nil {
			return nil, err
		}
		all.Rules, all.NotAsked = append(all.Rules, one.Rules...), append(all.NotAsked, one.NotAsked...)
	}
	for i := range all.Rules {
		if err := all.Rules[i].takeFix(texts); err != nil {
			return nil, err
		}
		all.Rules[i].Codes = codesWith(texts, all.Rules[i].ID)
	}
	return all, nil
}

// filesInOrder returns the letters of the groups that have an embedded file, first the groups for nodes.
func filesInOrder() []string {
	var letters []string
	for _, g := range Groups() {
		if g.Letters != ClusterGroup && g.Letters != OwnGroup {
			letters = append(letters, g.Letters)
		}
	}
	return append(letters, ClusterGroup)
}

// readGroup reads the file of one group. Unknown fields are refused.
func readGroup(letters string) (*Catalogue, error) {
	name := path.Join("rules", strings.ToLower(letters)+".yaml")
	content, err := rulesYAML.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	group := &Catalogue{}
	if err := decoder.Decode(group); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return group, nil
}

// takeFix puts the fix of the rule's code in front of its own.
func (r *Rule) takeFix(texts []Text) error {
	if r.Code == "" {
		return nil
	}
	i := slices.IndexFunc(texts, func(t Text) bool { return t.Code == r.Code })
	if i < 0 {
		return fmt.Errorf("rule %s has the code %q, which does not exist", r.ID, r.Code)
	}
	if r.Fix == "" {
		r.Fix = texts[i].Fix
		return nil
	}
	r.Fix = texts[i].Fix + ". " + r.Fix
	return nil
}

// codesWith returns the codes whose texts name a rule.
func codesWith(texts []Text, id string) []Code {
	var codes []Code
	for i := range texts {
		if slices.Contains(texts[i].Checks, id) {
			codes = append(codes, texts[i].Code)
		}
	}
	return codes
}

// OfNodes returns the rules for a node.
func (c *Catalogue) OfNodes() []Rule {
	return slices.DeleteFunc(slices.Clone(c.Rules), func(r Rule) bool { return r.Group() == ClusterGroup })
}

// OfClusters returns the rules for a cluster.
func (c *Catalogue) OfClusters() []Rule {
	return slices.DeleteFunc(slices.Clone(c.Rules), func(r Rule) bool { return r.Group() != ClusterGroup })
}

// Rule returns the rule with the ID.
func (c *Catalogue) Rule(id string) (*Rule, bool) {
	i := slices.IndexFunc(c.Rules, func(r Rule) bool { return r.ID == id })
	if i < 0 {
		return nil, false
	}
	return &c.Rules[i], true
}

// IDs returns the IDs of rules, in their order.
func IDs(rules []Rule) []string {
	ids := make([]string, len(rules))
	for i := range rules {
		ids[i] = rules[i].ID
	}
	return ids
}

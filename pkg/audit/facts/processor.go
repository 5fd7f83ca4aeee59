package facts

import (
	"slices"
	"strings"
)

// Processor is a kind of CPU of the node, by what a microcode is made for.
type Processor struct {
	// Name is "family/model/stepping", as /proc/cpuinfo numbers them.
	Name string
	// Microcode are the revisions that CPUs of the kind run, each once, sorted.
	Microcode []string
}

// Processors returns the kinds of CPUs of the node, by name, with the fact that
// says so: none on architectures that know no microcode.
func (n *Node) Processors() ([]Processor, Fact) {
	f := n.Read("proc/cpuinfo")
	kinds := parseProcessors(f.Value)
	f.Value = ""
	return kinds, f
}

func parseProcessors(cpuinfo string) []Processor {
	var kinds []Processor
	for block := range strings.SplitSeq(cpuinfo, "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(line, ":")
			fields[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
		if fields["microcode"] == "" {
			continue
		}
		name := fields["cpu family"] + "/" + fields["model"] + "/" + fields["stepping"]
		i := slices.IndexFunc(kinds, func(p Processor) bool { return p.Name == name })
		if i < 0 {
			kinds, i = append(kinds, Processor{Name: name}), len(kinds)
		}
		if p := &kinds[i]; !slices.Contains(p.Microcode, fields["microcode"]) {
			p.Microcode = append(p.Microcode, fields["microcode"])
			slices.Sort(p.Microcode)
		}
	}
	slices.SortFunc(kinds, func(a, b Processor) int { return strings.Compare(a.Name, b.Name) })
	return kinds
}

// Package fabric has the partitions of an NVLink fabric: sets of GPUs that NVIDIA's Fabric Manager joins for one VM, and the map that says
// which PCI function each GPU is. The package decides; it reads and writes nothing. For that see [Manager].
//
// Facts about Fabric Manager are from NVIDIA's Fabric Manager User Guide and github.com/NVIDIA/go-nvfm.
package fabric

import (
	"slices"
	"strconv"
	"strings"
)

// Limits of the API (FM_MAX_FABRIC_PARTITIONS and FM_MAX_NUM_GPUS).
const (
	MaxPartitions = 64
	MaxGPUs       = 16
)

// GPU is a GPU of a partition, as Fabric Manager lists it.
type GPU struct {
	// Module is the GPU's place on the board (physicalId). On H100 and later it is the Module ID of `nvidia-smi -q`.
	Module int `json:"module"`
	// UUID and Address (pciBusId) are empty, or zeros, on H100 and later.
	UUID    string `json:"uuid,omitempty"`
	Address string `json:"address,omitempty"`
	// Links is how many NVLinks work, of MaxLinks, with LineRate MB/s each.
	Links    int `json:"links,omitempty"`
	MaxLinks int `json:"maxLinks,omitempty"`
	LineRate int `json:"lineRateMBps,omitempty"`
}

// Partition is a set of GPUs that Fabric Manager can join.
type Partition struct {
	// ID is the number by which Fabric Manager knows the partition. Another board, or another version, numbers partitions differently.
	ID     int   `json:"id"`
	Active bool  `json:"active"`
	GPUs   []GPU `json:"gpus"`
}

// List is what Fabric Manager answers: all partitions of the node, active or not.
type List []Partition

// Modules returns the modules of a partition, in order.
func (p *Partition) Modules() []int {
	all := make([]int, len(p.GPUs))
	for i := range p.GPUs {
		all[i] = p.GPUs[i].Module
	}
	slices.Sort(all)
	return all
}

// Overlaps reports whether two partitions have a GPU in common.
func (p *Partition) Overlaps(q *Partition) bool {
	return slices.ContainsFunc(p.GPUs, func(g GPU) bool { return q.Has(g.Module) })
}

// Has reports whether the GPU with the module is in the partition.
func (p *Partition) Has(module int) bool {
	return slices.ContainsFunc(p.GPUs, func(g GPU) bool { return g.Module == module })
}

// Links returns the number of links of the GPU that has the fewest, and false if the list has no numbers.
func (p *Partition) Links() (int, bool) {
	least := -1
	for _, g := range p.GPUs {
		if least < 0 || g.Links < least {
			least = g.Links
		}
	}
	return max(least, 0), least > 0
}

// String returns the number and the modules: "3 (modules 1, 3)". [ParseValue] reads it.
func (p *Partition) String() string { return Value(p.ID, p.Modules()) }

// Value returns the text that stands for a partition in records. It contains the modules, so that it shows if the number means other GPUs
// after an update.
func Value(id int, modules []int) string {
	return strconv.Itoa(id) + " (modules " + joinModules(modules) + ")"
}

// NoPartition is the value of a GPU that is in no active partition.
const NoPartition = "none"

// ParseValue reads the number and the modules of [Value], and returns false for another text.
func ParseValue(s string) (id int, modules []int, ok bool) {
	number, rest, _ := strings.Cut(s, " (modules ")
	id, err := strconv.Atoi(number)
	list, closed := strings.CutSuffix(rest, ")")
	if err != nil || !closed {
		return 0, nil, false
	}
	for field := range strings.SplitSeq(list, ", ") {
		m, err := strconv.Atoi(field)
		if err != nil {
			return 0, nil, false
		}
		modules = append(modules, m)
	}
	return id, modules, Value(id, modules) == s
}

// ParsePartition returns the partition that a text of [Value] stands for, and false for another text. The GPUs of the partition have only
// their modules.
func ParsePartition(s string) (*Partition, bool) {
	id, modules, ok := ParseValue(s)
	if !ok {
		return nil, false
	}
	p := &Partition{ID: id}
	for _, m := range modules {
		p.GPUs = append(p.GPUs, GPU{Module: m})
	}
	return p, true
}

func joinModules(modules []int) string {
	texts := make([]string, len(modules))
	for i, m := range modules {
		texts[i] = strconv.Itoa(m)
	}
	return strings.Join(texts, ", ")
}

// String returns the numbers and modules of all: "3 (modules 1, 3) and 4 (modules 2, 4)".
func (l List) String() string {
	texts := make([]string, len(l))
	for i := range l {
		texts[i] = l[i].String()
	}
	return strings.Join(texts, " and ")
}

// Active returns the active partitions.
func (l List) Active() List {
	return slices.DeleteFunc(slices.Clone(l), func(p Partition) bool { return !p.Active })
}

// With returns the partition that consists of exactly these modules, which must be in order; nil if there is none.
func (l List) With(modules []int) *Partition {
	i := slices.IndexFunc(l, func(p Partition) bool { return slices.Equal(p.Modules(), modules) })
	if i < 0 {
		return nil
	}
	return &l[i]
}

// Numbered returns the partition with the number; nil if there is none.
func (l List) Numbered(id int) *Partition {
	i := slices.IndexFunc(l, func(p Partition) bool { return p.ID == id })
	if i < 0 {
		return nil
	}
	return &l[i]
}

// Holding returns the active partition that the GPU with the module is in; nil if there is none.
func (l List) Holding(module int) *Partition {
	i := slices.IndexFunc(l, func(p Partition) bool { return p.Active && p.Has(module) })
	if i < 0 {
		return nil
	}
	return &l[i]
}

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// FabricState is a node's NVLink fabric and the use of its partitions. Its JSON names are stable, and its lists are
// never null.
type FabricState struct {
	// Board is the name of the GPUs' board. It is empty if no partition is known; Why and Fix say why then.
	Board string `json:"board,omitempty"`
	Why   string `json:"why,omitempty"`
	Fix   string `json:"fix,omitempty"`
	// Away says why Fabric Manager can't be asked now. The active partitions are then those that it listed last.
	Away string `json:"away,omitempty"`
	// Version is the version of Fabric Manager and of NVIDIA's driver; empty if it is unknown.
	Version string `json:"version,omitempty"`
	// Modules say which function each GPU of the board is.
	Modules []fabric.Place `json:"modules"`
	// Partitions are those that Fabric Manager lists, by its numbers.
	Partitions []PartitionState `json:"partitions"`
}

// PartitionUse says what a partition is used for.
type PartitionUse string

// Uses of partitions. PartitionInactive is a fault: a claim has the partition, but Fabric Manager lists it as not
// active, so its GPUs have no NVLink.
const (
	PartitionFree     PartitionUse = "free"
	PartitionActive   PartitionUse = "active"
	PartitionBlocked  PartitionUse = "blocked"
	PartitionInactive PartitionUse = "inactive"
)

// PartitionState is one partition of a fabric.
type PartitionState struct {
	// ID is Fabric Manager's number of it.
	ID      int           `json:"id"`
	Modules []int         `json:"modules"`
	GPUs    []pci.Address `json:"gpus"`
	// Links is how many NVLinks each GPU has in the partition. If the GPUs differ, it is the smallest number. It is 0
	// if Fabric Manager lists none.
	Links int `json:"links,omitempty"`
	// Device is the name of the partition's device in ResourceSlices; empty if the partition is not published.
	Device string       `json:"device,omitempty"`
	Use    PartitionUse `json:"use"`
	// Claim is the claim that has the GPUs of an active or inactive partition: "namespace/name". It is empty for an
	// active partition that no claim has.
	Claim string `json:"claim,omitempty"`
	// BlockedBy has the reasons why no claim can get the partition: claims that have one of its GPUs, active partitions
	// that share a GPU with it, GPUs with a fault, or else the node config, if it does not publish the partition.
	BlockedBy []string `json:"blockedBy,omitempty"`
}

// Words describes the use: "active: team-a/train", "blocked by team-a/train".
func (p *PartitionState) Words() string {
	switch p.Use {
	case PartitionBlocked:
		words := "blocked by " + p.BlockedBy[0]
		if more := len(p.BlockedBy) - 1; more > 0 {
			words += fmt.Sprintf(" +%d", more)
		}
		return words
	case PartitionActive:
		return "active: " + cmp.Or(p.Claim, "no claim's")
	case PartitionInactive:
		return "NOT active, and " + p.Claim + " has it"
	case PartitionFree:
	}
	return string(p.Use)
}

// ModuleWords lists the modules: "1 3".
func (p *PartitionState) ModuleWords() string {
	words := make([]string, len(p.Modules))
	for i, m := range p.Modules {
		words[i] = strconv.Itoa(m)
	}
	return strings.Join(words, " ")
}

// Words sums the fabric up in one line: "NVLink fabric 0000-86-00-0, Fabric Manager 570.172.08: 15 partitions, 2 active".
func (s *FabricState) Words() string {
	words := strings.TrimRight("NVLink fabric "+s.Board, " ")
	if s.Version != "" {
		words += ", Fabric Manager " + s.Version
	}
	if s.Board == "" {
		return words + ": no partitions: " + s.Why
	}
	partitions := "partitions"
	if len(s.Partitions) == 1 {
		partitions = "partition"
	}
	words += fmt.Sprintf(": %d %s, %d active", len(s.Partitions), partitions, s.Counts(PartitionActive))
	if s.Away != "" {
		words += ", as listed last"
	}
	return words
}

// Notes are what a reader has to know besides [FabricState.Words]: why the list may be old, and what makes partitions known.
func (s *FabricState) Notes() []string {
	var notes []string
	if s.Away != "" {
		notes = append(notes, "Fabric Manager can't be asked: "+s.Away)
	}
	if s.Fix != "" {
		notes = append(notes, "fix: "+s.Fix)
	}
	return notes
}

// Rows are the partitions as a table for people, below its titles.
func (s *FabricState) Rows() [][]string {
	rows := [][]string{{"ID", "MODULES", "DEVICE", "USE"}}
	for i := range s.Partitions {
		p := &s.Partitions[i]
		rows = append(rows, []string{strconv.Itoa(p.ID), p.ModuleWords(), cmp.Or(p.Device, "-"), p.Words()})
	}
	return rows
}

// Holding returns the active partition that a GPU is in; nil if there is none.
func (s *FabricState) Holding(a pci.Address) *PartitionState {
	if s == nil {
		return nil
	}
	i := slices.IndexFunc(s.Partitions, func(p PartitionState) bool { return p.Use == PartitionActive && slices.Contains(p.GPUs, a) })
	if i < 0 {
		return nil
	}
	return &s.Partitions[i]
}

// Counts returns how many partitions have the use.
func (s *FabricState) Counts(use PartitionUse) int {
	n := 0
	for i := range s.Partitions {
		if s.Partitions[i].Use == use {
			n++
		}
	}
	return n
}

// Fabric returns the state of the node's NVLink fabric; nil if its config has none.
func (n *Node) Fabric() *FabricState {
	f := n.Selection.Fabric()
	if f == nil {
		return nil
	}
	s := &FabricState{Why: f.Why, Fix: f.Fix, Away: f.Away, Version: f.Version, Modules: []fabric.Place{}, Partitions: []PartitionState{}}
	if f.Board == nil {
		return s
	}
	s.Board, s.Modules = f.Board.Name(), f.Board.Places()
	look := partitionLook{node: n, fabric: f, assessor: NewAssessor(*n)}
	list := slices.SortedFunc(slices.Values(f.Board.Partitions()), func(p, q fabric.Partition) int { return cmp.Compare(p.ID, q.ID) })
	for i := range list {
		s.Partitions = append(s.Partitions, look.at(&list[i]))
	}
	return s
}

// partitionLook finds out what the partitions of a node are used for.
type partitionLook struct {
	node     *Node
	fabric   *nodeconfig.Fabric
	assessor *Assessor
}

func (l *partitionLook) at(p *fabric.Partition) PartitionState {
	s := PartitionState{ID: p.ID, Modules: p.Modules(), GPUs: l.fabric.Board.Addresses(p)}
	s.Device = l.published(s.GPUs)
	s.Links, _ = p.Links()
	owner := l.owner(s.GPUs)
	inTheWay := l.overlapping(p)
	switch {
	case p.Active:
		s.Use, s.Claim = PartitionActive, owner
	case owner != "" && len(inTheWay) == 0:
		s.Use, s.Claim = PartitionInactive, owner
	default:
		s.Use, s.BlockedBy = PartitionFree, l.against(&s, inTheWay)
		if len(s.BlockedBy) > 0 {
			s.Use = PartitionBlocked
		}
	}
	return s
}

// published returns the name of the device that the GPUs are; empty if they are none.
func (l *partitionLook) published(gpus []pci.Address) string {
	if len(gpus) == 1 {
		if f, ok := l.node.Snapshot.Function(gpus[0]); ok && l.node.Selection.Choice(gpus[0]).Ours {
			return f.Name()
		}
		return ""
	}
	for _, p := range l.fabric.Partitions() {
		if slices.EqualFunc(p.GPUs, gpus, func(f *device.Function, a pci.Address) bool { return f.Address == a }) {
			return p.Name()
		}
	}
	return ""
}

// owner names the claim that has exactly these GPUs of the board and no others; empty if there is none.
func (l *partitionLook) owner(gpus []pci.Address) string {
	uid, words := l.holder(gpus[0])
	if uid == "" {
		return ""
	}
	for _, p := range l.fabric.Board.Places() {
		other, _ := l.holder(p.Address)
		if has := other == uid; has != slices.Contains(gpus, p.Address) {
			return ""
		}
	}
	return words
}

// holder returns the UID and the name of the claim that has a GPU, or had it until its quarantine; empty if there is none.
func (l *partitionLook) holder(a pci.Address) (uid, words string) {
	owner, owned := l.node.Owners[a]
	if !owned || owner.Bound {
		return "", ""
	}
	words = owner.Claim.Namespace + "/" + owner.Claim.Name
	if owner.Claim.Name == "" {
		words = owner.Claim.UID
	}
	if owner.Quarantined != "" {
		words += " (quarantined)"
	}
	return owner.Claim.UID, words
}

// overlapping returns the other active partitions that have a GPU of p.
func (l *partitionLook) overlapping(p *fabric.Partition) []fabric.Partition {
	return slices.DeleteFunc(l.fabric.Board.Partitions().Active(), func(q fabric.Partition) bool { return q.ID == p.ID || !q.Overlaps(p) })
}

// against returns the reasons against assigning a partition that is not active, the claims first.
func (l *partitionLook) against(s *PartitionState, inTheWay []fabric.Partition) []string {
	var claims, others []string
	for _, a := range s.GPUs {
		if _, claim := l.holder(a); claim != "" {
			claims = append(claims, claim)
			continue
		}
		if word := l.fault(a); word != "" {
			others = append(others, word)
		}
	}
	for i := range inTheWay {
		if l.owner(l.fabric.Board.Addresses(&inTheWay[i])) == "" {
			others = append(others, fmt.Sprintf("active partition %d", inTheWay[i].ID))
		}
	}
	if len(claims)+len(others) == 0 && s.Device == "" {
		others = append(others, "the node config")
	}
	slices.Sort(claims)
	return append(slices.Compact(claims), others...)
}

// fault names what is wrong with a free GPU. It leaves out that Fabric Manager is away, which is not a fault of a single
// partition.
func (l *partitionLook) fault(a pci.Address) string {
	f, ok := l.node.Snapshot.Function(a)
	if !ok {
		return a.String() + " (gone)"
	}
	as := l.assessor.Assess(f)
	for _, r := range as.Faults() {
		if r.Code != rule.FabricNotReady {
			return fmt.Sprintf("%s (%s)", a, r.Code)
		}
	}
	return ""
}

package facts

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Planned returns the node as the plugin plans with it and publishes it: by its config,
// the journal's records and marks, and what the plugin says that no other file does. What
// could not be read does not count: unread says what that is and what it hides, one
// sentence each.
func (n *Node) Planned() (node plan.Node, unread []string) {
	cfg := n.offer.config
	node = plan.Node{
		Name: n.offer.said.NodeName, Snapshot: n.Snapshot, Selection: nodeconfig.Select(cfg, n.Snapshot),
		Owners:    journal.Holdings(n.journal, n.Snapshot.Host.BootID),
		Attempted: n.offer.said.Attempted, HotPlug: n.offer.said.HotPlug, HotPlugWindow: n.offer.said.HotPlugWindow,
	}
	if cfg != nil {
		node.AddressPools = cfg.AddressPools
	}
	if failing := n.offer.said.Failing; len(failing) > 0 {
		node.Failing = func(a pci.Address) []string { return failing[a] }
	}
	if len(n.Damaged) > 0 {
		node.Damaged = n.Damaged[0].Path
	}
	marks, err := journal.ReadMarks(n.fs, journalDir)
	node.NeedsReset, node.Drained = mapped(marks.NeedsReset, isMarked), mapped(marks.Drains, reason)
	node.FatalErrors = journal.Unaccounted(n.Snapshot, marks.FatalErrors)
	return node, n.unread(err)
}

func isMarked(journal.ResetMark) bool { return true }

func reason(d journal.Drain) string { return d.Reason }

// mapped returns the map with other values.
func mapped[V, W any](m map[pci.Address]V, value func(V) W) map[pci.Address]W {
	out := make(map[pci.Address]W, len(m))
	for a, v := range m {
		out[a] = value(v)
	}
	return out
}

// unread says which sources of the judgement could not be read; marks is the error of
// reading the journal's marks.
func (n *Node) unread(marks error) []string {
	var all []string
	if p := n.offer.basis.Problem; p != "" {
		all = append(all, fmt.Sprintf("the node's config could not be read, so that functions are selected by the default one: %s", p))
	}
	if f := n.offer.note; !f.Known() {
		all = append(all, fmt.Sprintf("what the plugin publishes could not be read, so that its config and the checks that fail are not known: %s: %s", f.Path, f.Err))
	}
	if f := n.Journal(); !f.Known() {
		return append(all, fmt.Sprintf("the journal could not be read, so that claims' devices, quarantine and drains are not known: %s: %s", f.Path, f.Err))
	}
	for _, f := range n.Damaged {
		all = append(all, fmt.Sprintf("a record of the journal could not be read, so that the devices of its claim are not known: %s: %s", f.Path, f.Err))
	}
	if marks != nil {
		all = append(all, fmt.Sprintf("marks of the journal could not be read, so that drains and resets that are due are not known: %s", strings.ReplaceAll(marks.Error(), "\n", "; ")))
	}
	return all
}

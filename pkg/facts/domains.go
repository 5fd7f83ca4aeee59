package facts

import (
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Domains are the exclusive domains of a node, by its config and its journal.
type Domains struct {
	All []plan.DomainState
	// Config is the file of the config.
	Config Fact
	// Unread is a source that could not be read, so that domains or their tenants may be missing. If all sources were read,
	// [Fact.Known] of it is true.
	Unread Fact
}

// Domains returns the exclusive domains of the node. It does not read the journal if no rule of the node config has exclusive domains.
func (n *Node) Domains() *Domains {
	type key struct{}
	return Memo(n, key{}, func() *Domains {
		found := &Domains{Config: n.configFact(), Unread: n.unreadConfig()}
		if !n.offer.config.HasExclusive() {
			return found
		}
		planned, _ := n.Planned()
		found.All = planned.Domains()
		if found.Unread.Known() {
			found.Unread = n.unreadTenants()
		}
		return found
	})
}

func (n *Node) configFact() Fact {
	f := Fact{Path: n.offer.configFile, How: "read"}
	if f.Path == "" {
		f.Path, f.Status = "/"+NodeConfigFile, Absent
	}
	return f
}

// unreadConfig returns the config if it could not be read; otherwise a known fact.
func (n *Node) unreadConfig() Fact {
	if p := n.offer.basis.Problem; p != "" {
		path, why, _ := strings.Cut(p, ": ")
		return unreadable(path, why)
	}
	if !n.offer.note.Known() {
		return n.offer.note
	}
	return Fact{}
}

// unreadTenants returns the first part of the journal that could not be read; otherwise a known fact.
func (n *Node) unreadTenants() Fact {
	if f := n.Journal(); !f.Known() {
		return f
	}
	if len(n.Damaged) > 0 {
		return n.Damaged[0]
	}
	if _, err := journal.ReadMarks(n.fs, journalDir); err != nil {
		return unreadable("/"+journalDir, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return Fact{}
}

func unreadable(path, why string) Fact {
	return Fact{Path: path, How: "read", Status: Broken, Err: why}
}

package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// oneSandbox looks at both sides: whose processes hold a function, and which claims
// the journal gives it to.
func oneSandbox(n *facts.Node) []finding.Finding {
	_, seen := n.Holdings()
	var found []finding.Finding
	var looked []pci.Address
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		claims := preparedFor(n, f.Address)
		if len(claims) > 0 {
			looked = append(looked, f.Address)
		}
		if len(claims) > 1 {
			found = append(found, about(f, fail(fmt.Sprintf("%s is prepared for %s", f.Address, describeClaims(n, claims)), n.Journal()))...)
		}
		if who := sandboxesOf(n, f.Address); len(who) > 1 {
			found = append(found, about(f, fail(fmt.Sprintf("%s is held by %s", f.Address, strings.Join(who, " and by ")), seen))...)
		}
	}
	switch {
	case !seen.OK() && anyOnVFIO(n):
		return append(found, unknown("how many hold a function", seen)...)
	case len(found) > 0:
		return found
	case len(looked) == 0:
		return notApplicable("no claim has a function")
	}
	return showing(pass(count(len(looked), "function"), n.Journal()), looked, func(a pci.Address) []facts.Fact {
		var held []facts.Fact
		for _, h := range n.HoldersOf(a) {
			held = append(held, h.Fact())
		}
		return held
	})
}

// preparedFor returns the claims for which a function is prepared in this boot.
func preparedFor(n *facts.Node, a pci.Address) []*journal.Record {
	var claims []*journal.Record
	for _, t := range n.TenanciesOf(a) {
		if n.IsThisBoot(t.Record) && t.Record.State == journal.Prepared {
			claims = append(claims, t.Record)
		}
	}
	return claims
}

// sandboxesOf says who holds the function, one process for each container, and
// each process outside of any.
func sandboxesOf(n *facts.Node, a pci.Address) []string {
	var who, seen []string
	for _, h := range n.HoldersOf(a) {
		key := h.Process.Container
		if key == "" {
			key = fmt.Sprint(h.Process.PID)
		}
		if !slices.Contains(seen, key) {
			seen = append(seen, key)
			who = append(who, h.Process.String())
		}
	}
	return who
}

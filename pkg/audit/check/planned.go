package check

import (
	"errors"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// WaiversFile is the node's file of accepted failures, which a plugin without flags reads.
const WaiversFile = "etc/kata-vfio/waivers.yaml"

// DefaultEnforcement returns the enforcement of a plugin without flags: all checks that can keep a function from
// claims, the profile for untrusted tenants, severity high, and the waivers of the node's own file. If that file
// can't be read, no failure is accepted, and the error says why.
func DefaultEnforcement(n *facts.Node, all []Check, today string) (Enforcement, error) {
	g := Enforcement{Profile: finding.Profiles()[0], Counts: rule.High, Today: today, Checks: Checks(all)}
	file := n.Read(WaiversFile)
	if file.Status == facts.Absent {
		return g, nil
	}
	const unread = "the waivers could not be read, so that no failed check is accepted: %s: %w"
	if !file.OK() {
		return g, fmt.Errorf(unread, file.Path, errors.New(file.Err))
	}
	var err error
	if g.Waivers, err = finding.ParseWaivers([]byte(file.Value), rule.IDs(finding.Rules(all))); err != nil {
		return g, fmt.Errorf(unread, file.Path, err)
	}
	return g, nil
}

// Planned returns the node as its plugin plans with it. The failed checks are those that the plugin has recorded since the node's
// start, or else those of the default enforcement. unread is [facts.Node.Planned]'s.
func Planned(n *facts.Node, all []Check, today string) (node plan.Node, unread []string) {
	g, err := DefaultEnforcement(n, all, today)
	node, unread = g.Planned(n)
	if err != nil {
		unread = append(unread, err.Error())
	}
	return node, unread
}

// Planned is [Planned] with the failed checks of this enforcement.
func (g *Enforcement) Planned(n *facts.Node) (node plan.Node, unread []string) {
	node, unread = n.Planned()
	if !n.PluginSpoke() {
		node.Failing = g.Judge(n).IDs
	}
	return node, unread
}

package check

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// resetChecks returns the checks of group RST: nothing of a tenant is left in a
// function when the next one gets it.
func resetChecks() []Check {
	return slices.Concat(resetMethodChecks(), resetProofChecks(), resetROMChecks())
}

func resetMethodChecks() []Check {
	methods := "grep -H . /sys/bus/pci/devices/*/reset_method"
	return []Check{
		{Rule: finding.Rule{
			ID: "RST-001", Title: "Functions that are given away can be reset", Severity: isolation.Critical, Cheap: true,
			Why:     "VFIO opens a device even where its reset fails, so that the next tenant finds what the last one left",
			Fix:     isolation.Fix(isolation.NoReset),
			Verify:  methods,
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci", "Linux: drivers/vfio/pci/vfio_pci_core.c vfio_pci_core_enable"},
		}, Judge: canReset},
		{Rule: finding.Rule{
			ID: "RST-002", Title: "The reset of a function clears more than its power state", Severity: isolation.High, Cheap: true,
			Why:     "a power cycle of the function (D3hot to D0) need not clear its memory, and does nothing where it declares so (No_Soft_Reset)",
			Fix:     isolation.Fix(isolation.WeakReset),
			Verify:  methods,
			Sources: []string{"Linux: drivers/pci/pci.c pci_pm_reset"},
		}, Judge: strongReset},
		{Rule: finding.Rule{
			ID: "RST-003", Title: "What is reset together is one tenant's", Severity: isolation.High, Cheap: true,
			Why:     "a reset of a bus takes all functions below its bridge: it hits the neighbour, or is left out for the neighbour's sake",
			Fix:     "give functions with FLR to different tenants, and those without it below one bridge to one tenant",
			Verify:  methods,
			Sources: []string{"Linux: drivers/vfio/pci/vfio_pci_core.c vfio_pci_dev_set_hot_reset"},
		}, Judge: resetSetsApart},
		{Rule: finding.Rule{
			ID: "RST-013", Title: "Links run at their full width", Severity: isolation.Low,
			Why:    "a link that lost lanes is a card that sits badly, fails, or was tampered with",
			Fix:    "reseat or replace the card, and look for AER errors",
			Verify: "grep -H . /sys/bus/pci/devices/*/{current,max}_link_width",
		}, Judge: linksAreWide},
	}
}

// reasonOf returns what the verdict on a function says under a code.
func reasonOf(reasons []isolation.Reason, code isolation.Code) (*isolation.Reason, bool) {
	i := slices.IndexFunc(reasons, func(r isolation.Reason) bool { return r.Code == code })
	if i < 0 {
		return nil, false
	}
	return &reasons[i], true
}

func canReset(n *facts.Node) []finding.Finding {
	said := each(n, func(f *device.Function) []finding.Finding {
		v := n.Verdict(f)
		if r, ok := reasonOf(v.Reasons, isolation.NoReset); ok {
			return []finding.Finding{reasonFinding(f, r)}
		}
		return nil
	})
	return showing(said, assignable(n), one(resetMethods))
}

func strongReset(n *facts.Node) []finding.Finding {
	said := each(n, func(f *device.Function) []finding.Finding {
		v := n.Verdict(f)
		r, weak := reasonOf(v.Notes, isolation.WeakReset)
		if !weak {
			return nil
		}
		said := []finding.Finding{reasonFinding(f, r)}
		if f.Capabilities.Power != nil && f.Capabilities.Power.NoSoftReset {
			said[0].Text += ", and the function declares that it does not clear even its registers (No_Soft_Reset)"
		}
		return said
	})
	return showing(said, assignable(n), one(resetMethods))
}

// resetSetsApart looks at functions that can only be reset with all that is below
// their bridge.
func resetSetsApart(n *facts.Node) []finding.Finding {
	said := each(n, func(f *device.Function) []finding.Finding {
		own := slices.ContainsFunc(f.ResetMethods, func(m string) bool { return m != isolation.Bus && m != isolation.CXLBus })
		tenants := n.TenantsOf(f.Address)
		if own || len(f.Upstream) == 0 || len(tenants) == 0 {
			return nil
		}
		for _, g := range below(n, f) {
			if others := n.TenantsOf(g.Address); len(others) > 0 && !slices.Equal(others, tenants) {
				said := fail(fmt.Sprintf("%s of %s can only be reset together with %s of %s", f.Address, tenants[0], g.Address, others[0]),
					resetMethods(f), resetMethods(g), n.Journal())
				said[0].Devices = []pci.Address{f.Address, g.Address}
				return said
			}
		}
		return nil
	})
	return showing(said, assignable(n), one(resetMethods))
}

// below returns the other functions below the bridge right above f.
func below(n *facts.Node, f *device.Function) []*device.Function {
	bridge := f.Upstream[len(f.Upstream)-1]
	var all []*device.Function
	for i := range n.Snapshot.Functions {
		g := &n.Snapshot.Functions[i]
		if g.Address != f.Address && slices.Contains(g.Upstream, bridge) {
			all = append(all, g)
		}
	}
	return all
}

// linksAreWide compares lanes and not speeds: a card that has nothing to do slows
// its link down by itself. A slot may be narrower than its card.
func linksAreWide(n *facts.Node) []finding.Finding {
	said := each(n, func(f *device.Function) []finding.Finding {
		const unknownWidth = 255
		if f.Link == nil || f.Link.Width <= 0 || f.Link.Width >= unknownWidth || f.VF != nil {
			return nil
		}
		most := f.Link.MaxWidth
		if len(f.Upstream) > 0 {
			port, ok := n.Snapshot.Function(f.Upstream[len(f.Upstream)-1])
			if !ok || port.Link == nil || port.Link.MaxWidth == 0 {
				return nil
			}
			most = min(most, port.Link.MaxWidth)
		}
		if f.Link.Width >= most || most >= unknownWidth {
			return nil
		}
		return fail(fmt.Sprintf("%s runs with %d of %d lanes", f.Address, f.Link.Width, most), widths(f)...)
	})
	return showing(said, assignable(n), widths)
}

// widths are how many lanes a function's link has, and may have. A VF has none.
func widths(f *device.Function) []facts.Fact {
	if f.Link == nil {
		return []facts.Fact{nowhere("/sys/bus/pci/devices/" + f.Address.String() + "/current_link_width")}
	}
	return []facts.Fact{
		attribute(f.Address, "current_link_width", strconv.Itoa(f.Link.Width)), attribute(f.Address, "max_link_width", strconv.Itoa(f.Link.MaxWidth)),
	}
}

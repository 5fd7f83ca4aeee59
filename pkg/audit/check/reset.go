package check

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// resetChecks returns the checks of group RST: no data of a tenant remains in a function for the next one.
func resetChecks() []Check {
	return slices.Concat(resetMethodChecks(), resetProofChecks())
}

// resetMethodChecks are about how functions are reset.
func resetMethodChecks() []Check {
	return []Check{
		{ID: "RST-001", Judge: canReset},
		{ID: "RST-002", Judge: strongReset},
		{ID: "RST-003", Judge: resetSetsApart},
		{ID: "RST-013", Judge: linksAreWide},
	}
}

// findReason returns the reason with the code.
func findReason(reasons []rule.Verdict, code rule.Code) (*rule.Verdict, bool) {
	i := slices.IndexFunc(reasons, func(r rule.Verdict) bool { return r.Code == code })
	if i < 0 {
		return nil, false
	}
	return &reasons[i], true
}

func canReset(n *facts.Node) Answer {
	return each(n, one(resetMethods), func(f *device.Function) Answer {
		if r, ok := findReason(n.Judgment(f).Reasons, rule.NoReset); ok {
			return Answer{reasonFinding(f, r)}
		}
		return nil
	})
}

func strongReset(n *facts.Node) Answer {
	return each(n, one(resetMethods), func(f *device.Function) Answer {
		v := n.Judgment(f)
		r, weak := findReason(v.Notes, rule.WeakReset)
		if !weak && v.Reset != nil && isolation.IsWeak(f.Vendor, f.VF != nil, v.Reset.Method) {
			return ofVGPU(f, v.Reset)
		}
		if !weak {
			return foreignReset(n, f, v.Reset)
		}
		said := reasonFinding(f, r)
		// A function with this bit keeps its registers from D3hot to D0 (PCI_PM_CTRL_NO_SOFT_RESET in
		// include/uapi/linux/pci_regs.h).
		if f.Capabilities.Power != nil && f.Capabilities.Power.NoSoftReset {
			said.Text += ", which does not even clear registers (No_Soft_Reset)"
		}
		return Answer{said}
	})
}

// ofVGPU leaves the reset of a vGPU to a person, because no public document of NVIDIA says what it clears.
func ofVGPU(f *device.Function, r *isolation.Reset) Answer {
	text := fmt.Sprintf("NVIDIA publishes nothing on whether the reset %s of VF %s, or the end of its vGPU, clears the memory of the vGPU", r.Method, f.Address)
	return say(finding.Manual, text, []facts.Fact{resetMethods(f)}).
		fix("ask NVIDIA, test with your driver that a tenant can't read what the last one left, have the VFs sanitized between tenants, or give tenants whole GPUs")
}

// foreignReset leaves a device-specific reset that does not come from the kernel itself to a person. The kernel has none for GPUs
// of AMD (drivers/pci/quirks.c pci_dev_reset_methods): module vendor_reset puts its own in place of pci_dev_specific_reset
// (gnif/vendor-reset, src/hooks.c).
func foreignReset(n *facts.Node, f *device.Function, best *isolation.Reset) Answer {
	if best == nil || best.Method != isolation.DeviceSpecific || f.Vendor != pci.VendorAMD || f.Type != device.GPU {
		return nil
	}
	modules := n.Read("proc/modules")
	from := "a module from outside the kernel, or a patched kernel"
	loaded := strings.Split(modules.Value, "\n")
	modules.Value = ""
	if i := slices.IndexFunc(loaded, func(line string) bool { return strings.HasPrefix(line, "vendor_reset ") }); i >= 0 {
		modules.Value = loaded[i]
		from = "module vendor_reset, which is not the kernel's"
	}
	return say(finding.Manual, fmt.Sprintf("the reset device_specific of %s is from %s: no file shows what it clears", f.Address, from), []facts.Fact{resetMethods(f), modules}).
		fix("check that the module supports this model, load it at each boot before the plugin starts, and test that the reset clears what a tenant leaves")
}

// resetSetsApart checks functions that can only be reset with all functions below their bridge.
func resetSetsApart(n *facts.Node) Answer {
	return each(n, one(resetMethods), func(f *device.Function) Answer {
		own := slices.ContainsFunc(f.ResetMethods, func(m string) bool { return m != isolation.Bus && m != isolation.CXLBus })
		tenants := n.Owners(f.Address)
		if own || len(f.Upstream) == 0 || len(tenants) == 0 {
			return nil
		}
		// The last bridge is the nearest one. A bus reset goes through it and reaches all functions below.
		bridge := f.Upstream[len(f.Upstream)-1]
		for _, g := range functionsWhere(n, func(g *device.Function) bool { return g != f && slices.Contains(g.Upstream, bridge) }) {
			if others := n.Owners(g.Address); len(others) > 0 && !slices.Equal(others, tenants) {
				return fail(fmt.Sprintf("%s of %s can be reset only together with %s of %s", f.Address, tenants[0], g.Address, others[0]),
					resetMethods(f), resetMethods(g), n.Journal()).reaching(f.Address, g.Address)
			}
		}
		return nil
	})
}

// linksAreWide compares the numbers of lanes, not the speeds, because an idle card lowers the speed of its link. A slot may have
// fewer lanes than its card.
func linksAreWide(n *facts.Node) Answer {
	return each(n, widths, func(f *device.Function) Answer {
		// PCIE_LNK_WIDTH_UNKNOWN in include/linux/pci.h.
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
}

// widths returns the lanes of a function's link, and its maximum. A VF has no link of its own.
func widths(f *device.Function) []facts.Fact {
	if f.Link == nil {
		return []facts.Fact{nowhere("/sys/bus/pci/devices/" + f.Address.String() + "/current_link_width")}
	}
	return []facts.Fact{
		attribute(f.Address, "current_link_width", strconv.Itoa(f.Link.Width)), attribute(f.Address, "max_link_width", strconv.Itoa(f.Link.MaxWidth)),
	}
}

func functionsAnswer(n *facts.Node) Answer {
	head := func(f *device.Function, value string) facts.Fact {
		return facts.Fact{Path: "/sys/bus/pci/devices/" + f.Address.String() + "/config", Value: value, How: "config"}
	}
	ids := func(f *device.Function) facts.Fact {
		return head(f, fmt.Sprintf("%04x:%04x", uint16(f.Vendor), uint16(f.Device)))
	}
	return each(n, one(ids), func(f *device.Function) Answer {
		if !f.ConfigDead {
			return nil
		}
		text := f.Address.String() + " does not answer"
		if f.D3cold {
			text = isolation.DeadText(f)
		}
		return advised(fail(text, head(f, "all ones")), n.Judgment(f).Reasons, rule.ConfigSpaceDead)
	})
}

func busResetGPUs(n *facts.Node) Answer {
	return judgeRecords(n, "how GPUs are reset", func(rec *journal.Record) Answer {
		return over(rec.Plan.Devices, func(d plan.Device) Answer {
			if fn, ok := rec.Plan.Function(d.Address); !ok || !isLateNVIDIA(fn) || resetsBus(&d) {
				return nil
			}
			return fail(fmt.Sprintf("%s of %s is reset by %s", d.Address, claimName(rec), describeMethods(&d)), recordFact(rec, describeMethods(&d))).at(d.Address)
		})
	})
}

func resetsBus(d *plan.Device) bool {
	return slices.ContainsFunc(d.Resets, func(r isolation.Reset) bool {
		return slices.Contains(r.Set, d.Address) && (r.Method == isolation.Bus || r.Method == isolation.HotReset)
	})
}

func describeMethods(d *plan.Device) string {
	var methods []string
	for _, r := range d.Resets {
		methods = append(methods, r.Method)
	}
	return cmp.Or(strings.Join(methods, " "), "nothing: its class waives resets")
}

// isLateNVIDIA reports whether a function is a data center GPU of Hopper or
// Blackwell, by the ranges of ids in pci.ids: GH100 23xx, GB100 29xx, GB110 31xx.
func isLateNVIDIA(fn *plan.Function) bool {
	chip := fn.Device >> 8
	return fn.Vendor == pci.VendorNVIDIA && (chip == 0x23 || chip == 0x29 || chip == 0x31) && fn.PF == nil
}

// byHand leaves a property of assignable functions that no file shows to a person.
func byHand(kind device.Type, what string) func(*facts.Node) Answer {
	return func(n *facts.Node) Answer {
		devices := slices.DeleteFunc(assignable(n), func(f *device.Function) bool { return f.Type != kind })
		if len(devices) == 0 {
			return notApplicable("none is assignable")
		}
		return say(finding.Manual, what, nil).reaching(addresses(devices)...)
	}
}

// noOptionROM checks the functions on the command lines of the running VMs.
func noOptionROM(n *facts.Node) Answer {
	var seen []facts.Fact
	vmms, looked := runtimes.VMMs(n), 0
	if hidden := unseen(n, len(vmms), "which functions VMs have"); len(hidden) > 0 && anyOnVFIO(n) {
		return hidden
	}
	found := over(vmms, func(v runtimes.VMM) Answer {
		return over(v.Passed(), func(p runtimes.Passed) Answer {
			looked++
			a, err := p.Function()
			if err != nil {
				return unknown(fmt.Sprintf("which function %q is, which the VM of process %d has", p.Address, v.PID), v.Cmdline)
			}
			f, ok := n.Snapshot.Function(a)
			if !ok {
				resource := facts.Fact{Path: "/" + path.Join(sysfs.FunctionPath(a), "resource"), How: "read", Status: facts.Absent}
				return unknown("whether "+a.String()+" has an option ROM", resource)
			}
			resource := attribute(a, "resource", romPath(f))
			seen = append(seen, resource)
			if !p.WithROM || f.ROM == 0 {
				return nil
			}
			return fail(fmt.Sprintf("the VM of process %d sees the option ROM of %s", v.PID, a), resource, v.Cmdline).on(f)
		})
	})
	return orPassWith(found, looked, "function", "no running VM has a function", seen)
}

func romPath(f *device.Function) string {
	if f.ROM == 0 {
		return "no option ROM"
	}
	return fmt.Sprintf("option ROM of %d bytes", f.ROM)
}

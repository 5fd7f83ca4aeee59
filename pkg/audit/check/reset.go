package check

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// resetChecks returns the checks of group RST: nothing of a tenant is left in a
// function when the next one gets it.
func resetChecks() []Check {
	return slices.Concat(resetMethodChecks(), resetProofChecks())
}

// resetMethodChecks are about how functions are reset.
func resetMethodChecks() []Check {
	methods := "grep -H . /sys/bus/pci/devices/*/reset_method"
	return []Check{
		{Rule: finding.Rule{
			ID: "RST-001", Title: "Ensure that assignable functions can be reset", Severity: isolation.Critical, Cheap: true,
			Why:     "VFIO opens a device even if its reset fails. The next tenant would find the previous one's data.",
			Fix:     isolation.Fix(isolation.NoReset),
			Verify:  methods,
			Sources: []string{"Linux: Documentation/ABI/testing/sysfs-bus-pci", "Linux: drivers/vfio/pci/vfio_pci_core.c vfio_pci_core_enable"},
		}, Judge: canReset},
		{Rule: finding.Rule{
			ID: "RST-002", Title: "Ensure that a reset clears more than the power state", Severity: isolation.High, Cheap: true,
			Why:     "A power cycle (D3hot to D0) may not clear memory, and does nothing on a function with No_Soft_Reset.",
			Fix:     isolation.Fix(isolation.WeakReset),
			Verify:  methods,
			Sources: []string{"Linux: drivers/pci/pci.c pci_pm_reset", "Linux: drivers/pci/quirks.c pci_dev_reset_methods", "gnif/vendor-reset: src/hooks.c"},
		}, Judge: strongReset},
		{Rule: finding.Rule{
			ID: "RST-003", Title: "Ensure that functions that are reset together belong to one tenant", Severity: isolation.High, Cheap: true,
			Why:     "A bus reset affects all functions below its bridge: it disrupts the neighbor, or is skipped for it.",
			Fix:     "give functions with FLR to different tenants, and those without FLR below one bridge to one tenant",
			Verify:  methods,
			Sources: []string{"Linux: drivers/vfio/pci/vfio_pci_core.c vfio_pci_dev_set_hot_reset"},
		}, Judge: resetSetsApart},
		{Rule: finding.Rule{
			ID: "RST-013", Title: "Ensure that links run at full width", Severity: isolation.Low,
			Why:    "A narrow link indicates a badly seated, failing or manipulated card.",
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

func canReset(n *facts.Node) Answer {
	return each(n, one(resetMethods), func(f *device.Function) Answer {
		if r, ok := reasonOf(n.Verdict(f).Reasons, isolation.NoReset); ok {
			return Answer{reasonFinding(f, r)}
		}
		return nil
	})
}

func strongReset(n *facts.Node) Answer {
	return each(n, one(resetMethods), func(f *device.Function) Answer {
		v := n.Verdict(f)
		r, weak := reasonOf(v.Notes, isolation.WeakReset)
		if !weak {
			return foreignReset(n, f, v.Reset)
		}
		said := reasonFinding(f, r)
		if f.Capabilities.Power != nil && f.Capabilities.Power.NoSoftReset {
			said.Text += ", which does not even clear registers (No_Soft_Reset)"
		}
		return Answer{said}
	})
}

// foreignReset has a person look at a device-specific reset that is not the kernel's. The kernel has none for GPUs of AMD
// (drivers/pci/quirks.c pci_dev_reset_methods): module vendor_reset puts its own in place of pci_dev_specific_reset
// (gnif/vendor-reset, src/hooks.c).
func foreignReset(n *facts.Node, f *device.Function, best *isolation.Reset) Answer {
	if best == nil || best.Method != isolation.DeviceSpecific || f.Vendor != vendorAMD || f.Type != device.GPU {
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

// resetSetsApart looks at functions that can only be reset with all that is below
// their bridge.
func resetSetsApart(n *facts.Node) Answer {
	return each(n, one(resetMethods), func(f *device.Function) Answer {
		own := slices.ContainsFunc(f.ResetMethods, func(m string) bool { return m != isolation.Bus && m != isolation.CXLBus })
		tenants := n.TenantsOf(f.Address)
		if own || len(f.Upstream) == 0 || len(tenants) == 0 {
			return nil
		}
		bridge := f.Upstream[len(f.Upstream)-1]
		for _, g := range functionsWhere(n, func(g *device.Function) bool { return g != f && slices.Contains(g.Upstream, bridge) }) {
			if others := n.TenantsOf(g.Address); len(others) > 0 && !slices.Equal(others, tenants) {
				return fail(fmt.Sprintf("%s of %s can be reset only together with %s of %s", f.Address, tenants[0], g.Address, others[0]),
					resetMethods(f), resetMethods(g), n.Journal()).reaching(f.Address, g.Address)
			}
		}
		return nil
	})
}

// linksAreWide compares lanes and not speeds: a card that has nothing to do slows
// its link down by itself. A slot may be narrower than its card.
func linksAreWide(n *facts.Node) Answer {
	return each(n, widths, func(f *device.Function) Answer {
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

// widths are how many lanes a function's link has, and may have. A VF has none.
func widths(f *device.Function) []facts.Fact {
	if f.Link == nil {
		return []facts.Fact{nowhere("/sys/bus/pci/devices/" + f.Address.String() + "/current_link_width")}
	}
	return []facts.Fact{
		attribute(f.Address, "current_link_width", strconv.Itoa(f.Link.Width)), attribute(f.Address, "max_link_width", strconv.Itoa(f.Link.MaxWidth)),
	}
}

// resetProofChecks are about what a reset leaves, and proves.
func resetProofChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RST-004", Title: "Ensure that the reset of a function is proven before a tenant gets it, and its next reset can be proven", Severity: isolation.Critical,
			Why:    "Without a reset, the next tenant gets the previous one's memory, code and settings.",
			Fix:    "delete the pod, so that the function is reset; require resets in its DeviceClass",
			Verify: "ls /var/lib/kata-vfio/journal/unclean; grep -lE '\"proofs\"|\"baseline\"' /var/lib/kata-vfio/journal/*.json",
		}, Judge: provenClean},
		{Rule: finding.Rule{
			ID: "RST-005", Title: "Ensure that a function whose reset failed is out of use", Severity: isolation.Critical,
			Why:    "The next tenant would get what the previous one left.",
			Fix:    "restart the plugin, which removes it from its slice; if resets keep failing, reboot the node or replace the device",
			Verify: "grep -l '\"quarantined\"' /var/lib/kata-vfio/journal/*.json; cat /run/kata-vfio/published.json",
		}, Judge: quarantineHolds},
		{Rule: finding.Rule{
			ID: "RST-006", Title: "Ensure that NVIDIA Hopper and later GPUs use the bus reset", Severity: isolation.High,
			Why:     "On an H200, FLR kept the security processor's session state. A bus reset clears it.",
			Fix:     "`echo bus > /sys/bus/pci/devices/<address>/reset_method` at boot, before claims are prepared",
			Verify:  "grep -H . /sys/bus/pci/devices/*/reset_method",
			Sources: []string{"Dstack-TEE/dstack pull request 1048"},
		}, Judge: busResetGPUs},
		{Rule: finding.Rule{
			ID: "RST-007", Title: "Ensure that GPU memory is cleared between tenants", Severity: isolation.High, Static: true,
			Why:     "A reset may not clear GPU memory. Tenants have read data of others before.",
			Fix:     "use the vendor's means between tenants: confidential mode, or NVIDIA's gpu-admin-tools (--clear-memory)",
			Sources: []string{"CVE-2023-4969", "NVIDIA: gpu-admin-tools README"},
		}, Judge: byHand(device.GPU, "no file shows whether GPU memory is cleared: ask the node's operator for the procedure and its log")},
		{Rule: finding.Rule{
			ID: "RST-008", Title: "Ensure that assignable functions answer", Severity: isolation.High, Cheap: true,
			Why:     "A function that reads all ones dropped off the bus. Nothing about it is proven.",
			Fix:     isolation.Fix(isolation.Dead),
			Verify:  "lspci -x -s <address>",
			Sources: []string{"amd/MxGPU issue 25"},
		}, Judge: functionsAnswer},
		{Rule: finding.Rule{
			ID: "RST-010", Title: "Ensure that NVMe drives are sanitized between tenants", Severity: isolation.High, Static: true,
			Why:    "No reset clears stored data.",
			Fix:    "run `nvme sanitize` or `nvme format --ses` between tenants and keep its log, or give tenants volumes instead of drives",
			Verify: "nvme sanitize-log <drive>",
		}, Judge: byHand(device.NVMe, "no file shows whether drives are sanitized: ask the node's operator for the procedure and its log")},
		{Rule: finding.Rule{
			ID: "RST-012", Title: "Ensure that VMs don't see the option ROM of their functions", Severity: isolation.Medium,
			Why:     "The VM's firmware runs the ROM. Code that a tenant writes to the device's flash survives every reset.",
			Fix:     "start the VMM with `rombar=0` or an empty `romfile=` for the device. Kata's Go runtime can't: use cards that accept signed firmware only, and guest firmware with Secure Boot, and waive this",
			Verify:  "tr '\\0' '\\n' < /proc/<VMM>/cmdline | grep vfio-pci; sed -n 7p /sys/bus/pci/devices/<address>/resource",
			Sources: []string{"QEMU: hw/vfio/pci.c vfio_pci_size_rom", "QEMU: hw/pci/pci.c rombar, romfile", "Kata: src/runtime/pkg/govmm/qemu/qemu.go VFIODevice.QemuParams"},
		}, Judge: noOptionROM},
	}
}

// judgeRecords judges each claim's record, and adds those that can't be read.
func judgeRecords(n *facts.Node, what string, wrong func(*journal.Record) Answer) Answer {
	records, dir := n.Records(), n.Journal()
	found := over(records, func(rec *journal.Record) Answer { return wrong(rec).object(claimName(rec)) })
	found = append(found, over(n.Damaged, func(file facts.Fact) Answer { return unknown(what, file) })...)
	if len(found) == 0 && !dir.Known() {
		return unknown(what, dir)
	}
	if len(records) == 0 {
		return found.or(notApplicable("no claim is prepared", dir))
	}
	return showing(found.or(pass(count(len(records), "claim"), dir)), records, one(stateOf))
}

// provenClean reads what the journal knows: marks of functions without a proven
// reset, the proofs themselves, and fingerprints to prove the next by. What was
// before is for the ledger to say.
func provenClean(n *facts.Node) Answer {
	marks, dir := n.NeedsReset()
	said := judgeRecords(n, "whether functions were reset", func(rec *journal.Record) Answer {
		found := over(rec.Plan.Reachable(), func(a pci.Address) Answer { return cleanliness(n, rec, a, marks).at(a) })
		return append(found, badProofs(rec)...)
	})
	if !dir.Known() {
		return append(said, unknown("which functions need a reset", dir)...)
	}
	return said
}

// cleanliness says what is wrong with one function in a claim's hands, nil for
// nothing.
func cleanliness(n *facts.Node, rec *journal.Record, a pci.Address, marks []facts.ResetMark) Answer {
	if !n.IsThisBoot(rec) {
		return nil // nobody has it by that record; that it is still there is another check's
	}
	mark, unclean := markOf(n, rec, a, marks)
	hasProof := slices.ContainsFunc(rec.Proofs, func(p isolation.Proof) bool { return slices.Contains(p.Set, a) })
	measured := slices.ContainsFunc(rec.Baseline, func(fp isolation.Fingerprint) bool { return fp.Address == a })
	switch {
	case rec.State == journal.Prepared && unclean && !hasProof:
		return fail(fmt.Sprintf("%s has %s without a proven reset since its last tenant", claimName(rec), a), mark)
	case rec.State == journal.Prepared && !measured:
		return fail(fmt.Sprintf("%s has no fingerprint from before %s: its next reset can't be proven", a, claimName(rec)), recordFact(rec, "no baseline"))
	case rec.State == journal.Cleaned && !unclean && !hasProof:
		return fail(fmt.Sprintf("%s counts as clean after %s without a proven reset", a, claimName(rec)), recordFact(rec, "cleaned without proof"))
	}
	return nil
}

// markOf returns the file of the mark that a record's function has, whatever the address in its name is.
func markOf(n *facts.Node, rec *journal.Record, a pci.Address, marks []facts.ResetMark) (facts.Fact, bool) {
	var id device.Identity
	if fn, ok := rec.Plan.Function(a); ok {
		id = fn.Identity
	}
	for i := range marks {
		if marks[i].Mark.Concerns(a, id, n.Snapshot) {
			return marks[i].File, true
		}
	}
	return facts.Fact{}, false
}

// badProofs returns the proofs that prove nothing.
func badProofs(rec *journal.Record) Answer {
	return over(rec.Proofs, func(p isolation.Proof) Answer {
		return over(p.Set, func(a pci.Address) Answer {
			why := disproof(&p, a)
			if why == "" {
				return nil
			}
			return fail("the reset is not proven: "+why, recordFact(rec, fmt.Sprintf("reset by %s in %d ms", p.Method, p.Milliseconds))).at(a)
		})
	})
}

func disproof(p *isolation.Proof, a pci.Address) string {
	is := func(fp isolation.Fingerprint) bool { return fp.Address == a }
	before, after := slices.IndexFunc(p.Before, is), slices.IndexFunc(p.After, is)
	if before < 0 || after < 0 {
		return fmt.Sprintf("no fingerprints of %s", a)
	}
	return isolation.Compare(p.Before[before], p.After[after])
}

// quarantineHolds looks at functions that a failed reset has left.
func quarantineHolds(n *facts.Node) Answer {
	return judgeRecords(n, "which resets failed", func(rec *journal.Record) Answer {
		if rec.State != journal.Quarantined {
			return nil
		}
		return over(rec.Plan.Reachable(), func(a pci.Address) Answer {
			why, seen := inUse(n, rec, a)
			if why == "" {
				return nil
			}
			return fail(fmt.Sprintf("the reset of %s failed (%s), but %s", a, cmp.Or(rec.Reason, "no reason recorded"), why), seen, stateOf(rec)).at(a)
		})
	})
}

// inUse says how a function of a quarantine is in use all the same.
func inUse(n *facts.Node, rec *journal.Record, a pci.Address) (string, facts.Fact) {
	if offered, seen := n.IsOffered(a); offered {
		return "it is still published", seen
	}
	if claims := preparedFor(n, a); len(claims) > 0 {
		return "it is prepared for " + claimName(claims[0]), stateOf(claims[0])
	}
	if held := n.HoldersOf(a); len(held) > 0 {
		return "it is held by " + held[0].Process.String(), held[0].Fact()
	}
	f, ok := n.Snapshot.Function(a)
	if ok && n.IsThisBoot(rec) && f.Driver != "" && !onVFIODriver(f) {
		return "the node uses it with driver " + f.Driver, driverFact(f)
	}
	return "", facts.Fact{}
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
		return advised(fail(text, head(f, "all ones")), n.Verdict(f).Reasons, isolation.Dead)
	})
}

func busResetGPUs(n *facts.Node) Answer {
	return judgeRecords(n, "how GPUs are reset", func(rec *journal.Record) Answer {
		return over(rec.Plan.Devices, func(d plan.Device) Answer {
			if fn, ok := rec.Plan.Function(d.Address); !ok || !isLateNVIDIA(fn) || resetsBus(&d) {
				return nil
			}
			return fail(fmt.Sprintf("%s of %s is reset by %s", d.Address, claimName(rec), methodsOf(&d)), recordFact(rec, methodsOf(&d))).at(d.Address)
		})
	})
}

func resetsBus(d *plan.Device) bool {
	return slices.ContainsFunc(d.Resets, func(r isolation.Reset) bool {
		return slices.Contains(r.Set, d.Address) && (r.Method == isolation.Bus || r.Method == isolation.HotReset)
	})
}

func methodsOf(d *plan.Device) string {
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
	return fn.Vendor == 0x10de && (chip == 0x23 || chip == 0x29 || chip == 0x31) && fn.PF == nil
}

// byHand asks a person to check what no file shows of assignable functions.
func byHand(kind device.Type, what string) func(*facts.Node) Answer {
	return func(n *facts.Node) Answer {
		devices := slices.DeleteFunc(assignable(n), func(f *device.Function) bool { return f.Type != kind })
		if len(devices) == 0 {
			return notApplicable("none is assignable")
		}
		return say(finding.Manual, what, nil).reaching(addresses(devices)...)
	}
}

// noOptionROM looks at what the command lines of the running VMs give them.
func noOptionROM(n *facts.Node) Answer {
	var seen []facts.Fact
	looked := 0
	found := over(runtimes.VMMs(n), func(v runtimes.VMM) Answer {
		return over(v.Passed(), func(p runtimes.Passed) Answer {
			a, err := pci.ParseAddress(p.Address)
			if err != nil {
				return nil // not of this node's domain 0, or not an address: nothing to look at
			}
			looked++
			f, ok := n.Snapshot.Function(a)
			if !ok {
				resource := facts.Fact{Path: "/" + path.Join(sysfs.FunctionPath(a), "resource"), How: "read", Status: facts.Absent}
				return unknown("whether "+a.String()+" has an option ROM", resource)
			}
			resource := attribute(a, "resource", romOf(f))
			seen = append(seen, resource)
			if !p.WithROM || f.ROM == 0 {
				return nil
			}
			return fail(fmt.Sprintf("the VM of process %d sees the option ROM of %s", v.PID, a), resource, v.Cmdline).on(f)
		})
	})
	return orPassWith(found, looked, "function", "no running VM has a function", seen)
}

func romOf(f *device.Function) string {
	if f.ROM == 0 {
		return "no option ROM"
	}
	return fmt.Sprintf("option ROM of %d bytes", f.ROM)
}

package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// vfioHolderChecks are about the processes that hold or reach devices, or are permitted to.
func vfioHolderChecks() []Check {
	return []Check{
		{ID: "VFIO-009", Judge: holdersAreVMMs},
		{ID: "VFIO-010", Judge: oneSandbox},
		{ID: "VFIO-011", Judge: heldWhilePrepared},
		{ID: "VFIO-012", Judge: holdersRunVMs},
		{ID: "VFIO-013", Judge: registersUnmapped},
		{ID: "VFIO-017", Judge: narrowRules},
	}
}

// judgeHoldings judges each open handle, and adds an unknown finding for unreadable processes.
func judgeHoldings(n *facts.Node, what string, wrong func(*facts.OpenHandle) Answer) Answer {
	holdings, seen := n.Holdings()
	found := over(holdings, func(h facts.OpenHandle) Answer {
		return wrong(&h).object(processName(h.Process)).held(h.Devices).seen(h.Fact())
	})
	switch {
	case !seen.OK() && !anyOnVFIO(n) && len(found) == 0:
		return notApplicable("no function is on a VFIO driver")
	case !seen.OK():
		return append(found, unknown(what, seen)...)
	case len(holdings) == 0:
		return pass("no process has a VFIO device open", seen)
	}
	return showing(found.or(pass(count(len(holdings), "holder"))), holdings, func(h facts.OpenHandle) []facts.Fact { return []facts.Fact{h.Fact()} })
}

func anyOnVFIO(n *facts.Node) bool {
	return slices.ContainsFunc(n.Snapshot.Functions, func(f device.Function) bool { return f.OnVFIO() || f.Locked })
}

func holdersAreVMMs(n *facts.Node) Answer {
	return judgeHoldings(n, "which processes hold functions", func(h *facts.OpenHandle) Answer {
		switch {
		case len(h.Devices) == 0:
			return unnamed(n, h)
		case len(h.Claims) == 0:
			return fail(fmt.Sprintf("%s holds %s, which belongs to no claim", &h.Process.Process, h.Node))
		}
		for _, rec := range h.Claims {
			if belongs(n, h.Process, rec) {
				return nil
			}
		}
		return fail(fmt.Sprintf("%s holds %s but is not the VMM of %s", &h.Process.Process, h.Node, describeClaims(n, h.Claims)))
	})
}

// unnamed judges the holder of a device that the kernel does not name, or of a deleted node. Any claim's sandbox may legitimately
// hold such a device.
func unnamed(n *facts.Node, h *facts.OpenHandle) Answer {
	if slices.ContainsFunc(n.Records(), func(rec *journal.Record) bool { return belongs(n, h.Process, rec) }) {
		return nil
	}
	return fail(fmt.Sprintf("%s holds %s, whose function is unknown, and is not the VMM of any claim", &h.Process.Process, h.Node))
}

// belongs reports whether the process belongs to the sandbox that has the claim's functions: it is the process that the
// runtime named, a child of it (a runtime may name its shim), or in the cgroup of the sandbox or, while the journal has
// no sandbox, of the claim's pods.
func belongs(n *facts.Node, p *vfio.Usage, rec *journal.Record) bool {
	if !n.IsThisBoot(rec) {
		return false
	}
	if s := rec.Sandbox; s != nil {
		// The kernel reuses PIDs, so the start time has to match, and a child is never older than its parent.
		named := s.VMM == journal.Process{PID: p.PID, StartTime: p.StartTime}
		child := s.VMM.PID > 1 && p.Parent == s.VMM.PID && p.StartTime >= s.VMM.StartTime
		return named || child || s.ID != "" && p.Container == s.ID
	}
	for _, pod := range rec.Plan.Claim.Pods {
		if p.InPod(pod.UID) {
			return true
		}
	}
	return false
}

// describeClaims names the claims that have a function, and their VMMs or sandboxes.
func describeClaims(n *facts.Node, claims []*journal.Record) string {
	var all []string
	for _, rec := range claims {
		text := claimName(rec)
		switch {
		case !n.IsThisBoot(rec):
			text += " (prepared before the last boot)"
		case rec.Sandbox == nil:
			text += " (without a sandbox)"
		case rec.Sandbox.VMM.PID != 0:
			text += fmt.Sprintf(" (pid %d of sandbox %.12s)", rec.Sandbox.VMM.PID, rec.Sandbox.ID)
		default:
			text += fmt.Sprintf(" (sandbox %.12s)", rec.Sandbox.ID)
		}
		all = append(all, text)
	}
	return strings.Join(all, " or ")
}

func heldWhilePrepared(n *facts.Node) Answer {
	return judgeHoldings(n, "which processes hold functions", func(h *facts.OpenHandle) Answer {
		if len(h.Claims) == 0 {
			if !h.Process.VM || len(h.Devices) == 0 {
				return nil // VFIO-009 reports a holder without a claim
			}
			return fail(fmt.Sprintf("%s runs a VM with %s, which belongs to no claim", &h.Process.Process, h.Node))
		}
		for _, rec := range h.Claims {
			if n.IsThisBoot(rec) && (rec.State == journal.Prepared || !belongs(n, h.Process, rec)) {
				return nil
			}
		}
		rec := h.Claims[0]
		since := fmt.Sprintf("has been %s since %s", rec.State, rec.Since)
		if !n.IsThisBoot(rec) {
			since = "was prepared before the last boot"
		}
		return fail(fmt.Sprintf("%s holds %s of %s, which %s", &h.Process.Process, h.Node, claimName(rec), since))
	})
}

func holdersRunVMs(n *facts.Node) Answer {
	return judgeHoldings(n, "whether holders run VMs", func(h *facts.OpenHandle) Answer {
		if h.Process.VM {
			return nil
		}
		return fail(fmt.Sprintf("%s holds %s but runs no virtual machine", &h.Process.Process, h.Node))
	})
}

// oneSandbox checks both sides: the processes that hold a function, and the claims for which the journal has it.
func oneSandbox(n *facts.Node) Answer {
	_, seen := n.Holdings()
	found := over(functionsWhere(n, anyFunction), func(f *device.Function) Answer {
		var found Answer
		if claims := preparedFor(n, f.Address); len(claims) > 1 {
			found = fail(fmt.Sprintf("%s is prepared for %s", f.Address, describeClaims(n, claims)), n.Journal())
		}
		if who := listSandboxes(n, f.Address); len(who) > 1 {
			found = append(found, fail(fmt.Sprintf("%s is held by %s", f.Address, strings.Join(who, " and by ")), seen)...)
		}
		return found.on(f)
	})
	if !seen.OK() && anyOnVFIO(n) {
		return append(found, unknown("how many processes hold a function", seen)...)
	}
	prepared := functionsWhere(n, func(f *device.Function) bool { return len(preparedFor(n, f.Address)) > 0 })
	return concludeAs(found, prepared, pass(count(len(prepared), "function"), n.Journal()), "no claim is prepared", func(f *device.Function) []facts.Fact {
		var held []facts.Fact
		for _, h := range n.Holders(f.Address) {
			held = append(held, h.Fact())
		}
		return held
	})
}

// preparedFor returns the claims for which a function is prepared in this boot.
func preparedFor(n *facts.Node, a pci.Address) []*journal.Record {
	var claims []*journal.Record
	for _, t := range n.TenanciesAt(a) {
		if n.IsThisBoot(t.Record) && t.Record.State == journal.Prepared {
			claims = append(claims, t.Record)
		}
	}
	return claims
}

// listSandboxes returns the holders of the function: one process for each container, and each process outside of
// containers.
func listSandboxes(n *facts.Node, a pci.Address) []string {
	var who, seen []string
	for _, h := range n.Holders(a) {
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

func pinningBounded(n *facts.Node) Answer {
	users, seen := n.Users()
	holders := slices.DeleteFunc(slices.Clone(users), func(u vfio.Usage) bool { return !u.Holds() })
	found := over(holders, func(u vfio.Usage) Answer {
		return judgePinning(n, &u).object(processName(&u)).reaching(heldBy(n, &u)...)
	})
	if !seen.OK() && (anyOnVFIO(n) || len(holders) > 0) {
		return append(found, unknown("how much memory VMMs can pin", seen)...)
	}
	return conclude(found, holders, "VMM", "no process holds a function", func(u vfio.Usage) []facts.Fact { return boundFacts(n, &u) })
}

// judgePinning returns the fault of one holder. A holder pins its own memory, which its cgroup counts. If the cgroup has no limit,
// the process' limit of locked memory may bound it.
func judgePinning(n *facts.Node, u *vfio.Usage) Answer {
	_, bounded, limits, err := n.MemoryBound(u.Cgroup)
	if bounded {
		return nil
	}
	free, known, locks := n.LocksAtWill(u.PID)
	seen := slices.Concat(limits, locks)
	switch {
	// VFIO counts pinned memory against the limit of locked memory (vfio_lock_acct in drivers/vfio/vfio_iommu_type1.c).
	case known && !free:
		return nil
	case err != nil:
		f := unknown("how much memory "+u.String()+" can pin", seen...)
		f[0].Text = fmt.Sprintf("can't tell how much memory %s can pin: %v", u.String(), err)
		return f
	case !known:
		return unknown("how much memory "+u.String()+" can pin", seen...)
	}
	return fail(u.String()+" can pin all memory of the node: no cgroup above it has a limit", seen...)
}

// boundFacts returns the facts about the bounds of one holder.
func boundFacts(n *facts.Node, u *vfio.Usage) []facts.Fact {
	_, bounded, limits, _ := n.MemoryBound(u.Cgroup)
	if bounded {
		return limits
	}
	_, _, locks := n.LocksAtWill(u.PID)
	return append(limits, locks...)
}

// heldBy returns the functions that a process holds, by address.
func heldBy(n *facts.Node, u *vfio.Usage) []pci.Address {
	var held []pci.Address
	holdings, _ := n.Holdings()
	for i := range holdings {
		if holdings[i].Process.PID == u.PID {
			held = append(held, holdings[i].Devices...)
		}
	}
	slices.SortFunc(held, pci.Address.Compare)
	return slices.Compact(held)
}

func registersUnmapped(n *facts.Node) Answer {
	if len(assignable(n)) == 0 {
		return notApplicable(noneAssignable)
	}
	users, seen := n.Users()
	found := over(users, func(u vfio.Usage) Answer {
		return over(functionsAt(n, u.Registers), func(f *device.Function) Answer {
			if !n.IsAvailable(f.Address) {
				return nil
			}
			maps := facts.Fact{Path: "/" + sysfs.Process(u.PID, "maps"), Value: "resource file of " + f.Address.String(), How: "process", Needs: facts.OfProcesses}
			return fail(fmt.Sprintf("%s maps registers of %s", &u, f.Address), maps).on(f).object(processName(&u))
		})
	})
	if !seen.OK() {
		return append(found, unknown("which registers processes map", seen)...)
	}
	return found.or(pass("no process maps any", seen))
}

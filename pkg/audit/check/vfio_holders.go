package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/katastate"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// seeHolders is the command that shows which process holds which function.
const seeHolders = "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -E '^/proc|vfio|kvm-vm' | grep -B1 -E 'vfio|kvm-vm'"

// vfioHolderChecks are about the processes that hold or reach devices, and that may.
func vfioHolderChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "VFIO-009", Title: "Ensure that only the VMM of a claim's sandbox holds the claim's functions", Severity: isolation.Critical,
			Why:     "An open VFIO device gives control of its registers and DMA.",
			Fix:     "identify the process and end it; the function is reset before it is assigned again",
			Verify:  seeHolders,
			Sources: []string{"Linux: drivers/vfio/group.c", "Linux: Documentation/filesystems/proc.rst, VFIO Device files"},
		}, Judge: holdersAreVMMs},
		{Rule: finding.Rule{
			ID: "VFIO-010", Title: "Ensure that a function is in one sandbox only", Severity: isolation.Critical,
			Why:    "Two VMs with one device share its memory and DMA.",
			Fix:    "delete both pods, and check that each claim has its own devices before they start again",
			Verify: seeHolders,
		}, Judge: oneSandbox},
		{Rule: finding.Rule{
			ID: "VFIO-011", Title: "Ensure that a function is held only while its claim is prepared", Severity: isolation.High,
			Why:    "A VMM that outlives its claim keeps its DMA and prevents the reset.",
			Fix:    "end the process (`kill -9 PID` on the node: a VM whose shim was killed survives its pod); Unprepare then resets the function",
			Verify: seeHolders,
		}, Judge: heldWhilePrepared},
		{Rule: finding.Rule{
			ID: "VFIO-012", Title: "Ensure that every holder of a VFIO function runs a virtual machine", Severity: isolation.Critical,
			Why:     "Without a VM, only the kernel separates a container with a device from the host.",
			Fix:     "run the pod under a Kata RuntimeClass, and bind the admission policy that requires one",
			Verify:  seeHolders,
			Sources: []string{"Linux: virt/kvm/kvm_main.c kvm_dev_ioctl_create_vm"},
		}, Judge: holdersRunVMs},
		{Rule: finding.Rule{
			ID: "VFIO-013", Title: "Ensure that no process maps registers of assignable functions past VFIO", Severity: isolation.High,
			Why:     "A mapping of a sysfs resource file can control the device and survives a change of tenant.",
			Fix:     "end the process; `lockdown=integrity` on the kernel command line forbids such mappings",
			Verify:  "grep -H 'resource[0-9]' /proc/[0-9]*/maps",
			Sources: []string{"Linux: drivers/pci/pci-sysfs.c pci_mmap_resource"},
		}, Judge: registersUnmapped},
		{Rule: finding.Rule{
			ID: "VFIO-017", Title: "Ensure that no udev rule opens VFIO nodes to everybody", Severity: isolation.Medium,
			Why:     "Whoever can open a VFIO node has DMA while no VM uses the device.",
			Fix:     "leave the nodes to root, as the kernel creates them, or to the group of the VMMs",
			Verify:  "grep -rE 'vfio|iommu' /etc/udev/rules.d /usr/lib/udev/rules.d",
			Sources: []string{"udev(7)", "Linux: drivers/vfio/group.c, drivers/iommu/iommufd/main.c (modes of nodes)"},
		}, Judge: narrowRules},
	}
}

// judgeHoldings judges each open handle, and adds what could not be read.
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

// held says which functions the findings are about, the first of them above all.
func (a Answer) held(devices []pci.Address) Answer {
	if len(devices) == 0 {
		return a
	}
	return a.at(devices[0]).reaching(devices...)
}

// processName names a process: "pid 4711 (qemu)".
func processName(p *vfio.Usage) string { return fmt.Sprintf("pid %d (%s)", p.PID, p.Comm) }

func anyOnVFIO(n *facts.Node) bool {
	return slices.ContainsFunc(n.Snapshot.Functions, func(f device.Function) bool { return device.IsVFIO(f.Driver) || f.Locked })
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

// unnamed judges the holder of a device that the kernel does not name, or of a deleted node: a sandbox of any claim may hold it.
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

// describeClaims says which claims have a function, and what runs for them.
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

// claimName names a record's claim: "claim t1/train".
func claimName(rec *journal.Record) string {
	ref := rec.Plan.Claim
	if ref.Name == "" {
		return "claim " + ref.UID
	}
	return "claim " + ref.Namespace + "/" + ref.Name
}

func heldWhilePrepared(n *facts.Node) Answer {
	return judgeHoldings(n, "which processes hold functions", func(h *facts.OpenHandle) Answer {
		if len(h.Claims) == 0 {
			if !h.Process.VM || len(h.Devices) == 0 {
				return nil // a stray: VFIO-009's
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

// oneSandbox looks at both sides: whose processes hold a function, and which claims
// the journal gives it to.
func oneSandbox(n *facts.Node) Answer {
	_, seen := n.Holdings()
	found := over(functionsWhere(n, anyFunction), func(f *device.Function) Answer {
		var found Answer
		if claims := preparedFor(n, f.Address); len(claims) > 1 {
			found = fail(fmt.Sprintf("%s is prepared for %s", f.Address, describeClaims(n, claims)), n.Journal())
		}
		if who := sandboxesOf(n, f.Address); len(who) > 1 {
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
		for _, h := range n.HoldersOf(f.Address) {
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

// sandboxesOf returns the holders of the function: one process for each container, and each process outside of
// containers.
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

func pinningBounded(n *facts.Node) Answer {
	users, seen := n.Users()
	holders := slices.DeleteFunc(slices.Clone(users), func(u vfio.Usage) bool { return !u.Holds() })
	found := over(holders, func(u vfio.Usage) Answer {
		return pinningOf(n, &u).object(processName(&u)).reaching(heldBy(n, &u)...)
	})
	if !seen.OK() && (anyOnVFIO(n) || len(holders) > 0) {
		return append(found, unknown("how much memory VMMs can pin", seen)...)
	}
	return conclude(found, holders, "VMM", "no process holds a function", func(u vfio.Usage) []facts.Fact { return boundsOf(n, &u) })
}

// pinningOf returns what is wrong with one holder. What it pins is its own memory,
// which its cgroup counts; where that has no bound the limit of locked memory may be
// one.
func pinningOf(n *facts.Node, u *vfio.Usage) Answer {
	_, bounded, limits, err := n.MemoryBound(u.Cgroup)
	if bounded {
		return nil
	}
	free, known, locks := n.LocksAtWill(u.PID)
	seen := slices.Concat(limits, locks)
	switch {
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

// boundsOf returns the facts about the bounds of one holder.
func boundsOf(n *facts.Node, u *vfio.Usage) []facts.Fact {
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

// kataSandboxes is the rule that reads what Kata writes down.
const kataSandboxes = "VFIO-019"

// seeSandboxes is the command that shows Kata's own state of its sandboxes.
const seeSandboxes = "kata-vfio-audit sandboxes; ls /run/vc/sbs /run/kata"

// sandboxesHaveTheirOwn compares each function of a sandbox with the claims that
// have it. VFIO-020 reports state whose VM has ended.
func sandboxesHaveTheirOwn(n *facts.Node) Answer {
	sandboxes, asked := runtimes.Sandboxes(n)
	running := slices.DeleteFunc(slices.Clone(sandboxes), func(s runtimes.Sandbox) bool { return len(s.Devices) == 0 || isLeft(n, &s) })
	found := over(running, func(s runtimes.Sandbox) Answer {
		return over(s.Devices, func(d katastate.Device) Answer { return notItsOwn(n, &s, d.Address) })
	})
	found = append(found, damagedStates(asked)...)
	if len(running) == 0 {
		return found.or(notApplicable("no Kata sandbox has a function", asked...))
	}
	return showing(found.or(pass(count(len(running), "sandbox")+" with functions")), running, sandboxFacts)
}

// damagedStates reports each state that can't be decoded, because any function may be in it.
func damagedStates(asked []facts.Fact) Answer {
	return over(asked, func(f facts.Fact) Answer {
		if f.Known() {
			return nil
		}
		return unknown("which functions a Kata sandbox has", f).object(f.Path)
	})
}

// notItsOwn fails if the sandbox should not have the function.
func notItsOwn(n *facts.Node, s *runtimes.Sandbox, a pci.Address) Answer {
	claims := n.TenanciesOf(a)
	if slices.ContainsFunc(claims, func(t facts.Tenancy) bool { return isFor(n, t.Record, s) }) {
		return nil
	}
	owner := "no claim"
	if len(claims) > 0 {
		owner = describeClaims(n, []*journal.Record{claims[0].Record})
	}
	found := fail(fmt.Sprintf("%s has %s, which belongs to %s", sandboxName(s), a, owner), append(sandboxFacts(*s), n.Journal())...).object(sandboxName(s)).reaching(a)
	if f, ok := n.Snapshot.Function(a); ok {
		return found.on(f)
	}
	return found
}

// isFor reports whether the sandbox gets the claim's functions: the journal names it, or names no sandbox yet, and the
// claim belongs to its pod.
func isFor(n *facts.Node, rec *journal.Record, s *runtimes.Sandbox) bool {
	if !n.IsThisBoot(rec) {
		return false
	}
	if id := sandboxOf(rec); id != "" {
		return id == s.ID
	}
	ref := rec.Plan.Claim
	for _, pod := range ref.Pods {
		if s.Pod == "" || ref.Namespace == s.Namespace && pod.Name == s.Pod {
			return true
		}
	}
	return false
}

// sandboxesAgree looks for states without a VM, and for claims without a sandbox.
func sandboxesAgree(n *facts.Node) Answer {
	sandboxes, asked := runtimes.Sandboxes(n)
	if !slices.ContainsFunc(asked, facts.Fact.OK) {
		return notApplicable("the node has no Kata state", asked...)
	}
	if _, seen := n.Holdings(); !seen.OK() {
		return unknown("which VMs run", seen)
	}
	claims := slices.DeleteFunc(slices.Clone(n.Records()), func(rec *journal.Record) bool {
		return rec.State != journal.Prepared || sandboxOf(rec) == "" || !n.IsThisBoot(rec)
	})
	found := append(leftStates(n, sandboxes), over(claims, func(rec *journal.Record) Answer {
		if !isGone(n, sandboxes, rec.Sandbox.ID) {
			return nil
		}
		return fail(fmt.Sprintf("%s is prepared for sandbox %.12s, which has no Kata state, VMM or bundle", claimName(rec), rec.Sandbox.ID), n.Journal()).ofRecord(rec)
	})...)
	found = append(found, damagedStates(asked)...)
	return showing(found.or(pass(fmt.Sprintf("%s, %s", count(len(sandboxes), "sandbox"), count(len(claims), "prepared claim")), asked...)), sandboxes, sandboxFacts)
}

func leftStates(n *facts.Node, sandboxes []runtimes.Sandbox) Answer {
	return over(sandboxes, func(s runtimes.Sandbox) Answer {
		if !isLeft(n, &s) {
			return nil
		}
		var devices []pci.Address
		for _, d := range s.Devices {
			devices = append(devices, d.Address)
		}
		return fail(fmt.Sprintf("%s has Kata state, but its VMM, process %d, has ended", sandboxName(&s), s.PID), sandboxFacts(s)...).
			object(sandboxName(&s)).held(devices)
	})
}

// isLeft reports whether a state outlived the VM: it names a process that no VMM of
// the sandbox is. Without a PID the VM may just be starting. Where processes can't be
// seen nothing is left.
func isLeft(n *facts.Node, s *runtimes.Sandbox) bool {
	_, seen := n.Holdings()
	return seen.OK() && s.VMM == nil && s.PID != 0 && !n.Exists(fmt.Sprintf("proc/%d/cmdline", s.PID)).OK()
}

// isGone reports whether nothing of the sandbox is there. A bundle is there before the
// VM starts.
func isGone(n *facts.Node, sandboxes []runtimes.Sandbox, id string) bool {
	if slices.ContainsFunc(sandboxes, func(s runtimes.Sandbox) bool { return s.ID == id }) {
		return false
	}
	holdings, _ := n.Holdings()
	if slices.ContainsFunc(holdings, func(h facts.OpenHandle) bool { return h.Process.Container == id }) {
		return false
	}
	containers, _ := runtimes.Containers(n)
	return !slices.ContainsFunc(containers, func(c runtimes.Container) bool { return c.ID == id })
}

// sandboxFacts are what says that there is a sandbox.
func sandboxFacts(s runtimes.Sandbox) []facts.Fact {
	var seen []facts.Fact
	if s.File != "" {
		seen = append(seen, facts.Fact{Path: s.File, Value: inGuest(s.Devices), How: "read", Needs: "root"})
	}
	if s.VMM != nil {
		seen = append(seen, s.VMM.Cmdline)
	}
	return seen
}

// inGuest lists functions with where they are in the guest.
func inGuest(devices []katastate.Device) string {
	if len(devices) == 0 {
		return "no device"
	}
	var words []string
	for _, d := range devices {
		words = append(words, d.Address.String())
		if d.GuestPath != "" {
			words = append(words, "(guest "+d.GuestPath+")")
		}
	}
	return strings.Join(words, " ")
}

// sandboxName names a sandbox, with its pod where its bundle says so.
func sandboxName(s *runtimes.Sandbox) string {
	if s.Pod == "" {
		return fmt.Sprintf("sandbox %.12s", s.ID)
	}
	return fmt.Sprintf("sandbox %.12s of pod %s/%s", s.ID, s.Namespace, s.Pod)
}

// KataOf returns what the node's Kata is set up to do, and its sandboxes. It may be called at any time, and changes nothing.
func KataOf(n *facts.Node) *finding.Kata {
	k := &finding.Kata{Handlers: []finding.KataHandler{}, Sandboxes: []finding.KataSandbox{}}
	for _, h := range runtimes.Of(n).Kata() {
		k.Handlers = append(k.Handlers, kataHandlerOf(&h, runtimes.KataOf(n, &h)))
	}
	found, asked := runtimes.Sandboxes(n)
	for i := range found {
		k.Sandboxes = append(k.Sandboxes, kataSandboxOf(n, &found[i]))
	}
	for _, f := range asked {
		if !f.Known() {
			k.Unread = append(k.Unread, f.Path+": "+f.Err)
		}
	}
	return k
}

// What Kata works by where no file says anything (Kata 4.1: pkg/katautils/config-settings.go.in; libs/kata-types/src/config/default.rs,
// of QEMU), and the most root ports that the Go runtime takes (maxPCIeRootPorts).
const (
	goMemoryMiB   = 2048
	rustMemoryMiB = 128
	noPort        = "no-port"
	maxRootPorts  = 16
)

func kataHandlerOf(h *runtimes.Handler, k *runtimes.Kata) finding.KataHandler {
	view := finding.KataHandler{
		Name: h.Name, Engine: h.Engine, Runtime: string(katastate.Go), Config: k.File, Files: []string{}, VMM: k.VMM(),
		MemoryMiB: cmp.Or(k.Hypervisor("default_memory").Number(), goMemoryMiB),
		FixedSize: k.Runtime("static_sandbox_resource_mgmt").On(), InPodsCgroup: k.Runtime("sandbox_cgroup_only").On(),
		ColdPlug: cmp.Or(k.Hypervisor("cold_plug_vfio").Text(), noPort), HotPlug: cmp.Or(k.Hypervisor("hot_plug_vfio").Text(), noPort),
		RootPorts: min(k.Hypervisor("pcie_root_port").Number(), maxRootPorts), VFIOMode: k.Runtime("vfio_mode").Text(),
		Socket:      k.Runtime("pod_resource_api_sock").Text(),
		Annotations: append([]string{}, k.Hypervisor("enable_annotations").List()...),
	}
	view.LimitedMiB = view.MemoryMiB
	if h.IsRust() {
		view.Runtime = string(katastate.Rust)
		view.MemoryMiB = cmp.Or(k.Hypervisor("default_memory").Number(), rustMemoryMiB)
		view.LimitedMiB = k.Hypervisor("overhead_memory").Number()
	}
	for _, file := range k.Files {
		view.Files = append(view.Files, file.Path)
	}
	if len(k.Damaged) > 0 {
		view.Damaged = k.Damaged[0].Path + ": " + cmp.Or(k.Damaged[0].Err, facts.NotThere)
	}
	return view
}

func kataSandboxOf(n *facts.Node, s *runtimes.Sandbox) finding.KataSandbox {
	view := finding.KataSandbox{
		ID: s.ID, Namespace: s.Namespace, Pod: s.Pod, Runtime: string(s.Runtime), Hypervisor: s.Hypervisor, PID: s.PID,
		Running: s.VMM != nil, Devices: []finding.KataSandboxDevice{},
	}
	for _, d := range s.Devices {
		device := finding.KataSandboxDevice{Address: d.Address, GuestPath: d.GuestPath, Bus: d.Bus, ColdPlugged: d.ColdPlugged, Endpoint: d.Endpoint, Claims: []string{}}
		for _, t := range n.TenanciesOf(d.Address) {
			device.Claims = append(device.Claims, t.Claim())
		}
		view.Devices = append(view.Devices, device)
	}
	return view
}

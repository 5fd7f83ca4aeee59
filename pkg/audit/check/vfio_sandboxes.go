package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// kataSandboxes is the rule that reads Kata's own state.
const kataSandboxes = "VFIO-019"

// sandboxesHaveTheirOwn compares each function of a sandbox with the claims that
// have it. VFIO-020 reports state whose VM has ended.
func sandboxesHaveTheirOwn(n *facts.Node) Answer {
	sandboxes, asked := runtimes.Sandboxes(n)
	running := slices.DeleteFunc(slices.Clone(sandboxes), func(s runtimes.Sandbox) bool { return len(s.Kata.Devices) == 0 || isLeft(n, &s) })
	found := over(running, func(s runtimes.Sandbox) Answer {
		return over(s.Kata.Devices, func(d runtimes.KataDevice) Answer { return notItsOwn(n, &s, d.Address) })
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
	claims := n.TenanciesAt(a)
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
	if id := describeSandbox(rec); id != "" {
		return id == s.Kata.ID
	}
	ref := rec.Plan.Claim
	for _, pod := range ref.Pods {
		// Without a bundle, the sandbox's pod is unknown, and may be any pod of the claim.
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
	// A VMM that is not seen would look like one that has ended.
	if _, seen := n.Holdings(); !seen.OK() {
		return unknown("which VMs run", seen)
	}
	claims := slices.DeleteFunc(slices.Clone(n.Records()), func(rec *journal.Record) bool {
		return rec.State != journal.Prepared || describeSandbox(rec) == "" || !n.IsThisBoot(rec)
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
		for _, d := range s.Kata.Devices {
			devices = append(devices, d.Address)
		}
		return fail(fmt.Sprintf("%s has Kata state, but its VMM, process %d, has ended", sandboxName(&s), s.Kata.PID), sandboxFacts(s)...).
			object(sandboxName(&s)).held(devices)
	})
}

// isLeft reports whether a state outlived the VM: it names a process that is not a VMM of the sandbox. Without a PID,
// the VM may just be starting. If processes can't be read, the result is false.
func isLeft(n *facts.Node, s *runtimes.Sandbox) bool {
	_, seen := n.Holdings()
	return seen.OK() && s.VMM == nil && s.Kata.PID != 0 && !n.Exists(sysfs.Process(s.Kata.PID, "cmdline")).OK()
}

// isGone reports whether there is no trace of the sandbox. Its bundle exists before the VM starts.
func isGone(n *facts.Node, sandboxes []runtimes.Sandbox, id string) bool {
	if slices.ContainsFunc(sandboxes, func(s runtimes.Sandbox) bool { return s.Kata.ID == id }) {
		return false
	}
	holdings, _ := n.Holdings()
	if slices.ContainsFunc(holdings, func(h facts.OpenHandle) bool { return h.Process.Container == id }) {
		return false
	}
	containers, _ := runtimes.Containers(n)
	return !slices.ContainsFunc(containers, func(c runtimes.Container) bool { return c.Info.ID == id })
}

// sandboxFacts returns the evidence that a sandbox exists.
func sandboxFacts(s runtimes.Sandbox) []facts.Fact {
	var seen []facts.Fact
	if s.Kata.File != "" {
		seen = append(seen, facts.Fact{Path: s.Kata.File, Value: inGuest(s.Kata.Devices), How: "read", Needs: "root"})
	}
	if s.VMM != nil {
		seen = append(seen, s.VMM.Cmdline)
	}
	return seen
}

// inGuest lists functions with where they are in the guest.
func inGuest(devices []runtimes.KataDevice) string {
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

// sandboxName names a sandbox, with its pod if its bundle has it.
func sandboxName(s *runtimes.Sandbox) string {
	if s.Pod == "" {
		return fmt.Sprintf("sandbox %.12s", s.Kata.ID)
	}
	return fmt.Sprintf("sandbox %.12s of pod %s/%s", s.Kata.ID, s.Namespace, s.Pod)
}

// DescribeKata returns the configuration of the node's Kata, and its sandboxes. It may be called at any time, and
// changes nothing.
func DescribeKata(n *facts.Node) *finding.Kata {
	k := &finding.Kata{Handlers: []finding.KataHandler{}, Sandboxes: []finding.KataSandbox{}}
	r := runtimes.Of(n)
	for _, h := range r.Kata() {
		k.Handlers = append(k.Handlers, newKataHandler(&h, runtimes.LoadKata(n, &h)))
	}
	for _, f := range r.Damaged {
		k.Damaged = append(k.Damaged, described(f))
	}
	if r.CRIOff.IsSet() && !r.HasCRIO {
		k.CRIOff = fmt.Sprintf("%s of %s", r.CRIOff.Name, r.CRIOff.File)
	}
	found, asked := runtimes.Sandboxes(n)
	for i := range found {
		k.Sandboxes = append(k.Sandboxes, newKataSandbox(n, &found[i]))
	}
	for _, f := range asked {
		if !f.Known() {
			k.Unread = append(k.Unread, f.Path+": "+f.Err)
		}
	}
	return k
}

// Kata's values for settings that no file has (Kata 4.1: pkg/katautils/config-settings.go.in;
// libs/kata-types/src/config/default.rs, of QEMU), and the most root ports that the Go runtime takes
// (maxPCIeRootPorts).
const (
	goMemoryMiB   = 2048
	rustMemoryMiB = 128
	maxRootPorts  = 16
)

func newKataHandler(h *runtimes.Handler, k *runtimes.Kata) finding.KataHandler {
	view := finding.KataHandler{
		Name: h.Name, Engine: h.Engine, Runtime: string(runtimes.KataGo), Config: k.File, Files: []string{}, VMM: k.VMM(),
		MemoryMiB: cmp.Or(k.Hypervisor("default_memory").Number(), goMemoryMiB),
		FixedSize: k.Runtime("static_sandbox_resource_mgmt").On(), InPodsCgroup: k.Runtime("sandbox_cgroup_only").On(),
		ColdPlug: cmp.Or(k.Hypervisor("cold_plug_vfio").Text(), runtimes.NoPort), HotPlug: cmp.Or(k.Hypervisor("hot_plug_vfio").Text(), runtimes.NoPort),
		RootPorts: min(k.Hypervisor("pcie_root_port").Number(), maxRootPorts), VFIOMode: k.Runtime("vfio_mode").Text(),
		Socket:      k.Runtime("pod_resource_api_sock").Text(),
		Annotations: append([]string{}, k.Hypervisor("enable_annotations").List()...),
	}
	view.LimitedMiB = view.MemoryMiB
	if h.IsRust() {
		view.Runtime = string(runtimes.KataRust)
		view.MemoryMiB = cmp.Or(k.Hypervisor("default_memory").Number(), rustMemoryMiB)
		// If the pod has limits, the Rust runtime sizes the VM by the limits, and adds only this overhead.
		view.LimitedMiB = k.Hypervisor("overhead_memory").Number()
	}
	for _, file := range k.Files {
		view.Files = append(view.Files, file.Path)
	}
	if len(k.Damaged) > 0 {
		view.Damaged = described(k.Damaged[0])
	}
	return view
}

// described returns a file with the reason why its content is not known. Errors of parsers begin with the path.
func described(f facts.Fact) string {
	reason := cmp.Or(f.Err, facts.NotThere)
	if strings.HasPrefix(reason, f.Path+":") {
		return reason
	}
	return f.Path + ": " + reason
}

func newKataSandbox(n *facts.Node, s *runtimes.Sandbox) finding.KataSandbox {
	view := finding.KataSandbox{
		ID: s.Kata.ID, Namespace: s.Namespace, Pod: s.Pod, Runtime: string(s.Kata.Runtime), Hypervisor: s.Kata.Hypervisor, PID: s.Kata.PID,
		Running: s.VMM != nil, Devices: []finding.KataSandboxDevice{},
	}
	for _, d := range s.Kata.Devices {
		has := finding.KataSandboxDevice{Address: d.Address, GuestPath: d.GuestPath, Bus: d.Bus, ColdPlugged: d.ColdPlugged, Endpoint: d.Endpoint, Claims: []string{}}
		for _, t := range n.TenanciesAt(d.Address) {
			has.Claims = append(has.Claims, t.Claim())
		}
		view.Devices = append(view.Devices, has)
	}
	return view
}

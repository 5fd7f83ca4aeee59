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
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// kataSandboxes is the rule that reads what Kata writes down.
const kataSandboxes = "VFIO-019"

// seeSandboxes is how a person sees what Kata says of its sandboxes.
const seeSandboxes = "kata-vfio-audit sandboxes; ls /run/vc/sbs /run/kata"

// vfioKataChecks are about what Kata itself says of its sandboxes.
func vfioKataChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: kataSandboxes, Title: "Ensure that Kata's sandboxes have only functions of their own claims", Severity: isolation.Critical,
			Why:     "A function without a claim bypassed the plugin and is never reset. One of another claim is in the wrong VM.",
			Fix:     "delete the sandbox's pod; find out what added the function (RT-003, CDI-002, an SR-IOV CNI plugin), and reset it before it is assigned again",
			Verify:  seeSandboxes,
			Sources: []string{"Kata 4.1: virtcontainers/persist/api SandboxState", "Kata 4.1: runtime-rs virt_container SandboxState"},
		}, Judge: sandboxesHaveTheirOwn},
		{Rule: finding.Rule{
			ID: "VFIO-020", Title: "Ensure that Kata's sandboxes match the prepared claims", Severity: isolation.Medium,
			Why:     "A claim without its sandbox blocks its function. Kata's cleanup of a stale state can hit another tenant.",
			Fix:     "delete the claim's pod; without a pod, the kubelet unprepares the claim within minutes. Remove a stale sandbox directory once its processes are gone",
			Verify:  seeSandboxes,
			Sources: []string{"Kata 4.1: virtcontainers/persist/fs Destroy"},
		}, Judge: sandboxesAgree},
	}
}

// sandboxesHaveTheirOwn compares each function of a sandbox with the claims that
// have it. A state whose VM is gone is VFIO-020's.
func sandboxesHaveTheirOwn(n *facts.Node) Answer {
	sandboxes, asked := runtimes.Sandboxes(n)
	var found Answer
	var looked []runtimes.Sandbox
	for i := range sandboxes {
		s := &sandboxes[i]
		if len(s.Devices) == 0 || isLeft(n, s) {
			continue
		}
		looked = append(looked, *s)
		for _, d := range s.Devices {
			if wrong := notItsOwn(n, s, d.Address); wrong != "" {
				found = append(found, aboutSandbox(n, s, d.Address, wrong)...)
			}
		}
	}
	found = append(found, damagedStates(asked)...)
	switch {
	case len(found) > 0:
		return found
	case len(looked) == 0:
		return notApplicable("no Kata sandbox has a function", asked...)
	}
	return showing(pass(count(len(looked), "sandbox")+" with functions"), looked, sandboxFacts)
}

// damagedStates says of each state that is not understood that any function may be
// in it.
func damagedStates(asked []facts.Fact) Answer {
	var found Answer
	for _, f := range asked {
		if !f.Known() {
			found = append(found, unknown("which functions a Kata sandbox has", f).object(f.Path)...)
		}
	}
	return found
}

// notItsOwn says why the sandbox should not have the function; nothing where it
// should.
func notItsOwn(n *facts.Node, s *runtimes.Sandbox, a pci.Address) string {
	claims := n.TenanciesOf(a)
	for _, t := range claims {
		if isFor(n, t.Record, s) {
			return ""
		}
	}
	if len(claims) == 0 {
		return fmt.Sprintf("%s has %s, which belongs to no claim", sandboxName(s), a)
	}
	return fmt.Sprintf("%s has %s, which belongs to %s", sandboxName(s), a, describeClaims(n, []*journal.Record{claims[0].Record}))
}

// isFor reports whether the claim's functions are for the sandbox: the journal names
// it, or names none yet and the claim is of its pod.
func isFor(n *facts.Node, rec *journal.Record, s *runtimes.Sandbox) bool {
	if !n.IsThisBoot(rec) {
		return false
	}
	if rec.Sandbox != nil && rec.Sandbox.ID != "" {
		return rec.Sandbox.ID == s.ID
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
	found := leftStates(n, sandboxes)
	claims := 0
	for _, rec := range n.Records() {
		if rec.State != journal.Prepared || rec.Sandbox == nil || rec.Sandbox.ID == "" || !n.IsThisBoot(rec) {
			continue
		}
		claims++
		if isGone(n, sandboxes, rec.Sandbox.ID) {
			found = append(found, fail(fmt.Sprintf("%s is prepared for sandbox %.12s, which has no Kata state, VMM or bundle", claimName(rec), rec.Sandbox.ID), n.Journal()).
				object(claimName(rec)).reaching(rec.Plan.Addresses()...)...)
		}
	}
	found = append(found, damagedStates(asked)...)
	if len(found) > 0 {
		return found
	}
	return showing(pass(fmt.Sprintf("%s, %s", count(len(sandboxes), "sandbox"), count(claims, "prepared claim")), asked...), sandboxes, sandboxFacts)
}

func leftStates(n *facts.Node, sandboxes []runtimes.Sandbox) Answer {
	var found Answer
	for i := range sandboxes {
		s := &sandboxes[i]
		if !isLeft(n, s) {
			continue
		}
		f := fail(fmt.Sprintf("%s has Kata state, but its VMM, process %d, is gone", sandboxName(s), s.PID), sandboxFacts(*s)...).object(sandboxName(s))
		for _, d := range s.Devices {
			f[0].Devices = append(f[0].Devices, d.Address)
		}
		if len(f[0].Devices) > 0 {
			f[0].Device = new(f[0].Devices[0])
		}
		found = append(found, f...)
	}
	return found
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

// aboutSandbox fails for a sandbox and a function.
func aboutSandbox(n *facts.Node, s *runtimes.Sandbox, a pci.Address, text string) Answer {
	found := fail(text, append(sandboxFacts(*s), n.Journal())...).object(sandboxName(s)).reaching(a)
	if f, ok := n.Snapshot.Function(a); ok {
		return found.on(f)
	}
	return found
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

package check

import (
	"cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/katastate"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

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

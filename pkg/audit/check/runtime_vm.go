package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// runtimeVMMChecks are about access to a VM from the node or by its debuggers,
// which command lines of running VMMs show too, and about guests' memory.
func runtimeVMMChecks() []Check {
	return []Check{
		{ID: "RT-006", Judge: withVMMs(ofKata(debugConsole), "has a debug console", "agent.debug_console")},
		{ID: "RT-007", Judge: withVMMs(ofKata(extraMonitor), "has an extra monitor", "extra-monitor.sock")},
		{ID: "RT-008", Judge: ofDeviceVMs(debugging)},
		ofKataSetting("RT-015"),
		{ID: "RT-020", Judge: ofKata(factory)},
		ofKataSetting("RT-021"),
	}
}

func debugConsole(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	console, params := k.Agent("debug_console_enabled"), k.Hypervisor("kernel_params")
	switch {
	case console.On():
		return "the agent's debug console is on", says(console)
	case strings.Contains(params.Text(), "agent.debug_console"):
		return "kernel_params enable the agent's debug console", says(params)
	}
	return "", says(console)
}

// extraMonitor counts the setting only with enable_debug, as both runtimes do.
func extraMonitor(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	socket, debug := monitorSocket(h, k), k.Hypervisor("enable_debug")
	if socket.Text() != "" && debug.On() {
		return fmt.Sprintf("VMs have a monitor that every process with access to its socket can use (%s)", socket.Text()), says(socket, debug)
	}
	return "", says(socket)
}

// monitorSocket returns the setting, which the Rust runtime has by two names.
func monitorSocket(h *runtimes.Handler, k *runtimes.Kata) runtimes.Setting {
	if other := k.Hypervisor("dbg_monitor_socket"); h.IsRust() && other.Text() != "" {
		return other
	}
	return k.Hypervisor("extra_monitor_socket")
}

func debugging(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	var on []runtimes.Setting
	for _, s := range []runtimes.Setting{
		k.Hypervisor("enable_debug"), k.Agent("enable_debug"), k.Runtime("enable_debug"),
		k.Agent("enable_tracing"), k.Runtime("enable_tracing"), k.Runtime("enable_pprof"),
	} {
		if s.On() {
			on = append(on, s)
		}
	}
	socket := monitorSocket(h, k)
	switch {
	case len(on) > 0:
		return fmt.Sprintf("%s is on", on[0].Name), says(on...)
	case socket.Text() != "":
		return "extra_monitor_socket is set, and takes effect once enable_debug is on", says(socket)
	}
	return "", says(k.Hypervisor("enable_debug"), k.Runtime("enable_pprof"))
}

// withVMMs adds the running VMMs with a forbidden feature to a judgment on
// configuration. They keep it until their pods end.
func withVMMs(judge func(*facts.Node) Answer, what, word string) func(*facts.Node) Answer {
	return func(n *facts.Node) Answer {
		found := judge(n)
		vmms := runtimes.VMMs(n)
		running := unseen(n, len(vmms), "whether a running VMM "+what)
		for _, v := range vmms {
			if !v.Has(word) {
				continue
			}
			f := fail(fmt.Sprintf("the VMM of sandbox %s %s", cmp.Or(v.Sandbox, "(unnamed)"), what), v.Cmdline).object(fmt.Sprintf("pid %d", v.PID)).reaching(listDevices(n, v.Sandbox)...)
			if len(f[0].Devices) == 1 {
				f[0].Device = new(f[0].Devices[0])
			}
			if isClean(found) {
				f[0].Pending = "the configuration is correct: it ends with the pod"
			}
			running = append(running, f...)
		}
		return withRunning(found, running)
	}
}

// listDevices returns the functions that the sandbox's claims hold.
func listDevices(n *facts.Node, sandbox string) []pci.Address {
	var devices []pci.Address
	for _, t := range n.Tenancies {
		if s := t.Record.Sandbox; s != nil && s.ID == sandbox && sandbox != "" {
			devices = append(devices, t.Address)
		}
	}
	return devices
}

// runtimeHardeningChecks are about the privileges of a VMM and the choice of its settings.
func runtimeHardeningChecks() []Check {
	return []Check{
		{ID: "RT-001", Judge: ofDeviceVMs(hypervisorAnnotations)},
		{ID: "RT-009", Judge: ofKata(wholePaths)},
		ofKataSetting("RT-011"),
		{ID: "RT-010", Judge: ofDeviceVMs(seccomp)},
		{ID: "RT-012", Judge: selinux},
		ofKataSetting("RT-016"),
	}
}

// harmless returns the annotations of the hypervisor that size the VM or
// configure its attestation, which a tenant may choose for itself.
func harmless() []string {
	return []string{"default_vcpus", "default_memory", "default_maxvcpus", "default_max_vcpus", "cc_init_data"}
}

// hypervisorAnnotations counts both gates: containerd's, and Kata's own.
func hypervisorAnnotations(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	enabled := k.Hypervisor("enable_annotations")
	var open []string
	for _, name := range enabled.List() {
		if !slices.Contains(harmless(), name) {
			open = append(open, name)
		}
	}
	by, passes := h.Passes("io.katacontainers.config.hypervisor.")
	if len(open) == 0 || !passes {
		return "", says(enabled, h.PodAnnotations)
	}
	return fmt.Sprintf("pods can set %q of their VM", open), says(enabled, by)
}

func wholePaths(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	var seen []facts.Fact
	for _, name := range []string{
		"valid_hypervisor_paths", "valid_jailer_paths", "valid_virtio_fs_daemon_paths",
		"valid_vhost_user_store_paths", "valid_entropy_sources", "valid_ctlpaths",
	} {
		s := k.Hypervisor(name)
		for _, path := range s.List() {
			if strings.ContainsAny(path, "*?[") {
				return fmt.Sprintf("%s has the pattern %q", name, path), says(s)
			}
		}
		if s.IsSet() {
			seen = append(seen, s.Fact())
		}
	}
	return "", seen
}

// seccomp reads the setting of each VMM. Dragonball and Firecracker filter
// themselves.
func seccomp(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	off := k.Hypervisor("disable_seccomp")
	if k.VMM() != "qemu" {
		if off.On() {
			return "disable_seccomp is on", says(off)
		}
		return "", says(off)
	}
	name := "seccompsandbox"
	if h.IsRust() {
		name = "seccomp_sandbox"
	}
	filter := k.Hypervisor(name)
	// The setting is the value of QEMU's option -sandbox: "on,obsolete=deny,spawn=deny".
	if !strings.HasPrefix(filter.Text(), "on") {
		return "QEMU runs without a system call filter (Kata's default)", says(filter)
	}
	return "", says(filter)
}

func selinux(n *facts.Node) Answer {
	enforce := n.Read("sys/fs/selinux/enforce")
	switch {
	case !enforce.Known():
		return unknown("whether the node has SELinux", enforce)
	case enforce.Status == facts.Absent:
		return notApplicable("the node has no SELinux", enforce)
	}
	return ofDeviceVMs(func(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
		s := k.Hypervisor("disable_selinux")
		if s.On() {
			return "VMMs run without their own SELinux label", append(says(s), enforce)
		}
		return "", append(says(s), enforce)
	})(n)
}

func factory(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	template, cache := k.Factory("enable_template"), k.Factory("vm_cache_number")
	switch {
	case template.On():
		return "VMs are cloned from one template", says(template)
	case cache.Number() > 0:
		return fmt.Sprintf("%s in a cache", count(int(cache.Number()), "VM")), says(cache)
	}
	return "", says(template, cache)
}

// runtimeGuestChecks are about the inside of the VM, and its size.
func runtimeGuestChecks() []Check {
	return []Check{
		ofKataSetting("RT-013"),
		{ID: "RT-014", Judge: ofDeviceVMs(guestHooks)},
		{ID: "RT-022", Judge: ofDeviceVMs(verity)},
		{ID: "RT-023", Judge: agentPolicies},
		{ID: "RT-030", Judge: ofDeviceVMs(limitedSize)},
	}
}

func guestHooks(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	hooks, verity := k.Hypervisor("guest_hook_path"), k.Hypervisor("kernel_verity_params")
	if hooks.Text() != "" && verity.Text() == "" {
		return fmt.Sprintf("guests run hooks from %q of an unverified image", hooks.Text()), says(hooks, verity)
	}
	return "", says(hooks)
}

// verity applies to images. The VMM loads an initrd itself, and RT-024 checks its
// owner.
func verity(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	image, params := k.Hypervisor("image"), k.Hypervisor("kernel_verity_params")
	if image.Text() != "" && params.Text() == "" {
		return "kernel_verity_params is empty: nothing verifies the guest image", says(image, params)
	}
	return "", says(image, params)
}

func limitedSize(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	sizes := newKataHandler(h, k)
	seen := says(k.Hypervisor("default_memory"), k.Hypervisor("overhead_memory"), k.Runtime("static_sandbox_resource_mgmt"))
	if sizes.FixedSize && sizes.LimitedMiB < sizes.MemoryMiB {
		return fmt.Sprintf("a pod without limits gets a VM of %d MiB, but one with limits only %d MiB more than its limit", sizes.MemoryMiB, sizes.LimitedMiB), seen
	}
	return "", seen
}

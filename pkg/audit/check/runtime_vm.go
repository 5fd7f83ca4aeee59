package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// runtimeVMMChecks are about what opens a VM to the node or its debuggers, which command lines of running VMMs show too, and about guests' memory.
func runtimeVMMChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-006", Title: "Ensure that guests have no debug console", Severity: rule.High,
			Why:     "The console is a guest root shell for every process that reaches the VM's vsock.",
			Fix:     "`debug_console_enabled = false` in Kata's section [agent.kata], and no `agent.debug_console` in kernel_params",
			Verify:  "grep -rE 'debug_console' /opt/kata/share/defaults/kata-containers; ps -eo args | grep agent.debug_console",
			Sources: []string{"Kata 4.1: kata-types config get_agent_kernel_params"},
		}, Judge: withVMMs(ofKata(debugConsole), "has a debug console", "agent.debug_console")},
		{Rule: finding.Rule{
			ID: "RT-007", Title: "Ensure that VMMs have no extra monitor", Severity: rule.Critical,
			Why:     "Whoever connects to it controls the VM: reads its memory and attaches devices.",
			Fix:     "`extra_monitor_socket = \"\"` in Kata's hypervisor section, in the base or the last drop-in, and restart the affected pods",
			Verify:  "grep -rE 'extra_monitor_socket|dbg_monitor_socket' /opt/kata/share/defaults/kata-containers; ps -eo args | grep extra-monitor.sock",
			Sources: []string{"Kata 4.1: virtcontainers/qemu.go createQmpSocket", "Kata 4.1: configuration-qemu.toml.in extra_monitor_socket"},
		}, Judge: withVMMs(ofKata(extraMonitor), "has an extra monitor", "extra-monitor.sock")},
		{Rule: finding.Rule{
			ID: "RT-008", Title: "Ensure that Kata's debugging, tracing and profiling are off", Severity: rule.Medium,
			Why:    "Debug logs contain guest data, traces leave the node, and the profiling socket exposes the shim's memory.",
			Fix:    "set enable_debug, enable_tracing and enable_pprof to false in all sections of Kata's configuration, and extra_monitor_socket to \"\"",
			Verify: "grep -rE 'enable_(debug|tracing|pprof) *= *true|extra_monitor_socket' /opt/kata/share/defaults/kata-containers",
		}, Judge: ofDeviceVMs(debugging)},
		{Rule: finding.Rule{
			ID: "RT-015", Title: "Ensure that guests' memory is not dumped to the node's disk", Severity: rule.High,
			Why:    "A guest that panics writes all its memory to a host file. A tenant can fill the disk.",
			Fix:    "`guest_memory_dump_path = \"\"` in Kata's hypervisor section, and remove existing dumps",
			Verify: "grep -rE '^ *guest_memory_dump_path' /opt/kata/share/defaults/kata-containers",
		}, Judge: ofKata(mustBeEmpty(hypervisor, "guest_memory_dump_path", "memory of guests that panic is dumped to %q"))},
		{Rule: finding.Rule{
			ID: "RT-020", Title: "Ensure that VMs share no template or cache", Severity: rule.Medium,
			Why:     "Cloned VMs share memory pages and random state across tenants.",
			Fix:     "`enable_template = false` and `vm_cache_number = 0` in Kata's section [factory]",
			Verify:  "grep -rE 'enable_template|vm_cache_number' /opt/kata/share/defaults/kata-containers",
			Sources: []string{"Kata 4.1: docs/how-to/what-is-vm-templating-and-how-do-I-use-it.md"},
		}, Judge: ofKata(factory)},
		{Rule: finding.Rule{
			ID: "RT-021", Title: "Ensure that vhost-user stores are off", Severity: rule.Low,
			Why:    "A vhost-user back end is a host process that maps all guest memory.",
			Fix:    "`enable_vhost_user_store = false` in Kata's hypervisor section, unless you use such storage",
			Verify: "grep -rE '^ *enable_vhost_user_store' /opt/kata/share/defaults/kata-containers",
		}, Judge: ofDeviceVMs(mustBeOff(hypervisor, "enable_vhost_user_store", "vhost-user back ends can map guest memory"))},
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

// withVMMs adds to a judgement on configuration the VMMs that run with what it
// forbids: they keep it until their pods end.
func withVMMs(judge func(*facts.Node) Answer, what, word string) func(*facts.Node) Answer {
	return func(n *facts.Node) Answer {
		found := judge(n)
		clean := slices.ContainsFunc(found, func(f finding.Finding) bool { return f.State == finding.Pass || f.State == finding.NotApplicable })
		var running Answer
		for _, v := range runtimes.VMMs(n) {
			if !v.Has(word) {
				continue
			}
			f := fail(fmt.Sprintf("the VMM of sandbox %s %s", cmp.Or(v.Sandbox, "(unnamed)"), what), v.Cmdline).object(fmt.Sprintf("pid %d", v.PID)).reaching(devicesOf(n, v.Sandbox)...)
			if len(f[0].Devices) == 1 {
				f[0].Device = new(f[0].Devices[0])
			}
			if clean {
				f[0].Pending = "the configuration is correct: it ends with the pod"
			}
			running = append(running, f...)
		}
		if clean && len(running) > 0 {
			return running
		}
		return append(found, running...)
	}
}

// devicesOf returns the functions that the sandbox's claims hold.
func devicesOf(n *facts.Node, sandbox string) []pci.Address {
	var devices []pci.Address
	for _, t := range n.Tenancies {
		if s := t.Record.Sandbox; s != nil && s.ID == sandbox && sandbox != "" {
			devices = append(devices, t.Address)
		}
	}
	return devices
}

// runtimeHardeningChecks are about what a VMM may do and who chooses it.
func runtimeHardeningChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-001", Title: "Ensure that pods don't configure the hypervisor", Severity: rule.Medium,
			Why:     "kernel_params can disable guest controls and enable the debug console. A path chooses what the node runs.",
			Fix:     "`enable_annotations = []` in Kata's drop-in for the handler: it replaces the base's list",
			Verify:  "grep -rE '^ *enable_annotations' /opt/kata/share/defaults/kata-containers",
			Sources: []string{"Kata 4.1: src/runtime/Makefile DEFENABLEANNOTATIONS", "CVE-2020-27151"},
		}, Judge: ofDeviceVMs(hypervisorAnnotations)},
		{Rule: finding.Rule{
			ID: "RT-009", Title: "Ensure that annotations can choose exact paths only", Severity: rule.High,
			Why:     "A pattern such as /usr/* lets an enabled annotation run any such program as root on the node.",
			Fix:     "list exact paths in valid_hypervisor_paths, valid_virtio_fs_daemon_paths, valid_vhost_user_store_paths and valid_entropy_sources",
			Verify:  "grep -rE '^ *valid_' /opt/kata/share/defaults/kata-containers",
			Sources: []string{"CVE-2020-27151", "Kata 4.1: pkg/oci/utils.go checkPathIsInGlobs, whose globs are expanded on the node"},
		}, Judge: ofKata(wholePaths)},
		{Rule: finding.Rule{
			ID: "RT-011", Title: "Ensure that VMMs with devices run as root", Severity: rule.Info,
			Why:     "VFIO nodes belong to root. With `rootless`, VMs get no device unless the nodes are open to other users.",
			Fix:     "`rootless = false` in Kata's hypervisor section for handlers with devices; confine the VMM by RT-010 and HOST-013",
			Verify:  "grep -rE '^ *rootless' /opt/kata/share/defaults/kata-containers; ps -eo user,comm | grep qemu-system",
			Sources: []string{"Kata 4.1: configuration-qemu.toml.in rootless", "Kata: docs/how-to/how-to-run-rootless-vmm.md"},
		}, Judge: ofDeviceVMs(mustBeOff(hypervisor, "rootless", "its VMMs run as non-root users, who can't open VFIO nodes"))},
		{Rule: finding.Rule{
			ID: "RT-010", Title: "Ensure that the VMM runs under a system call filter", Severity: rule.Medium,
			Why:     "Otherwise an attacker who escapes a guest can use every system call.",
			Fix:     "`seccompsandbox = \"on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny\"` for QEMU (`seccomp_sandbox` in the Rust runtime); `disable_seccomp = false` for Cloud Hypervisor. Test it with your devices first",
			Verify:  "ps -eo args | grep -o 'qemu-system.* -sandbox [^ ]*'",
			Sources: []string{"Kata 4.1: configuration-qemu.toml.in seccompsandbox"},
		}, Judge: ofDeviceVMs(seccomp)},
		{Rule: finding.Rule{
			ID: "RT-012", Title: "Ensure that SELinux confines the VMM", Severity: rule.Medium,
			Why:    "Without its own label, a compromised VMM can do what its user can, usually root.",
			Fix:    "`disable_selinux = false` in Kata's hypervisor section",
			Verify: "grep -rE '^ *disable_selinux' /opt/kata/share/defaults/kata-containers; ps -eZ | grep qemu",
		}, Judge: selinux},
		{Rule: finding.Rule{
			ID: "RT-016", Title: "Ensure that VMMs are in their pod's cgroup", Severity: rule.Medium,
			Why:    "Outside of it, no limit applies to a tenant's VM, and no file shows its owner.",
			Fix:    "`sandbox_cgroup_only = true` in Kata's section [runtime], with a RuntimeClass overhead that covers the VMM",
			Verify: "for p in $(pgrep qemu-system); do cat /proc/$p/cgroup; done",
		}, Judge: ofDeviceVMs(mustBeOn(shim, "sandbox_cgroup_only", "VMMs are outside their pods' cgroups"))},
	}
}

// harmless are annotations of the hypervisor that size the VM or configure its
// attestation: what the tenant may choose for itself.
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

// seccomp asks of each VMM in its own words. Dragonball and Firecracker filter
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

// runtimeGuestChecks are about what is inside of the VM, and its size.
func runtimeGuestChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-013", Title: "Ensure that containers in guests have their seccomp profile", Severity: rule.Low,
			Why:     "Without the profile, a container can attack more of the guest kernel, which drives the device.",
			Fix:     "`disable_guest_seccomp = false` in Kata's section [runtime]; Kata's default is true",
			Verify:  "grep -rE '^ *disable_guest_seccomp' /opt/kata/share/defaults/kata-containers",
			Sources: []string{"Kata 4.1: src/runtime/Makefile DEFDISABLEGUESTSECCOMP"},
		}, Judge: ofDeviceVMs(mustBeOff(shim, "disable_guest_seccomp", "guests don't apply seccomp profiles (Kata's default)"))},
		{Rule: finding.Rule{
			ID: "RT-014", Title: "Ensure that guests run no hooks from an unverified image", Severity: rule.Medium,
			Why:    "Hooks in guest_hook_path run as guest root for every container. Whoever changes the image runs code in every VM.",
			Fix:    "`guest_hook_path = \"\"` in Kata's hypervisor section, or kernel_verity_params for the image",
			Verify: "grep -rE '^ *guest_hook_path' /opt/kata/share/defaults/kata-containers",
		}, Judge: ofDeviceVMs(guestHooks)},
		{Rule: finding.Rule{
			ID: "RT-022", Title: "Ensure that the guest image is verified at boot", Severity: rule.Medium,
			Why:     "A change to this one file affects every tenant's VM unnoticed.",
			Fix:     "set kernel_verity_params to the image's root hash (Kata's verity releases include it), and keep the annotation of that name disabled",
			Verify:  "grep -rE '^ *(image|kernel_verity_params)' /opt/kata/share/defaults/kata-containers; veritysetup dump <image>",
			Sources: []string{"Kata 4.1: kata-types KernelVerityParams"},
		}, Judge: ofDeviceVMs(verity)},
		{Rule: finding.Rule{
			ID: "RT-023", Title: "Ensure that confidential guests have an agent policy", Severity: rule.High,
			Why:     "Without a policy from the guest's owner, root of the node can start anything in the guest, despite memory encryption.",
			Fix:     "add a policy to the pod's init data (genpolicy writes the annotation cc_init_data), and let the key broker require its digest. If the image's own policy is strict and measured, waive this",
			Verify:  "kubectl get pod <pod> -o jsonpath='{.metadata.annotations.io\\.katacontainers\\.config\\.hypervisor\\.cc_init_data}' | base64 -d | zcat | grep policy.rego",
			Sources: []string{"Kata: src/tools/genpolicy/README.md", "Kata: tools/osbuilder/rootfs-builder/rootfs.sh (allow-all.rego where no AGENT_POLICY_FILE is given)"},
		}, Judge: agentPolicies},
		{Rule: finding.Rule{
			ID: "RT-030", Title: "Ensure that a pod's limits don't shrink its VM below the default", Severity: rule.Low,
			Why:     "Kata's Rust runtime adds only overhead_memory (32 MiB by default) to a pod's limit. A small VM does not boot.",
			Fix:     "set `overhead_memory` in Kata's hypervisor section to `default_memory`, as the project's drop-in for the Rust runtime does",
			Verify:  "kata-vfio-audit handlers",
			Sources: []string{"Kata 4.1: docs/how-to/how-to-size-sandbox-overhead-runtime-rs.md", "Kata 4.1: runtime-rs resource/src/cpu_mem/initial_size.rs"},
		}, Judge: ofDeviceVMs(limitedSize)},
	}
}

func guestHooks(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	hooks, verity := k.Hypervisor("guest_hook_path"), k.Hypervisor("kernel_verity_params")
	if hooks.Text() != "" && verity.Text() == "" {
		return fmt.Sprintf("guests run hooks from %q of an unverified image", hooks.Text()), says(hooks, verity)
	}
	return "", says(hooks)
}

// verity asks of images. An initrd is part of what the VMM loads, and RT-024 sees
// to its owner.
func verity(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	image, params := k.Hypervisor("image"), k.Hypervisor("kernel_verity_params")
	if image.Text() != "" && params.Text() == "" {
		return "kernel_verity_params is empty: nothing verifies the guest image", says(image, params)
	}
	return "", says(image, params)
}

func limitedSize(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	sizes := kataHandlerOf(h, k)
	seen := says(k.Hypervisor("default_memory"), k.Hypervisor("overhead_memory"), k.Runtime("static_sandbox_resource_mgmt"))
	if sizes.FixedSize && sizes.LimitedMiB < sizes.MemoryMiB {
		return fmt.Sprintf("a pod without limits gets a VM of %d MiB, but one with limits only %d MiB more than its limit", sizes.MemoryMiB, sizes.LimitedMiB), seen
	}
	return "", seen
}

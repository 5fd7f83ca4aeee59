package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// runtimeHardeningChecks are about what a VMM may do and who chooses it.
func runtimeHardeningChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-001", Title: "Pods don't configure the hypervisor", Severity: isolation.Medium,
			Why: "with kernel_params a pod's author switches the guest's own controls off, the agent's debug console on and PCI options about; " +
				"with a path it chooses what the node runs",
			Fix:     "`enable_annotations = []` in Kata's drop-in for the handler: a list there replaces the base's",
			Verify:  "grep -rE '^ *enable_annotations' /opt/kata/share/defaults/kata-containers",
			Sources: []string{"Kata 4.1: src/runtime/Makefile DEFENABLEANNOTATIONS", "CVE-2020-27151"},
		}, Judge: ofDeviceVMs(hypervisorAnnotations)},
		{Rule: finding.Rule{
			ID: "RT-009", Title: "Paths that annotations may choose are whole paths", Severity: isolation.High,
			Why:     "a pattern such as /usr/* lets an annotation that is enabled run any such program of the node as root",
			Fix:     "list whole paths in valid_hypervisor_paths, valid_virtio_fs_daemon_paths, valid_vhost_user_store_paths and valid_entropy_sources",
			Verify:  "grep -rE '^ *valid_' /opt/kata/share/defaults/kata-containers",
			Sources: []string{"CVE-2020-27151", "Kata 4.1: pkg/oci/utils.go checkPathIsInGlobs, whose globs are expanded on the node"},
		}, Judge: ofKata(wholePaths)},
		{Rule: finding.Rule{
			ID: "RT-011", Title: "VMMs that get devices run as root", Severity: isolation.Info,
			Why: "it sounds the wrong way round: nodes of VFIO are root's, so that with `rootless` VMs get no device, unless somebody opened the nodes to other users, " +
				"which opens them to all processes of these users",
			Fix:     "`rootless = false` in Kata's hypervisor section for handlers with devices; confine the VMM by seccomp (RT-010) and by SELinux or AppArmor (HOST-013)",
			Verify:  "grep -rE '^ *rootless' /opt/kata/share/defaults/kata-containers; ps -eo user,comm | grep qemu-system",
			Sources: []string{"Kata 4.1: configuration-qemu.toml.in rootless", "Kata: docs/how-to/how-to-run-rootless-vmm.md"},
		}, Judge: ofDeviceVMs(asRoot)},
		{Rule: finding.Rule{
			ID: "RT-010", Title: "The VMM runs under a system call filter", Severity: isolation.Medium,
			Why: "who breaks out of a guest into its VMM otherwise has every system call for the next step",
			Fix: "`seccompsandbox = \"on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny\"` for QEMU (the Rust runtime calls " +
				"it seccomp_sandbox); `disable_seccomp = false` for Cloud Hypervisor. Try it with your devices first",
			Verify:  "ps -eo args | grep -o 'qemu-system.* -sandbox [^ ]*'",
			Sources: []string{"Kata 4.1: configuration-qemu.toml.in seccompsandbox"},
		}, Judge: ofDeviceVMs(seccomp)},
		{Rule: finding.Rule{
			ID: "RT-012", Title: "SELinux confines the VMM", Severity: isolation.Medium,
			Why:    "without a label of its own a VMM that was taken over may touch what its user may, which is root's",
			Fix:    "`disable_selinux = false` in Kata's hypervisor section",
			Verify: "grep -rE '^ *disable_selinux' /opt/kata/share/defaults/kata-containers; ps -eZ | grep qemu",
		}, Judge: selinux},
		{Rule: finding.Rule{
			ID: "RT-016", Title: "VMMs are in their pod's cgroup", Severity: isolation.Medium,
			Why:    "outside of it nothing bounds what a tenant's VM takes of the node, and no file says whose VMM a process is",
			Fix:    "`sandbox_cgroup_only = true` in Kata's section [runtime], with a RuntimeClass overhead that covers the VMM",
			Verify: "for p in $(pgrep qemu-system); do cat /proc/$p/cgroup; done",
		}, Judge: ofDeviceVMs(podCgroup)},
	}
}

// harmless are annotations of the hypervisor that size the VM or configure its
// attestation: what the tenant may choose for itself.
func harmless() []string {
	return []string{"default_vcpus", "default_memory", "default_maxvcpus", "default_max_vcpus", "cc_init_data"}
}

func asRoot(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	rootless := k.Hypervisor("rootless")
	if rootless.On() {
		return "its VMMs run as users of their own, who may not open VFIO's nodes", says(rootless)
	}
	return "", says(rootless)
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
	return fmt.Sprintf("pods may set their VM's %q", open), says(enabled, by)
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
		return "QEMU runs without a system call filter, Kata's default", says(filter)
	}
	return "", says(filter)
}

func selinux(n *facts.Node) []finding.Finding {
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
			return "VMMs run without a label of their own", append(says(s), enforce)
		}
		return "", append(says(s), enforce)
	})(n)
}

func podCgroup(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	s := k.Runtime("sandbox_cgroup_only")
	if !s.On() {
		return "VMMs are outside of their pods' cgroups", says(s)
	}
	return "", says(s)
}

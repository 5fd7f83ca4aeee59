package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// runtimeVMMChecks are about what opens a VM to the node or its debuggers. They ask
// the configuration, and the command lines of the VMMs that run.
func runtimeVMMChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "RT-006", Title: "Guests have no debug console", Severity: isolation.High,
			Why:     "the agent's debug console is a shell of the guest's root for whoever reaches the VM's vsock on the node",
			Fix:     "`debug_console_enabled = false` in Kata's section [agent.kata], and no `agent.debug_console` in kernel_params",
			Verify:  "grep -rE 'debug_console' /opt/kata/share/defaults/kata-containers; ps -eo args | grep agent.debug_console",
			Sources: []string{"Kata 4.1: kata-types config get_agent_kernel_params"},
		}, Judge: withVMMs(ofKata(debugConsole), "has a debug console", "agent.debug_console")},
		{Rule: finding.Rule{
			ID: "RT-007", Title: "VMMs have no extra monitor", Severity: isolation.Critical,
			Why:     "whoever connects to QEMU's extra monitor controls the VM and its devices: it reads all memory and plugs what it likes",
			Fix:     "`extra_monitor_socket = \"\"` in Kata's hypervisor section, in the base or the last drop-in, and restart the pods concerned",
			Verify:  "grep -rE 'extra_monitor_socket|dbg_monitor_socket' /opt/kata/share/defaults/kata-containers; ps -eo args | grep extra-monitor.sock",
			Sources: []string{"Kata 4.1: virtcontainers/qemu.go createQmpSocket", "Kata 4.1: configuration-qemu.toml.in extra_monitor_socket"},
		}, Judge: withVMMs(ofKata(extraMonitor), "has an extra monitor", "extra-monitor.sock")},
		{Rule: finding.Rule{
			ID: "RT-008", Title: "Debugging, tracing and profiling of Kata are off", Severity: isolation.Medium,
			Why:    "debug logs hold what guests say and do, traces leave the node, and the profiling socket tells of the shim's memory",
			Fix:    "set enable_debug, enable_tracing and enable_pprof to false in all sections of Kata's configuration, and extra_monitor_socket to \"\"",
			Verify: "grep -rE 'enable_(debug|tracing|pprof) *= *true|extra_monitor_socket' /opt/kata/share/defaults/kata-containers",
		}, Judge: ofDeviceVMs(debugging)},
	}
}

func debugConsole(_ *facts.Node, _ *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	console, params := k.Agent("debug_console_enabled"), k.Hypervisor("kernel_params")
	switch {
	case console.On():
		return "the agent's debug console is on", says(console)
	case strings.Contains(params.Text(), "agent.debug_console"):
		return "kernel_params switch the agent's debug console on", says(params)
	}
	return "", says(console)
}

// extraMonitor counts the setting only with enable_debug, as both runtimes do.
func extraMonitor(_ *facts.Node, h *runtimes.Handler, k *runtimes.Kata) (string, []facts.Fact) {
	socket, debug := monitorSocket(h, k), k.Hypervisor("enable_debug")
	if socket.Text() != "" && debug.On() {
		return fmt.Sprintf("VMs get a monitor for everybody on the node who reaches its socket (%s)", socket.Text()), says(socket, debug)
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
		return "extra_monitor_socket is set, and counts as soon as enable_debug does", says(socket)
	}
	return "", says(k.Hypervisor("enable_debug"), k.Runtime("enable_pprof"))
}

// withVMMs adds to a judgement on configuration the VMMs that run with what it
// forbids: they keep it until their pods end.
func withVMMs(judge func(*facts.Node) []finding.Finding, what, word string) func(*facts.Node) []finding.Finding {
	return func(n *facts.Node) []finding.Finding {
		found := judge(n)
		clean := slices.ContainsFunc(found, func(f finding.Finding) bool { return f.State == finding.Pass || f.State == finding.NotApplicable })
		var running []finding.Finding
		for _, v := range runtimes.VMMs(n) {
			if !v.Has(word) {
				continue
			}
			f := fail(fmt.Sprintf("the VMM of sandbox %s %s", orElse(v.Sandbox, "(unnamed)"), what), v.Cmdline)
			f[0].Object = fmt.Sprintf("pid %d", v.PID)
			f[0].Devices = devicesOf(n, v.Sandbox)
			if len(f[0].Devices) == 1 {
				f[0].Device = new(f[0].Devices[0])
			}
			if clean {
				f[0].Pending = "the configuration is in order: it ends with the pod"
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

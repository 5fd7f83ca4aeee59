package check

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// hostChecks returns the checks of group HOST: CPU, memory and boot of the node.
func hostChecks() []Check {
	all := slices.Concat(bootChecks(), cpuChecks(), memoryChecks())
	slices.SortFunc(all, func(a, b Check) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// bootChecks are about how the node starts, and what its kernel forbids.
func bootChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "HOST-001", Title: "Ensure that the kernel is locked down", Severity: rule.Medium,
			Why:     "Otherwise root can write to PCI registers and kernel memory, and invalidate this audit.",
			Fix:     "boot with `lockdown=integrity` (needs CONFIG_SECURITY_LOCKDOWN_LSM), or with Secure Boot if the distribution couples them",
			Verify:  "cat /sys/kernel/security/lockdown",
			Sources: []string{"kernel_lockdown(7)"},
		}, Judge: lockedDown},
		{Rule: finding.Rule{
			ID: "HOST-002", Title: "Ensure that the firmware starts signed code only", Severity: rule.Medium,
			Why:     "Otherwise a modified boot loader or kernel survives reboots.",
			Fix:     "enable Secure Boot in the firmware setup",
			Verify:  "mokutil --sb-state",
			Sources: []string{"Linux: drivers/firmware/efi/libstub/secureboot.c (efi_get_secureboot)"},
		}, Judge: secureBoot},
		{Rule: finding.Rule{
			ID: "HOST-003", Title: "Ensure that the kernel loads signed modules only", Severity: rule.Medium,
			Why:     "A malicious module can persist, and falsify groups, resets and drivers.",
			Fix:     "boot with `module.sig_enforce=1`, or with lockdown",
			Verify:  "cat /sys/module/module/parameters/sig_enforce",
			Sources: []string{"Linux: Documentation/admin-guide/module-signing.rst"},
		}, Judge: signedModules},
		{Rule: finding.Rule{
			ID: "HOST-015", Title: "Ensure that the boot is measured into a TPM", Severity: rule.Low,
			Why:     "Without measurements, remote attestation of the node is impossible.",
			Fix:     "enable the TPM in the firmware setup",
			Verify:  "ls /sys/kernel/security/tpm0/binary_bios_measurements",
			Sources: []string{"Linux: Documentation/security/tpm/tpm_event_log.rst"},
		}, Judge: measuredBoot},
		{Rule: finding.Rule{
			ID: "HOST-013", Title: "Ensure that SELinux or AppArmor is enforcing", Severity: rule.High,
			Why:     "Otherwise a guest that escapes its VMM is root on the node.",
			Fix:     "`setenforce 1` and SELINUX=enforcing in /etc/selinux/config, or boot with apparmor=1 security=apparmor",
			Verify:  "cat /sys/kernel/security/lsm /sys/fs/selinux/enforce /sys/module/apparmor/parameters/enabled",
			Sources: []string{"Linux: Documentation/admin-guide/LSM/index.rst"},
		}, Judge: confined},
		{Rule: finding.Rule{
			ID: "HOST-018", Title: "Ensure that the node's clock is synchronized", Severity: rule.Medium,
			Why:     "Evidence of who had a device depends on the clock.",
			Fix:     "run chrony or systemd-timesyncd",
			Verify:  "timedatectl show -p NTPSynchronized; chronyc tracking",
			Sources: []string{"systemd-timesyncd.service(8)"},
		}, Judge: clockSet},
		{Rule: finding.Rule{
			ID: "HOST-020", Title: "Ensure that kexec, kernel log and BPF are restricted", Severity: rule.Low,
			Why:     "kexec starts another kernel without a boot. The log and BPF help an attacker.",
			Fix:     "set in /etc/sysctl.d: kernel.kexec_load_disabled=1, kernel.dmesg_restrict=1, kernel.unprivileged_bpf_disabled=2",
			Verify:  "sysctl kernel.kexec_load_disabled kernel.dmesg_restrict kernel.unprivileged_bpf_disabled",
			Sources: []string{"Linux: Documentation/admin-guide/sysctl/kernel.rst"},
		}, Judge: doorsShut},
	}
}

// chosen returns the word in brackets of a list of choices: "none [integrity]".
func chosen(f facts.Fact) string {
	for _, w := range f.Words() {
		if strings.HasPrefix(w, "[") && strings.HasSuffix(w, "]") {
			return w[1 : len(w)-1]
		}
	}
	return ""
}

func lockedDown(n *facts.Node) Answer {
	state := n.Read("sys/kernel/security/lockdown")
	modules := n.Read("sys/kernel/security/lsm")
	switch mode := chosen(state); {
	case state.Status == facts.Absent && modules.OK():
		return fail("the kernel has no lockdown module", modules)
	case !state.OK():
		return unknown("lockdown (needs securityfs)", state)
	case mode == "integrity", mode == "confidentiality":
		return pass(mode, state)
	}
	return fail("the kernel is not locked down", state)
}

const efivars = "sys/firmware/efi/efivars"

func secureBoot(n *facts.Node) Answer {
	if efi := n.Exists("sys/firmware/efi"); efi.Status == facts.Absent {
		return fail("the node did not boot by UEFI, so nothing verified signatures", efi)
	}
	// Four bytes of attributes come before the value.
	variable := n.Read(efivars + "/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")
	if !variable.OK() {
		return unknown("whether Secure Boot is on", variable)
	}
	on := len(variable.Value) == 5 && variable.Value[4] == 1
	variable.Value = "off"
	if on {
		variable.Value = "on"
		return pass("Secure Boot is on", variable)
	}
	return fail("Secure Boot is off", variable)
}

func signedModules(n *facts.Node) Answer {
	enforced := n.Parameter("module", "sig_enforce")
	disabled := n.Read("proc/sys/kernel/modules_disabled")
	lockdown := n.Read("sys/kernel/security/lockdown")
	if loaded, seen := unsignedModule(n); loaded {
		return fail("an unsigned module was loaded since the boot (taint flag E)", seen...).
			fix("find what loads it (`grep E) /proc/modules` lists such modules), and boot with `module.sig_enforce=1` or with lockdown: the flag stays until then")
	}
	switch {
	case enforced.Running.On():
		return pass("module signatures are enforced", enforced.Running)
	case disabled.Is("1"):
		return pass("module loading is disabled", disabled)
	case chosen(lockdown) == "integrity", chosen(lockdown) == "confidentiality":
		return pass("lockdown enforces module signatures", lockdown)
	case !enforced.Running.Known():
		return unknown("whether module signatures are enforced", enforced.Running)
	case enforced.Running.Status == facts.Absent:
		return fail("the kernel does not check module signatures (CONFIG_MODULE_SIG)", enforced.Running)
	}
	return pending(fail("the kernel loads unsigned modules", enforced.Running), &enforced, "1", "Y")
}

// unsignedModule reports whether the kernel says that a module without a valid signature was loaded, whatever forbids it
// now, and what it says.
func unsignedModule(n *facts.Node) (loaded bool, seen []facts.Fact) {
	const unsigned = 1 << 13 // TAINT_UNSIGNED_MODULE
	tainted, modules := n.Read("proc/sys/kernel/tainted"), n.Read("proc/modules")
	flags, err := strconv.ParseUint(tainted.Value, 10, 64)
	if !tainted.OK() || err != nil || flags&unsigned == 0 {
		return false, nil
	}
	seen = []facts.Fact{tainted}
	if modules.OK() {
		modules.Value = strings.Join(slices.DeleteFunc(strings.Split(modules.Value, "\n"), func(line string) bool {
			_, taints, _ := strings.Cut(line, "(")
			return !strings.Contains(taints, "E")
		}), "\n")
		seen = append(seen, modules)
	}
	return true, seen
}

func measuredBoot(n *facts.Node) Answer {
	security, dir := n.List("sys/kernel/security")
	measured := n.Exists("sys/kernel/security/tpm0/binary_bios_measurements")
	switch {
	case measured.OK():
		return pass("the TPM has an event log", measured)
	case !dir.Known(), len(security) == 0:
		return unknown("the TPM's event log (needs securityfs)", dir)
	case slices.Contains(security, "tpm0"):
		return fail("the firmware left no event log for the TPM", measured)
	}
	return fail("the kernel has no TPM", measured)
}

func confined(n *facts.Node) Answer {
	list := n.Read("sys/kernel/security/lsm")
	if !list.OK() {
		return unknown("which security modules the kernel runs", list)
	}
	modules := strings.Split(list.Value, ",")
	switch {
	case slices.Contains(modules, "selinux"):
		enforce := n.Read("sys/fs/selinux/enforce")
		return switchedOn("SELinux", "enforcing", "permissive", enforce, enforce.Is("1"))
	case slices.Contains(modules, "apparmor"):
		enabled := n.Read("sys/module/apparmor/parameters/enabled")
		return switchedOn("AppArmor", "on", "off", enabled, enabled.On())
	}
	return fail("the kernel runs neither SELinux nor AppArmor", list)
}

// switchedOn says whether something is on, by the file that says so: "SELinux is permissive".
func switchedOn(what, on, off string, file facts.Fact, isOn bool) Answer {
	switch {
	case isOn:
		return pass(what+" is "+on, file)
	case file.OK():
		return fail(what+" is "+off, file)
	}
	return unknown("whether "+what+" is "+on, file)
}

// clockSet knows the file of systemd-timesyncd; other programs leave none.
func clockSet(n *facts.Node) Answer {
	mark := n.Exists("run/systemd/timesync/synchronized")
	if mark.OK() {
		return pass("systemd-timesyncd synchronized it", mark)
	}
	return say(finding.Manual, "no file shows whether the clock is synchronized; check on the node", []facts.Fact{mark})
}

func doorsShut(n *facts.Node) Answer {
	doors := map[string][]string{"kernel.dmesg_restrict": {"1"}, "kernel.kexec_load_disabled": {"1"}, "kernel.unprivileged_bpf_disabled": {"1", "2"}}
	var known []facts.Fact
	found := over(slices.Sorted(maps.Keys(doors)), func(name string) Answer {
		s := n.Sysctl(name)
		if s.Running.Status == facts.Absent {
			return nil // the kernel was built without
		}
		known = append(known, s.Running)
		if said := judgeSysctl(&s, doors[name]); said[0].State != finding.Pass {
			return said.object(name)
		}
		return nil
	})
	if len(known) == 0 {
		return unknown("the kernel's settings", n.Read("proc/sys/kernel/dmesg_restrict"))
	}
	return found.or(pass(count(len(known), "setting"), known...))
}

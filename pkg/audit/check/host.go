package check

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// hostChecks returns the checks of group HOST: CPU, memory and boot of the node.
func hostChecks() []Check {
	all := slices.Concat(bootChecks(), cpuChecks(), memoryChecks())
	slices.SortFunc(all, func(a, b Check) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// bootChecks are about the node's start and the restrictions of its kernel.
func bootChecks() []Check {
	return []Check{
		{ID: "HOST-001", Judge: lockedDown},
		{ID: "HOST-002", Judge: secureBoot},
		{ID: "HOST-003", Judge: signedModules},
		{ID: "HOST-015", Judge: measuredBoot},
		{ID: "HOST-013", Judge: confined},
		{ID: "HOST-018", Judge: clockSet},
		ofSettings("HOST-020"),
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
		// securityfs is mounted, because lsm is there, so the kernel lacks the file.
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
	// This comes first: the flag stays after the module was unloaded, and a module that was loaded before signatures were enforced may
	// have changed the kernel.
	if loaded, seen := unsignedModule(n); loaded {
		return fail("an unsigned module was loaded since the boot (taint flag E)", seen...).
			fix("find what loads it (`grep E) /proc/modules` lists such modules), and boot with `module.sig_enforce=1` or with lockdown: the flag stays until then")
	}
	switch {
	case enforced.Running.On():
		return pass("module signatures are enforced", enforced.Running)
	// Once the value is 1, no module can be loaded until a reboot (Documentation/admin-guide/sysctl/kernel.rst).
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

// unsignedModule reports whether a module without a valid signature was loaded according to the kernel, even if that is
// forbidden now, and returns the evidence.
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
			// A line ends with the module's taint flags in parentheses: "(OE)".
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
	// The kernel makes the directory as a mount point for securityfs, so an empty one says nothing about a TPM.
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

// switchedOn reports whether something is on according to its file: "SELinux is permissive".
func switchedOn(what, on, off string, file facts.Fact, isOn bool) Answer {
	switch {
	case isOn:
		return pass(what+" is "+on, file)
	case file.OK():
		return fail(what+" is "+off, file)
	}
	return unknown("whether "+what+" is "+on, file)
}

// clockSet reads the file of systemd-timesyncd. Other programs have none.
func clockSet(n *facts.Node) Answer {
	mark := n.Exists("run/systemd/timesync/synchronized")
	if mark.OK() {
		return pass("systemd-timesyncd synchronized it", mark)
	}
	return say(finding.Manual, "no file shows whether the clock is synchronized; check on the node", []facts.Fact{mark})
}

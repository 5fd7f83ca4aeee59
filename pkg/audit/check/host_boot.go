package check

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

func bootChecks() []Check {
	return []Check{
		{Rule: finding.Rule{
			ID: "HOST-001", Title: "The kernel is locked down", Severity: isolation.Medium,
			Why:     "otherwise who has root writes to PCI registers and to the kernel's memory, and no audit of this node holds any more",
			Fix:     "boot with `lockdown=integrity` (a kernel with CONFIG_SECURITY_LOCKDOWN_LSM), or with Secure Boot on where the distribution ties them",
			Verify:  "cat /sys/kernel/security/lockdown",
			Sources: []string{"kernel_lockdown(7)"},
		}, Judge: lockedDown},
		{Rule: finding.Rule{
			ID: "HOST-002", Title: "The firmware starts signed code only", Severity: isolation.Medium,
			Why:     "otherwise a changed boot loader or kernel comes back with every boot",
			Fix:     "switch Secure Boot on in the firmware setup",
			Verify:  "mokutil --sb-state",
			Sources: []string{"Linux: drivers/firmware/efi/libstub/secureboot.c (efi_get_secureboot)"},
		}, Judge: secureBoot},
		{Rule: finding.Rule{
			ID: "HOST-003", Title: "The kernel loads signed modules only", Severity: isolation.Medium,
			Why:     "a module of its own lets an intruder stay, and lie about groups, resets and drivers",
			Fix:     "boot with `module.sig_enforce=1`, or locked down",
			Verify:  "cat /sys/module/module/parameters/sig_enforce",
			Sources: []string{"Linux: Documentation/admin-guide/module-signing.rst"},
		}, Judge: signedModules},
		{Rule: finding.Rule{
			ID: "HOST-015", Title: "The boot was measured into a TPM", Severity: isolation.Low,
			Why:     "without measurements nobody can attest from afar what the node runs",
			Fix:     "switch the TPM on in the firmware setup",
			Verify:  "ls /sys/kernel/security/tpm0/binary_bios_measurements",
			Sources: []string{"Linux: Documentation/security/tpm/tpm_event_log.rst"},
		}, Judge: measuredBoot},
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

func lockedDown(n *facts.Node) []finding.Finding {
	state := n.Read("sys/kernel/security/lockdown")
	modules := n.Read("sys/kernel/security/lsm")
	switch mode := chosen(state); {
	case state.Status == facts.Absent && modules.OK():
		return fail("the kernel was built or started without lockdown", modules)
	case !state.OK():
		return unknown("lockdown (it takes securityfs)", state)
	case mode == "integrity", mode == "confidentiality":
		return pass(mode, state)
	}
	return fail("the kernel is not locked down", state)
}

const efivars = "sys/firmware/efi/efivars"

func secureBoot(n *facts.Node) []finding.Finding {
	if efi := n.Exists("sys/firmware/efi"); efi.Status == facts.Absent {
		return fail("the node was not started by UEFI, which is what checks signatures", efi)
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

func signedModules(n *facts.Node) []finding.Finding {
	enforced := n.Parameter("module", "sig_enforce")
	disabled := n.Read("proc/sys/kernel/modules_disabled")
	lockdown := n.Read("sys/kernel/security/lockdown")
	switch {
	case enforced.Running.On():
		return pass("signatures are enforced", enforced.Running)
	case disabled.Is("1"):
		return pass("no module can be loaded any more", disabled)
	case chosen(lockdown) == "integrity", chosen(lockdown) == "confidentiality":
		return pass("lockdown enforces signatures", lockdown)
	case !enforced.Running.Known():
		return unknown("whether signatures are enforced", enforced.Running)
	case enforced.Running.Status == facts.Absent:
		return fail("the kernel does not check modules' signatures (CONFIG_MODULE_SIG)", enforced.Running)
	}
	return pending(fail("modules without a signature are loaded", enforced.Running), &enforced, "1", "Y")
}

func measuredBoot(n *facts.Node) []finding.Finding {
	security, dir := n.List("sys/kernel/security")
	measured := n.Exists("sys/kernel/security/tpm0/binary_bios_measurements")
	switch {
	case measured.OK():
		return pass("there is an event log", measured)
	case !dir.Known(), len(security) == 0:
		return unknown("the TPM's event log (it takes securityfs)", dir)
	case slices.Contains(security, "tpm0"):
		return fail("there is a TPM, and the firmware left no event log", measured)
	}
	return fail("the kernel has no TPM", measured)
}

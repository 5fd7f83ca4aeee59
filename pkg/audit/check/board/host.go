package board

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// goodHost sets up what the checks of HOST look at: a kernel and a CPU as a careful
// operator runs them, an Intel server with SMT off.
func (t *Tree) goodHost() {
	files := map[string]string{
		"sys/kernel/security/lockdown":                        "none [integrity] confidentiality",
		"sys/kernel/security/lsm":                             "lockdown,capability,landlock,yama,apparmor,bpf",
		"sys/kernel/security/tpm0/binary_bios_measurements":   "",
		"sys/module/module/parameters/sig_enforce":            "Y",
		"sys/module/apparmor/parameters/enabled":              "Y",
		"sys/module/kvm_intel/parameters/nested":              "N",
		"sys/module/kvm_intel/parameters/vmentry_l1d_flush":   "not required",
		"sys/module/kvm/parameters/nx_huge_pages":             "N",
		"sys/devices/system/cpu/smt/active":                   "0",
		"sys/devices/system/cpu/smt/control":                  "off",
		"sys/kernel/mm/ksm/run":                               "0",
		"sys/kernel/mm/ksm/pages_shared":                      "0",
		"sys/devices/system/edac/mc/mc0/ue_count":             "0",
		"sys/devices/system/edac/mc/mc0/dimm0/dimm_edac_mode": "S4ECD4ED",
		"proc/sys/kernel/kexec_load_disabled":                 "1",
		"proc/sys/kernel/dmesg_restrict":                      "1",
		"proc/sys/kernel/unprivileged_bpf_disabled":           "2",
		"proc/cpuinfo":                      strings.Repeat("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nstepping\t: 8\nmicrocode\t: 0x2b000643\n\n", 2),
		"run/systemd/timesync/synchronized": "",
		"boot/config-" + sysfstest.Release:  "# Linux/x86\nCONFIG_KVM=m\nCONFIG_INIT_ON_ALLOC_DEFAULT_ON=y\n# CONFIG_INIT_ON_FREE_DEFAULT_ON is not set\n",
	}
	for flaw, state := range map[string]string{
		"gather_data_sampling": "Not affected", "ghostwrite": "Not affected", "indirect_target_selection": "Not affected",
		"itlb_multihit": "Not affected", "l1tf": "Not affected", "mds": "Not affected", "meltdown": "Not affected",
		"mmio_stale_data": "Not affected", "reg_file_data_sampling": "Not affected", "retbleed": "Not affected",
		"spec_rstack_overflow": "Not affected", "srbds": "Not affected", "tsa": "Not affected", "tsx_async_abort": "Not affected",
		"spec_store_bypass": "Mitigation: Speculative Store Bypass disabled via prctl",
		"spectre_v1":        "Mitigation: usercopy/swapgs barriers and __user pointer sanitization",
		"spectre_v2":        "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional; PBRSB-eIBRS: SW sequence; BHI: BHI_DIS_S",
		"vmscape":           "Mitigation: IBPB before exit to userspace",
	} {
		files[fmt.Sprintf("sys/devices/system/cpu/vulnerabilities/%s", flaw)] = state
	}
	for name, content := range files {
		t.Put(name, content+"\n")
	}
	t.Put("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", "\x06\x00\x00\x00\x01")
}

// Flaw has the kernel say something else of a flaw of the CPU.
func (t *Tree) Flaw(name, state string) {
	t.TB.Helper()
	t.Put("sys/devices/system/cpu/vulnerabilities/"+name, state+"\n")
}

// Boot gives the running kernel's command line other arguments too.
func (t *Tree) Boot(arguments string) {
	t.TB.Helper()
	t.Put("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro intel_iommu=on iommu.strict=1 "+arguments+"\n")
}

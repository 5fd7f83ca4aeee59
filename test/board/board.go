// Package board makes nodes for the tests of the audit: whole machines as trees
// of files, each as its vendor and operator would have it, so that no check fails
// on them, and each a place to plant faults in.
package board

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// Board is a kind of machine.
type Board struct {
	// Name is a word for tables: "server".
	Name  string
	About string
	// Build makes a node of the kind, in good order.
	Build func(testing.TB) *Tree
}

// All returns all boards.
func All() []Board {
	return []Board{
		{Name: "server", About: "two GPUs, one of them with companions, and a NIC with VFs, Intel, two tenants", Build: Server},
		{Name: "fabric", About: "four GPUs on two NVSwitches and an InfiniBand card with VFs, two tenants", Build: Fabric},
		{Name: "switch", About: "two GPUs of two tenants behind one PCIe switch, a third free", Build: Switch},
		{Name: "hgx", About: "eight GPUs, NVSwitches and eight NICs with VFs behind PCIe switches, two sockets, Intel, two tenants", Build: HGX},
		{Name: "desktop", About: "a consumer board without ACS, a graphics card that is one tenant's with its whole group", Build: Desktop},
		{Name: "amd", About: "two hives of GPUs joined by XGMI and a NIC with VFs, AMD, two tenants", Build: AMD},
		{Name: "vm", About: "a virtual machine with a GPU passed through and an IOMMU of QEMU's", Build: VM},
		{Name: "arm", About: "a GPU and a NIC with VFs behind an SMMU, two tenants", Build: Arm},
	}
}

// Tree is a node to be read below [sysfstest.Kernel.Root].
type Tree struct {
	*sysfstest.Kernel
	TB testing.TB
	// Devices are the addresses of what the board has, by a name of its own:
	// "gpu0", "nic0", "nic0/vf3". Tenants' faults refer to them.
	Devices map[string]pci.Address

	// Name is the node's, by which it signs its ledger.
	Name string

	processes int
	ledger    *writer.Writer // nil until the first event
}

// New returns the tree of a node without functions, set up as any good node is.
func New(tb testing.TB) *Tree {
	tb.Helper()
	t := &Tree{Kernel: sysfstest.New(tb), TB: tb, Devices: map[string]pci.Address{}, Name: "gpu-07"}
	for _, good := range []func(){
		t.goodIommu, t.goodAcs, t.goodVfio, t.goodReset, t.goodGpu, t.goodNic,
		t.goodHost, t.goodRuntime, t.goodCdi, t.goodConfidential, t.goodObservation,
	} {
		good()
	}
	return t
}

// Put writes a file of the node.
func (t *Tree) Put(name, content string) {
	t.TB.Helper()
	t.PutFile(name, content)
}

// Delete removes a file or a directory with all that is in it.
func (t *Tree) Delete(name string) {
	t.TB.Helper()
	if err := os.RemoveAll(t.Path(name)); err != nil {
		t.TB.Fatal(err)
	}
}

// Mode sets a file's permissions.
func (t *Tree) Mode(name string, mode os.FileMode) {
	t.TB.Helper()
	if err := os.Chmod(t.Path(name), mode); err != nil {
		t.TB.Fatal(err)
	}
}

// Save writes a claim's record, as the plugin does except for its durability.
func (t *Tree) Save(rec *journal.Record) {
	t.TB.Helper()
	data, err := journal.Encode(rec)
	if err != nil {
		t.TB.Fatal(err)
	}
	name := "var/lib/kata-vfio/journal/" + rec.ID() + ".json"
	t.Put(name, string(data))
	t.Mode(name, 0o600)
}

// Text returns a file of the node.
func (t *Tree) Text(name string) string {
	t.TB.Helper()
	data, err := os.ReadFile(t.Path(name))
	if err != nil {
		t.TB.Fatal(err)
	}
	return string(data)
}

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

// Flaw changes what the kernel says of a flaw of the CPU.
func (t *Tree) Flaw(name, state string) {
	t.TB.Helper()
	t.Put("sys/devices/system/cpu/vulnerabilities/"+name, state+"\n")
}

// Boot adds arguments to the running kernel's command line.
func (t *Tree) Boot(arguments string) {
	t.TB.Helper()
	t.Put("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro intel_iommu=on iommu.strict=1 "+arguments+"\n")
}

// goodIommu sets up what the checks of IOM look at.
func (t *Tree) goodIommu() {
	t.Put("proc/cmdline", "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro intel_iommu=on iommu.strict=1\n")
	t.SetParameter("vfio", "enable_unsafe_noiommu_mode", "N")
	t.SetParameter("iommufd", "allow_unsafe_interrupts", "N")
	t.SetParameter("vfio_iommu_type1", "dma_entry_limit", "65535")
	t.PutDMAR(0x05)
	t.Put("sys/firmware/efi/fw_platform_size", "64\n")
	t.Put("proc/sys/kernel/tainted", "0\n")
}

// PutDMAR makes the firmware's table of VT-d with the flags.
func (t *Tree) PutDMAR(flags byte) {
	t.TB.Helper()
	table := make([]byte, 48)
	copy(table, "DMAR")
	table[4], table[36], table[37] = 48, 45, flags
	t.Put("sys/firmware/acpi/tables/DMAR", string(table))
}

// goodVfio sets up what the checks of VFIO look at: vfio-pci's parameters,
// udev's rules, and process 1, which says that proc shows the whole node.
func (t *Tree) goodVfio() {
	for name, value := range map[string]string{
		"disable_denylist": "N", "enable_sriov": "N", "nointxmask": "N", "disable_vga": "Y", "disable_idle_d3": "N",
	} {
		t.SetParameter("vfio_pci", name, value)
	}
	t.Put("usr/lib/udev/rules.d/50-udev-default.rules", "# what systemd has\nKERNEL==\"vfio\", MODE=\"0666\", OPTIONS+=\"static_node=vfio/vfio\"\n")
	t.Put("etc/udev/rules.d/70-kata.rules", "SUBSYSTEM==\"vfio\", GROUP=\"kvm\", MODE=\"0660\"\n")
	t.Symlink("proc/1/ns/pid", pidNamespace)
	t.Symlink("proc/1/ns/mnt", mountNamespace)
}

// goodGpu sets up what the checks of GPU look at: of all ports, only 22 (SSH) is open to the world.
func (t *Tree) goodGpu() {
	t.Put("proc/1/net/tcp", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"+
		"   0: 0100007F:3E80 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21345 1 0000000000000000 100 0 0 10 0\n"+
		"   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21346 1 0000000000000000 100 0 0 10 0\n")
	t.Put("proc/1/net/tcp6", "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"+
		"   0: 00000000000000000000000001000000:3E80 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21347 1 0000000000000000 100 0 0 10 0\n")
}

// AddHive adds AMD accelerators that are one XGMI hive, at the buses, on amdgpu.
func (t *Tree) AddHive(id string, buses ...uint8) {
	t.TB.Helper()
	for i, bus := range buses {
		t.AddRootPort(bus)
		gpu := sysfstest.GPU(pci.Address{Bus: bus})
		gpu.Vendor, gpu.Device, gpu.SubVendor, gpu.Class, gpu.Driver = 0x1002, 0x74a1, 0x1002, 0x120000, "amdgpu"
		t.Add(gpu)
		t.Devices[fmt.Sprintf("xgmi%d", i)] = gpu.Address
		t.Put("sys/bus/pci/devices/"+gpu.Address.String()+"/xgmi_hive_info/xgmi_hive_id", id+"\n")
	}
}

// goodReset sets up what the checks of reset look at.
func (t *Tree) goodReset() {}

// goodConfidential sets up what the checks of CC look at: TDX, asked for and on.
func (t *Tree) goodConfidential() {
	t.Put("etc/modprobe.d/tdx.conf", "options kvm_intel tdx=1\n")
	t.Put("sys/module/kvm_intel/parameters/tdx", "Y\n")
}

// goodCdi sets up what the checks of CDI look at: a spec as NVIDIA's container
// toolkit writes it for GPUs that containers share. Those of claims come with
// [Tree.Give].
func (t *Tree) goodCdi() {
	t.Put("etc/cdi/nvidia.yaml", `cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env: [NVIDIA_VISIBLE_DEVICES=void]
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, update-ldcache]
  mounts:
  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.1
    containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.1
    options: [ro, nosuid, nodev, bind]
`)
	t.Own("etc/cdi/nvidia.yaml", "100644", 0, 0)
	t.Own("run/cdi", "40755", 0, 0)
}

// Own records in [facts.StatFile] the owner and the mode of a file of the node, as collected trees do. Tests need that, because
// they don't all run as root. The file itself need not exist. Directories above it that have no entry yet become root's.
func (t *Tree) Own(name, mode string, uid, gid uint32) {
	t.TB.Helper()
	all := map[string]facts.Stat{}
	text, err := os.ReadFile(t.Path(facts.StatFile))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.TB.Fatal(err)
	}
	name = "/" + strings.TrimPrefix(name, "/")
	all[name] = facts.Stat{Mode: mode, UID: uid, GID: gid}
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if _, ok := all[dir]; !ok {
			all[dir] = facts.Stat{Mode: "40755"}
		}
	}
	text, err = json.MarshalIndent(all, "", " ")
	if err != nil {
		t.TB.Fatal(err)
	}
	t.Put(facts.StatFile, string(text))
}

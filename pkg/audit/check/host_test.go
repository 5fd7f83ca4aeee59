package check_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// put plants another content of one file.
func put(rule, about, file, content string) fault {
	return fault{rule: rule, about: about, board: board.Server, plant: func(t *board.Tree) { t.Put(file, content) }}
}

// without plants the lack of files.
func without(rule, about string, state finding.State, files ...string) fault {
	return fault{rule: rule, about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
		for _, file := range files {
			t.Delete(file)
		}
	}}
}

// flaw plants the kernel's status of a flaw of the CPU.
func flaw(rule, name, said string, state finding.State) fault {
	return fault{rule: rule, about: name + " " + strings.ReplaceAll(said, "/", " "), board: board.Server, state: state, plant: func(t *board.Tree) { t.Flaw(name, said) }}
}

// booted plants arguments of the running kernel.
func booted(rule, arguments string, state finding.State) fault {
	return fault{rule: rule, about: "booted with " + arguments, board: board.Server, state: state, plant: func(t *board.Tree) { t.Boot(arguments) }}
}

func hostFaults() []fault {
	const smt, edac = "sys/devices/system/cpu/smt/active", "sys/devices/system/edac/mc/mc0/"
	return slices.Concat(flawFaults(), []fault{
		put("HOST-001", "none", "sys/kernel/security/lockdown", "[none] integrity confidentiality\n"),
		without("HOST-001", "unknown to the kernel", finding.Fail, "sys/kernel/security/lockdown"),
		without("HOST-001", "no securityfs", finding.Unknown, "sys/kernel/security"),
		put("HOST-002", "off", "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", "\x06\x00\x00\x00\x00"),
		without("HOST-002", "no UEFI", finding.Fail, "sys/firmware/efi"),
		without("HOST-002", "no variables", finding.Unknown, "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"),
		{rule: "HOST-003", about: "off", board: board.Server, plant: func(t *board.Tree) {
			t.Put("sys/module/module/parameters/sig_enforce", "N\n")
			t.Put("sys/kernel/security/lockdown", "[none] integrity confidentiality\n")
		}},
		put("HOST-003", "an unsigned module in spite of lockdown", "proc/sys/kernel/tainted", "12288\n"),
		without("HOST-003", "lockdown does it", finding.Pass, "sys/module/module"),
		without("HOST-015", "no TPM", finding.Fail, "sys/kernel/security/tpm0"),
		without("HOST-015", "no securityfs", finding.Unknown, "sys/kernel/security"),
		{rule: "HOST-006", about: "on, and the CPU leaks by it", board: board.Server, plant: func(t *board.Tree) {
			t.Put(smt, "1\n")
			t.Flaw("mds", "Mitigation: Clear CPU buffers; SMT vulnerable")
		}},
		{rule: "HOST-006", about: "on", board: board.Server, state: finding.Manual, plant: func(t *board.Tree) { t.Put(smt, "1\n") }},
		without("HOST-006", "unknown to the kernel", finding.NotApplicable, smt),
		{rule: "HOST-007", about: "never flushed", board: board.Server, plant: func(t *board.Tree) {
			t.Flaw("l1tf", "Mitigation: PTE Inversion; VMX: vulnerable")
			t.SetParameter("kvm_intel", "vmentry_l1d_flush", "never")
		}},
		{rule: "HOST-007", about: "never flushed where nothing leaks", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			t.SetParameter("kvm_intel", "vmentry_l1d_flush", "never")
		}},
		flaw("HOST-007", "itlb_multihit", "KVM: Vulnerable", finding.Fail),
		put("HOST-008", "on", "sys/module/kvm_intel/parameters/nested", "Y\n"),
		put("HOST-008", "on after the next boot", "etc/modprobe.d/kvm.conf", "options kvm-intel nested=1\n"),
		put("HOST-009", "merging", "sys/kernel/mm/ksm/run", "1\n"),
		put("HOST-009", "merged before", "sys/kernel/mm/ksm/pages_shared", "17\n"),
		put("HOST-010", "two of a kind", "proc/cpuinfo", "cpu family\t: 6\nmodel\t\t: 143\nstepping\t: 8\nmicrocode\t: 0x2b000643\n\ncpu family\t: 6\nmodel\t\t: 143\nstepping\t: 8\nmicrocode\t: 0x2b000111\n"),
		{rule: "HOST-010", about: "two kinds", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			t.Put("proc/cpuinfo", "cpu family\t: 6\nmodel\t\t: 143\nstepping\t: 8\nmicrocode\t: 0x1\n\ncpu family\t: 6\nmodel\t\t: 143\nstepping\t: 6\nmicrocode\t: 0x2\n")
		}},
		booted("HOST-011", "init_on_alloc=0", finding.Fail),
		put("HOST-011", "not the default", "boot/config-6.12.0-sysfstest", "# CONFIG_INIT_ON_ALLOC_DEFAULT_ON is not set\n"),
		without("HOST-011", "default unknown", finding.Unknown, "boot/config-6.12.0-sysfstest"),
		put("HOST-012", "a partition", "proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 8388604 0 -2\n"),
		{rule: "HOST-012", about: "encrypted", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			t.Put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/dev/dm-0 partition 8388604 0 -2\n/dev/zram0 partition 1 0 100\n")
			t.Put("sys/class/block/dm-0/dm/uuid", "CRYPT-PLAIN-swap\n")
		}},
		{rule: "HOST-012", about: "a file", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/swapfile file 8388604 0 -2\n")
		}},
		put("HOST-013", "none", "sys/kernel/security/lsm", "lockdown,capability,yama\n"),
		{rule: "HOST-013", about: "permissive", board: board.Server, plant: func(t *board.Tree) {
			t.Put("sys/kernel/security/lsm", "capability,selinux\n")
			t.Put("sys/fs/selinux/enforce", "0\n")
		}},
		put("HOST-013", "AppArmor off", "sys/module/apparmor/parameters/enabled", "N\n"),
		put("HOST-016", "a module without", edac+"dimm0/dimm_edac_mode", "None\n"),
		put("HOST-016", "errors that could not be corrected", edac+"ue_count", "2\n"),
		without("HOST-016", "no driver", finding.Unknown, edac),
		without("HOST-018", "somebody else's business", finding.Manual, "run/systemd/timesync"),
		put("HOST-020", "the log is open", "proc/sys/kernel/dmesg_restrict", "0\n"),
		put("HOST-020", "open after the next boot", "etc/sysctl.d/90-debug.conf", "kernel.dmesg_restrict = 0\n"),
		{rule: "HOST-020", about: "a later file shuts it", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			t.Put("etc/sysctl.d/50-debug.conf", "kernel.dmesg_restrict = 0\n")
			t.Put("usr/lib/sysctl.d/90-shut.conf", "-kernel/dmesg_restrict=1\n")
		}},
	})
}

// flawFaults are the forms in which a kernel speaks of flaws, and the arguments that
// lay them open.
func flawFaults() []fault {
	return []fault{
		flaw("HOST-004", "mds", "Vulnerable: Clear CPU buffers attempted, no microcode; SMT vulnerable", finding.Fail),
		flaw("HOST-004", "l1tf", "Mitigation: PTE Inversion; VMX: vulnerable", finding.Fail),
		flaw("HOST-004", "itlb_multihit", "KVM: Vulnerable", finding.Fail),
		flaw("HOST-004", "spectre_v2", "Mitigation: Retpolines; IBPB: conditional; RSB filling; BHI: Vulnerable", finding.Fail),
		flaw("HOST-004", "spectre_v2", "Mitigation: Retpolines; BHI: Vulnerable, KVM: SW loop", finding.Pass),
		flaw("HOST-004", "indirect_target_selection", "Mitigation: Vulnerable, KVM: Not affected", finding.Pass),
		flaw("HOST-004", "retbleed", "Mitigation: untrained return thunk; SMT vulnerable", finding.Pass),
		flaw("HOST-004", "l1tf", "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable", finding.Pass),
		flaw("HOST-004", "itlb_multihit", "KVM: Mitigation: Split huge pages", finding.Pass),
		flaw("HOST-004", "srbds", "Unknown: Dependent on hypervisor status", finding.Unknown),
		without("HOST-004", "nothing said", finding.Unknown, "sys/devices/system/cpu/vulnerabilities"),
		booted("HOST-005", "mitigations=off", finding.Fail),
		booted("HOST-005", "vmscape=off", finding.Fail),
		booted("HOST-005", "mitigations=auto,no_guest_host", finding.Fail),
		booted("HOST-005", "mitigations=auto,nosmt,no_user_user", finding.Pass),
		booted("HOST-005", "nospectre_v2", finding.Fail),
		booted("HOST-005", "mitigations=off mitigations=auto", finding.Pass),
		booted("HOST-005", "mds=off", finding.Pass), // this CPU does not have the flaw
		put("HOST-005", "off after the next boot", "etc/default/grub", "GRUB_CMDLINE_LINUX=\"quiet mitigations=off\"\n"),
	}
}

func romFaults() []fault {
	// give runs a VMM that has the GPU, with or without an option ROM, by its address in a domain, and the options behind it.
	give := func(about, domain, option string, rom bool, state finding.State) fault {
		return fault{rule: "RST-012", about: about, board: freeGPU, state: state, device: deviceIf(state, "gpu0"), plant: func(t *board.Tree) {
			a := t.Devices["gpu0"].String()
			if rom {
				name := "sys/bus/pci/devices/" + a + "/resource"
				lines := strings.Split(t.Text(name), "\n")
				lines[6] = "0x00000000f7000000 0x00000000f707ffff 0x0000000000046200"
				t.Put(name, strings.Join(lines, "\n"))
			}
			t.Start(board.Process{Comm: "qemu-system-x86", Arguments: []string{"/opt/kata/bin/qemu-system-x86_64", "-device", "vfio-pci,host=" + domain + strings.TrimPrefix(a, "0000:") + option}})
		}}
	}
	return []fault{
		give("a ROM that the VM sees", "0000:", "", true, ""),
		give("a ROM that the VM sees, by an address without a domain", "", "", true, ""),
		give("a ROM file", "0000:", ",romfile=/x.rom", true, ""),
		give("a ROM that is kept away", "0000:", ",rombar=0", true, finding.Pass),
		give("no ROM file", "0000:", ",id=x,romfile=", true, finding.Pass),
		give("no ROM", "0000:", "", false, finding.Pass),
		{rule: "RST-012", about: "a function that is not there", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: "qemu-system-x86", Arguments: []string{"/opt/kata/bin/qemu-system-x86_64", "-device", "vfio-pci,host=0000:99:00.0"}})
		}},
		{rule: "RST-012", about: "a function that nobody knows", board: freeGPU, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: "qemu-system-x86", Arguments: []string{"/opt/kata/bin/qemu-system-x86_64", "-device", "vfio-pci,host=gpu0"}})
		}},
	}
}

// freeGPU is a node with one GPU, that nobody has.
func freeGPU(tb testing.TB) *board.Tree {
	tb.Helper()
	t := board.New(tb)
	t.Devices["gpu0"] = t.AddGPU(0x3b)
	return t
}

// deviceIf names the device where the rule fails.
func deviceIf(state finding.State, name string) string {
	if state == "" {
		return name
	}
	return ""
}

func bmcFaults() []fault {
	with := func(about string, state finding.State, plant func(*board.Tree)) fault {
		return fault{rule: "HOST-019", about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
			t.Put("sys/class/ipmi/ipmi0/dev", "240:0\n")
			t.Own("dev/ipmi0", "20600", 0, 0)
			plant(t)
		}}
	}
	return []fault{
		with("a tenant's container has the node", "", func(t *board.Tree) { runWith(t, "t1", "/dev/ipmi0") }),
		with("a tenant's container has the node by another name", "", func(t *board.Tree) {
			runWithDevice(t, "t1", &specs.LinuxDevice{Path: "/dev/x", Type: "c", Major: 240})
		}),
		with("a tenant's container has all of /dev", "", func(t *board.Tree) { t.Run("t1", "/dev") }),
		with("everybody may open it", "", func(t *board.Tree) { t.Own("dev/ipmi0", "20666", 0, 0) }),
		with("a group may read it", "", func(t *board.Tree) { t.Own("dev/ipmi0", "20640", 0, 108) }),
		with("a copy that does not say who may open it", finding.Unknown, func(t *board.Tree) {
			t.Put("sys/class/ipmi/ipmi1/dev", "240:1\n")
			t.Put("dev/ipmi1", "")
		}),
		with("root alone has it", finding.Pass, func(t *board.Tree) { runWith(t, "t1", "/dev/null") }),
		with("a pod of the node's has it", finding.Pass, func(t *board.Tree) { runWith(t, "monitoring", "/dev/ipmi0") }),
		with("no containers to be seen", finding.Unknown, hideContainers),
		{rule: "HOST-019", about: "no BMC", board: board.Server, state: finding.NotApplicable, plant: func(*board.Tree) {}},
	}
}

// hideContainers leaves neither bundles nor an answer of containerd's.
func hideContainers(t *board.Tree) {
	t.Delete("run/containerd")
	t.Delete(runtimes.RunningFile)
}

// runWith has containerd run a container of a tenant's with a device node.
func runWith(t *board.Tree, tenant, device string) {
	t.TB.Helper()
	runWithDevice(t, tenant, &specs.LinuxDevice{Path: device})
}

func runWithDevice(t *board.Tree, tenant string, device *specs.LinuxDevice) {
	t.TB.Helper()
	spec := specs.Spec{
		Annotations: map[string]string{"io.kubernetes.cri.sandbox-namespace": tenant, "io.kubernetes.cri.sandbox-name": "nosy"},
		Linux:       &specs.Linux{Devices: []specs.LinuxDevice{*device}},
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.TB.Fatal(err)
	}
	t.Put("run/containerd/io.containerd.runtime.v2.task/k8s.io/nosy/config.json", string(text))
}

func numaFaults() []fault {
	// mems rewrites what VMMs may have memory of, on a node where the GPU of t1 is at NUMA
	// node 1.
	mems := func(about, line string, state finding.State) fault {
		return fault{rule: "HOST-017", about: about, board: board.Server, state: state, device: deviceIf(state, "gpu0"), plant: func(t *board.Tree) {
			t.Put("sys/devices/system/node/online", "0-1\n")
			t.Put("sys/bus/pci/devices/"+t.Devices["gpu0"].String()+"/numa_node", "1\n")
			for pid := range 100 {
				name := fmt.Sprintf("proc/%d/status", 4700+pid)
				if text, ok := statusOf(t, name); ok {
					t.Put(name, strings.Replace(text, "Mems_allowed_list:\t0-1\n", line, 1))
				}
			}
		}}
	}
	return []fault{
		mems("the other socket's", "Mems_allowed_list:\t0\n", ""),
		mems("a list without it", "Mems_allowed_list:\t0,3-5\n", ""),
		mems("its own, among others", "Mems_allowed_list:\t0,1\n", finding.Pass),
		mems("not said", "", finding.Unknown),
	}
}

func statusOf(t *board.Tree, name string) (string, bool) {
	fsys, _ := t.Read()
	defer func() { _ = fsys.Close() }()
	text, err := fsys.ReadAtMost(name, 1<<16)
	return string(text), err == nil
}

func gpuNodeFaults() []fault {
	daemon := func(about, comm string, state finding.State) fault {
		return fault{rule: "GPU-013", about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: comm})
		}}
	}
	return []fault{
		daemon("persistenced", "nvidia-persiste", ""),
		daemon("the host engine", "nv-hostengine", ""),
		daemon("another daemon", "sshd", finding.Pass),
		{rule: "GPU-013", about: "a node with GPUs of its own", board: board.HGX, state: finding.Pass, plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: "nvidia-persiste"})
		}},
		{rule: "GPU-012", about: "one that was resized", board: board.Server, device: "gpu1", plant: func(t *board.Tree) {
			name := "sys/bus/pci/devices/" + t.Devices["gpu1"].String() + "/resource"
			lines := strings.Split(t.Text(name), "\n")
			for i, line := range lines[:6] {
				if !strings.HasPrefix(line, "0x0000000000000000 0x0000000000000000") {
					lines[i] = "0x0000200000000000 0x000020000fffffff 0x000000000014220c"
					break
				}
			}
			t.Put(name, strings.Join(lines, "\n"))
		}},
	}
}

package check_test

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
	"github.com/kata-vfio/kata-vfio/test/board"
)

func vfioFaults() []fault {
	return slices.Concat(holderFaults(), registerFaults(), moduleFaults(), bindingFaults(), udevFaults(), nodeOwnerFaults(), pinningFaults(), vfioKernelFaults(), vfioSpeedFaults())
}

// nodeOf returns the node of the group of a board's device.
func nodeOf(t *board.Tree, name string) string {
	group, _ := t.Group(t.Devices[name])
	return vfio.GroupNode(group)
}

// record returns the record of a board's claim.
func record(t *board.Tree, tenant, name string) *journal.Record {
	t.TB.Helper()
	store := journal.OpenReadOnly(t.Path("var/lib/kata-vfio/journal"))
	rec, err := store.Load(tenant + "-" + name + "-0000-4000-8000-000000000000")
	if err != nil || rec == nil {
		t.TB.Fatalf("record of %s/%s: %v, %v", tenant, name, rec, err)
	}
	return rec
}

// became gives the record of a claim another state, as a release leaves it.
func became(state journal.State, tenant, name string) func(*board.Tree) {
	return func(t *board.Tree) {
		t.TB.Helper()
		rec := record(t, tenant, name)
		rec.State = state
		t.Save(rec)
	}
}

// stale makes the record of a claim one of an earlier boot, as a reboot leaves it.
func stale(tenant, name string) func(*board.Tree) {
	return func(t *board.Tree) {
		t.TB.Helper()
		rec := record(t, tenant, name)
		rec.BootID = "earlier"
		t.Save(rec)
	}
}

// stranger is a process that has a device open and nothing to do with its claim.
func stranger(t *board.Tree, device string) board.Process {
	return board.Process{
		Comm: "dpdk-testpmd", Exe: "/usr/bin/dpdk-testpmd", Arguments: []string{"dpdk-testpmd", "-l", "0-3"},
		Files: []string{"/dev/vfio/vfio", nodeOf(t, device), "anon_inode:[vfio-device]"},
	}
}

func holderFaults() []fault {
	held := "gpu0"
	end := func(t *board.Tree, p journal.Process) { t.Delete(procOf(p)) }
	return []fault{
		{rule: "VFIO-024", about: "a GPU beside a drive that the node uses", board: board.New, plant: func(t *board.Tree) { t.AddWithBusyMate(0x71, 71) }},
		{rule: "VFIO-009", about: "a process that is no VMM of the claim", board: board.Server, device: held, plant: func(t *board.Tree) {
			end(t, record(t, "t1", "train").Sandbox.VMM)
			t.Start(stranger(t, held))
		}},
		{rule: "VFIO-009", about: "another process with the VMM's number", board: board.Server, plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			rec.Sandbox.VMM.StartTime++
			rec.Sandbox.ID = "another"
			t.Save(rec)
		}},
		{rule: "VFIO-009", about: "another tenant's VMM", board: board.Server, plant: func(t *board.Tree) {
			rec := record(t, "t2", "serve")
			end(t, rec.Sandbox.VMM)
			rec.Plan.Devices[0].Address = t.Devices[held]
			other := record(t, "t1", "train")
			rec.Plan.Functions = append(rec.Plan.Functions, other.Plan.Functions...)
			t.StartVMM(rec)
		}},
		{rule: "VFIO-009", about: "no claim has it", board: board.Server, plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			t.Delete("var/lib/kata-vfio/journal/" + rec.ID() + ".json")
		}},
		{rule: "VFIO-009", about: "a device that was passed on without its node", board: board.Server, plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: "vfio-user", Files: []string{"anon_inode:[vfio-device]"}})
		}},
		{rule: "VFIO-009", about: "a container's processes are all that is seen", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Delete("proc/1/ns/pid")
			t.Symlink("proc/1/ns/pid", "pid:[4026532621]")
		}},
		{rule: "VFIO-010", about: "two sandboxes hold it", board: board.Server, device: held, plant: func(t *board.Tree) {
			p := stranger(t, held)
			p.Comm, p.Container, p.Pod = "cloud-hyperviso", "aa00000000000000000000000000000000000000000000000000000000000000", "other"
			t.Start(p)
		}},
		{rule: "VFIO-010", about: "two claims are prepared with it", board: board.Server, device: held, plant: func(t *board.Tree) {
			t.Give("t3", "other", t.Devices[held])
		}},
		{rule: "VFIO-011", about: "its claim is being released", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			rec.State = journal.Releasing
			t.Save(rec)
		}},
		{rule: "VFIO-011", about: "its claim is of before the node's start", board: board.Server, plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			rec.BootID = "00000000-0000-4000-8000-000000000000"
			t.Save(rec)
		}},
		{rule: "VFIO-011", about: "a VMM is left of a claim that is gone", board: board.Server, plant: func(t *board.Tree) {
			t.Delete("var/lib/kata-vfio/journal/" + record(t, "t1", "train").ID() + ".json")
		}},
		{rule: "VFIO-012", about: "a plain container has it", board: board.Server, plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			end(t, rec.Sandbox.VMM)
			p := stranger(t, held)
			p.Comm, p.Container, p.Pod = "python3", rec.Sandbox.ID, rec.Plan.Claim.Pods[0].UID
			t.Start(p)
		}},
	}
}

func registerFaults() []fault {
	return []fault{
		{rule: "VFIO-013", about: "a process maps its registers", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: "flash", Maps: []string{"/sys/devices/pci0000:3a/0000:3a:01.0/" + t.Devices["gpu0"].String() + "/resource0"}})
		}},
	}
}

func procOf(p journal.Process) string { return "proc/" + strconv.Itoa(p.PID) }

func nodeOwnerFaults() []fault {
	return []fault{
		groupNode("a node that all may open", "20666", 0),
		groupNode("a node that all may read", "20644", 0),
		groupNode("a node that a group may read", "20640", 36),
		{rule: "VFIO-007", about: "nodes that can't be listed", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Delete("dev/vfio")
			t.Symlink("dev/vfio", "vfio") // a loop
		}},
		{rule: "VFIO-008", about: "iommufd that all may read", board: withIOMMUFD, plant: func(t *board.Tree) { t.Own("dev/iommu", "20664", 0, 0) }},
		{rule: "VFIO-008", about: "iommufd of a user's", board: withIOMMUFD, plant: func(t *board.Tree) { t.Own("dev/iommu", "20660", 1000, 0) }},
		{rule: "VFIO-008", about: "root's alone", board: withIOMMUFD, state: finding.Pass, plant: func(*board.Tree) {}},
	}
}

// groupNode has the node of gpu0's group have another mode or group than the kernel gives it.
func groupNode(about, mode string, gid uint32) fault {
	return fault{rule: "VFIO-007", about: about, board: board.Server, plant: func(t *board.Tree) {
		t.Own(strings.TrimPrefix(nodeOf(t, "gpu0"), "/"), mode, 0, gid)
	}}
}

// withIOMMUFD is a node with iommufd, whose nodes are as the kernel makes them.
func withIOMMUFD(tb testing.TB) *board.Tree {
	tb.Helper()
	t := board.New(tb)
	t.WithIOMMUFD()
	t.Own("dev/iommu", "20660", 0, 0)
	return t
}

func moduleFaults() []fault {
	return []fault{
		{rule: "VFIO-001", about: "off", board: board.Server, plant: func(t *board.Tree) {
			t.SetParameter("vfio_pci", "disable_denylist", "Y")
		}},
		{rule: "VFIO-001", about: "off after the next boot", board: board.Server, plant: func(t *board.Tree) {
			t.Put("etc/modprobe.d/x.conf", "options vfio-pci disable_denylist=1\n")
		}},
		{rule: "VFIO-002", about: "on", board: board.Server, plant: func(t *board.Tree) {
			t.SetParameter("vfio_pci", "enable_sriov", "Y")
		}},
		{rule: "VFIO-015", about: "masked at the controller", board: board.Server, plant: func(t *board.Tree) {
			t.SetParameter("vfio_pci", "nointxmask", "Y")
		}},
		{rule: "VFIO-015", about: "legacy VGA for a VGA card", board: board.Server, plant: func(t *board.Tree) {
			t.SetParameter("vfio_pci", "disable_vga", "N")
			t.AddRootPort(0x81)
			card := sysfstest.GPU(pci.Address{Bus: 0x81})
			card.Class = pci.ClassVGA << 8
			t.Add(card)
			t.Give("t3", "draw", card.Address)
		}},
	}
}

// bindFree has vfio-pci take a VF that nobody has.
func bindFree(t *board.Tree) string {
	a := t.Devices["nic0/vf3"]
	for _, w := range [][2]string{
		{sysfs.FunctionPath(a) + "/driver_override", "vfio-pci"},
		{"sys/bus/pci/drivers/igbvf/unbind", a.String()},
		{"sys/bus/pci/drivers_probe", a.String()},
	} {
		if err := t.Write(w[0], []byte(w[1])); err != nil {
			t.TB.Fatal(err)
		}
	}
	return sysfs.FunctionPath(a)
}

func bindingFaults() []fault {
	return []fault{
		{rule: "VFIO-003", about: "on the command line", board: board.Server, plant: func(t *board.Tree) {
			t.Put("proc/cmdline", "root=/dev/sda1 vfio_pci.ids=10de:2330,10de:22ba\n")
		}},
		{rule: "VFIO-003", about: "in modprobe.d", board: board.Server, plant: func(t *board.Tree) {
			t.Put("etc/modprobe.d/x.conf", "options vfio-pci ids=10de:2330\n")
		}},
		{rule: "VFIO-003", about: "by a command of modprobe's", board: board.Server, plant: func(t *board.Tree) {
			t.Put("etc/modprobe.d/x.conf", "install vfio_pci /usr/local/bin/override.sh\n")
		}},
		{rule: "VFIO-004", about: "an id was injected", board: board.Server, device: "nic0/vf3", plant: func(t *board.Tree) {
			t.Put(bindFree(t)+"/driver_override", "(null)\n")
		}},
		{rule: "VFIO-005", about: "another driver than the override's", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			t.Put(sysfs.FunctionPath(t.Devices["gpu0"])+"/driver_override", "nvidia\n")
		}},
		{rule: "VFIO-005", about: "driverctl", board: board.Server, device: "nic0", plant: func(t *board.Tree) {
			t.Put("etc/driverctl.d/pci-"+t.Devices["nic0"].String(), "vfio-pci\n")
		}},
		{rule: "VFIO-006", about: "bound by hand", board: board.Server, device: "nic0/vf3", plant: func(t *board.Tree) { bindFree(t) }},
		{rule: "VFIO-014", about: "on uio_pci_generic", board: board.Server, plant: func(t *board.Tree) {
			t.AddDriver("uio_pci_generic", sysfstest.Driver{})
			t.AddRootPort(0x81)
			f := sysfstest.NIC(pci.Address{Bus: 0x81})
			f.Driver = "uio_pci_generic"
			t.Add(f)
		}},
	}
}

func udevFaults() []fault {
	planted := func(about, rule string) fault {
		return fault{rule: "VFIO-017", about: about, board: board.Server, plant: func(t *board.Tree) {
			t.Put("etc/udev/rules.d/10-vfio.rules", rule+"\n")
		}}
	}
	return []fault{
		planted("everybody", `SUBSYSTEM=="vfio", MODE="0666"`),
		planted("iommufd, over two lines", "KERNEL==\"iommu\", \\\n  MODE:=\"0666\""),
		planted("a broad group", `SUBSYSTEM=="vfio|vfio-dev", GROUP="users", MODE="0660"`),
		planted("who sits at the console", `KERNEL=="vfio[0-9]*", TAG+="uaccess"`),
		{rule: "VFIO-017", about: "until the next boot", board: board.Server, plant: func(t *board.Tree) {
			t.Put("run/udev/rules.d/10-vfio.rules", `SUBSYSTEM=="vfio", MODE="0666"`+"\n")
		}},
		{rule: "VFIO-017", about: "of a site's own package", board: board.Server, plant: func(t *board.Tree) {
			t.Put("usr/local/lib/udev/rules.d/10-vfio.rules", `SUBSYSTEM=="vfio", MODE="0666"`+"\n")
		}},
	}
}

// TestUdevRulesAreLookedForWhereUdevReadsThem: the evidence names each directory that there is.
func TestUdevRulesAreLookedForWhereUdevReadsThem(t *testing.T) {
	tree := board.Server(t)
	var want []string
	for _, dir := range []string{"etc/udev/rules.d", "run/udev/rules.d", "usr/local/lib/udev/rules.d", "usr/lib/udev/rules.d"} {
		tree.Put(dir+"/90-disk.rules", "SUBSYSTEM==\"block\", MODE=\"0660\"\n")
		want = append(want, "/"+dir)
	}
	f := found(t, tree, "VFIO-017")
	var got []string
	for _, e := range f.Evidence {
		got = append(got, e.Path)
	}
	if diff := cmp.Diff(want, got); f.State != finding.Pass || diff != "" {
		t.Errorf("%s, with evidence (-want +got):\n%s", f.State, diff)
	}
}

// trained is the record of the claim that the server's gpu0 is given to.
func trained(t *board.Tree) *journal.Record { return record(t, "t1", "train") }

// vfioKataFaults are what Kata's own states and the journal contradict each other in.
func vfioKataFaults() []fault {
	damaged := func(rule string) fault {
		return fault{rule: rule, about: "a state that can't be read", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put(board.StateFile(trained(t)), "{")
		}}
	}
	return []fault{
		{rule: "VFIO-019", about: "a function that no claim has", board: board.Server, device: "nic0/vf1", plant: func(t *board.Tree) {
			addToState(t, t.Devices["nic0/vf1"].String())
		}},
		{rule: "VFIO-019", about: "a function of another pod's claim", board: board.Server, device: "gpu1", plant: func(t *board.Tree) {
			addToState(t, t.Devices["gpu1"].String())
		}},
		damaged("VFIO-019"), damaged("VFIO-020"),
		{rule: "VFIO-020", about: "a state whose VM is gone", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			stop(t)
		}},
		{rule: "VFIO-020", about: "a claim whose sandbox is gone", board: board.Server, plant: func(t *board.Tree) {
			t.Delete("run/vc/sbs/" + trained(t).Sandbox.ID)
			stop(t)
		}},
		{rule: "VFIO-020", about: "a VM that starts", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			id := trained(t).Sandbox.ID
			t.Delete("run/vc/sbs/" + id)
			stop(t)
			t.Put("run/containerd/io.containerd.runtime.v2.task/k8s.io/"+id+"/config.json",
				`{"annotations": {"io.kubernetes.cri.sandbox-namespace": "t1", "io.kubernetes.cri.sandbox-name": "train"}}`)
		}},
	}
}

// addToState has the sandbox of the tenant t1 have another function by Kata's state.
func addToState(t *board.Tree, address string) {
	name := board.StateFile(trained(t))
	t.Put(name, strings.Replace(t.Text(name), `"VFIODevs":[`, `"VFIODevs":[{"BDF":"`+address+`","Bus":"rp1","GuestPciPath":{},"Type":1},`, 1))
}

// stop ends the VM of the tenant t1.
func stop(t *board.Tree) {
	t.Delete(procOf(trained(t).Sandbox.VMM))
}

// TestVFIOWithoutKataState audits a claim with a running VM.
func TestVFIOWithoutKataState(t *testing.T) {
	tree := board.Server(t)
	tree.Delete("run/vc")
	for _, f := range audit(t, tree).Findings {
		if f.ID == "VFIO-020" && f.State != finding.NotApplicable || f.ID == "VFIO-019" && f.State != finding.Pass {
			t.Errorf("%s: %s: %s", f.ID, f.State, f.Text)
		}
	}
}

func vfioKernelFaults() []fault {
	return []fault{
		{rule: "VFIO-016", about: "any kernel", board: board.Server, state: finding.Manual, plant: func(*board.Tree) {}},
		{rule: "VFIO-016", about: "a kernel that does not say its number", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Delete("proc/sys/kernel/osrelease")
		}},
	}
}

// TestKernelsByTheirNumber: a number tells that a fix is there, never that all are.
func TestKernelsByTheirNumber(t *testing.T) {
	const latest, branched, older = "CVE-2024-26812", "CVE-2024-26810 (", "CVE-2020-12888"
	for release, open := range map[string][]string{
		"6.9.0":                nil,
		"6.12.107+deb13-amd64": nil, // Debian 13's
		"6.12.0-sysfstest":     nil,
		"7.0":                  nil,
		"6.6.95-flatcar":       {latest},
		"6.6.24":               {latest},
		"6.6.23":               {latest, branched},
		"6.8.0-40-generic":     {latest}, // Ubuntu's: its own number is behind the dash
		"6.5.13":               {latest, branched},
		"5.14.0-503.el9":       {latest},
		"4.18.0-553.el8_10":    {latest, older, "CVE-2019-3882"},
		"6.9.0-rc1":            {latest, older},
		"not a number":         {latest, older},
		"6":                    {latest, older},
		"6.x.1":                {latest, older},
		"6.1.0-18-amd64":       {latest}, // Debian's
		"5.15.154-1-default":   {latest},
	} {
		tree := board.Server(t)
		tree.Put("proc/sys/kernel/osrelease", release+"\n")
		for _, f := range audit(t, tree).Findings {
			if f.ID != "VFIO-016" {
				continue
			}
			if f.State != finding.Manual || len(f.Evidence) == 0 || len(f.Devices) == 0 {
				t.Errorf("%s: %s, %d devices, evidence %v", release, f.State, len(f.Devices), f.Evidence)
			}
			if asks := strings.Contains(f.Text, "does not show"); asks != (len(open) > 0) {
				t.Errorf("%s: %s", release, f.Text)
			}
			for _, cve := range open {
				if !strings.Contains(f.Text, cve) {
					t.Errorf("%s: it does not name %s: %s", release, cve, f.Text)
				}
			}
			if strings.HasPrefix(release, "6.6.") && strings.Contains(f.Text, branched) != slices.Contains(open, branched) {
				t.Errorf("%s: the fix of its branch counts otherwise: %s", release, f.Text)
			}
		}
	}
}

// cgroupOf returns the directory of a process' cgroup.
func cgroupOf(t *board.Tree, p journal.Process) string {
	t.TB.Helper()
	return "sys/fs/cgroup" + strings.TrimSpace(strings.TrimPrefix(t.Text(procOf(p)+"/cgroup"), "0::"))
}

func pinningFaults() []fault {
	vmm := func(t *board.Tree) journal.Process { return record(t, "t1", "train").Sandbox.VMM }
	unbound := func(t *board.Tree) { t.Put(path.Dir(cgroupOf(t, vmm(t)))+"/memory.max", "max\n") }
	return []fault{
		{rule: "VFIO-018", about: "a pod without a limit", board: board.Server, plant: unbound},
		{rule: "VFIO-018", about: "a VMM outside of its pod", board: board.Server, plant: func(t *board.Tree) {
			t.Put(procOf(vmm(t))+"/cgroup", "0::/kata_overhead/1\n")
			t.Put("sys/fs/cgroup/kata_overhead/1/memory.max", "max\n")
		}},
		{rule: "VFIO-018", about: "no limit by cgroup v1", board: board.Server, plant: func(t *board.Tree) {
			t.Put(procOf(vmm(t))+"/cgroup", "12:cpu,memory:/kata\n1:name=systemd:/kata\n0::/\n")
			t.Put("sys/fs/cgroup/memory/kata/memory.limit_in_bytes", "9223372036854771712\n")
		}},
		{rule: "VFIO-018", about: "a limit by cgroup v1", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			t.Put(procOf(vmm(t))+"/cgroup", "12:memory:/kata/pod\n0::/\n")
			t.Put("sys/fs/cgroup/memory/kata/pod/memory.limit_in_bytes", "9223372036854771712\n")
			t.Put("sys/fs/cgroup/memory/kata/memory.limit_in_bytes", "4294967296\n")
		}},
		{rule: "VFIO-018", about: "neither the privilege nor an endless limit to lock memory", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			unbound(t)
			dir := procOf(vmm(t))
			t.Put(dir+"/status", strings.Replace(t.Text(dir+"/status"), "000001ffffffffff", "00000000a80425fb", 1))
			t.Put(dir+"/limits", strings.Replace(t.Text(dir+"/limits"), "unlimited ", "8388608   ", 1))
		}},
		{rule: "VFIO-018", about: "a cgroup that is not in sight", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put(procOf(vmm(t))+"/cgroup", "0::/../../kubepods-pod1.slice/x.scope\n")
		}},
		{rule: "VFIO-018", about: "a cgroup that is gone", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Delete(cgroupOf(t, vmm(t)))
		}},
		{rule: "VFIO-018", about: "no processes to be seen", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			_ = os.Remove(t.Path("proc/1/ns/pid"))
		}},
	}
}

package bootstrap_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/writer"
)

// fit is a Debian node that bootstrap can set up.
func fit(t *testing.T) *node {
	t.Helper()
	n := newNode(t, files("Debian 12"))
	n.put("proc/cmdline", "root=/dev/sda1 ro quiet\n")
	return n
}

// What is in the way is named, with the file and what to do, and nothing is changed.
func TestHostileNodeIsRefusedAndLeftAlone(t *testing.T) {
	suse := files("openSUSE")
	for _, c := range []struct {
		name   string
		files  map[string]string
		change func(*node)
		fields string
		want   string
	}{
		{"the boot loader's settings are a link", suse, func(n *node) {
			n.put("etc/default/real", n.read("etc/default/grub"))
			n.put("etc/default/grub", "-> real")
		}, "", "/etc/default/grub is a link to real, and bootstrap does not write through links"},
		{
			"our own file is a link out of the root", nil, func(n *node) { n.put("etc/modprobe.d/50-kata-vfio.conf", "-> /etc/passwd") }, "",
			"/etc/modprobe.d/50-kata-vfio.conf is a link to /etc/passwd",
		},
		{
			"a directory is a link out of the root", nil, func(n *node) { n.put("etc/modules-load.d", "-> "+t.TempDir()) }, "",
			"a link that is absolute or leads out of the root",
		},
		{"a directory is a file", nil, func(n *node) { n.put("etc/modules-load.d", "x") }, "", "etc/modules-load.d"},
		{"a file is a directory", nil, func(n *node) { n.put("etc/modules-load.d/kata-vfio.conf/x", "") }, "", "/etc/modules-load.d/kata-vfio.conf is not a regular file"},
		{"DOS line ends", suse, func(n *node) {
			n.put("etc/default/grub", strings.ReplaceAll(n.read("etc/default/grub"), "\n", "\r\n"))
		}, "", "/etc/default/grub has DOS line ends"},
		{"damaged marks", suse, func(n *node) {
			n.put("etc/default/grub", n.read("etc/default/grub")+"# kata-vfio-bootstrap: begin\n")
		}, "", "its kata-vfio-bootstrap marks are damaged"},
		{"the IOMMU is switched off in a fragment", nil, func(n *node) {
			n.put("etc/default/grub.d/99-site.cfg", "\n# ours\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet intel_iommu=off\"\n")
		}, "", "/etc/default/grub.d/99-site.cfg line 3: intel_iommu=off switches DMA translation off; remove intel_iommu=off from the line"},
		{
			"passthrough is set, and not asked for", suse, func(n *node) { n.put("etc/default/grub", "GRUB_CMDLINE_LINUX='iommu=pt'\n") }, "",
			"/etc/default/grub line 1: iommu=pt contradicts kernel.iommu: On",
		},
		{"an entry has unsafe interrupts", files("Fedora"), func(n *node) {
			n.put("boot/loader/entries/a.conf", "linux /a\noptions vfio_iommu_type1.allow_unsafe_interrupts=1\n")
		}, "", "/boot/loader/entries/a.conf line 2: vfio_iommu_type1.allow_unsafe_interrupts=1 lets VMs have devices"},
		{
			"another's huge pages", nil, func(n *node) { n.put("etc/default/grub", "GRUB_CMDLINE_LINUX=\"hugepages=64\"\n") },
			"kernel: {hugePages: [{size: 1Gi, count: 1}]}\n", "line 1: hugepages=64 contradicts kernel.hugePages",
		},
		{
			"other huge pages of the same number", nil, func(n *node) { n.put("etc/default/grub", "GRUB_CMDLINE_LINUX=\"hugepages=64\"\n") },
			"kernel: {hugePages: [{size: 1Gi, count: 64}]}\n", "line 1: hugepages=64 contradicts kernel.hugePages",
		},
		{"a bad argument before a comment", nil, func(n *node) {
			n.put("etc/default/grub", "GRUB_CMDLINE_LINUX=\"quiet intremap=off\" # keep\n")
		}, "", "line 1: intremap=off disables interrupt remapping"},
		{"a bad argument in the second line of kernels to come", files("Fedora"), func(n *node) {
			n.put("etc/kernel/cmdline", "root=/dev/sda1\nro intremap=off\n")
		}, "", "/etc/kernel/cmdline line 2: intremap=off"},
		{"isolation that is not there", nil, func(n *node) {
			n.put("etc/default/grub", "GRUB_CMDLINE_LINUX=\"pcie_acs_override=downstream\"\n")
		}, "", "pcie_acs_override=downstream makes the kernel assume"},
		{"systemd-boot's partition is not mounted", nil, func(n *node) {
			n.put("sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", "\x06\x00\x00\x00systemd-boot 257")
		}, "", "mount the EFI system partition"},
		{
			"a module option", nil, func(n *node) { n.put("etc/modprobe.d/vfio.conf", "# old\noptions vfio-pci disable_denylist=1\n") }, "",
			"/etc/modprobe.d/vfio.conf line 2: it sets disable_denylist of vfio_pci to 1",
		},
		{"ids", nil, func(n *node) { n.put("usr/lib/modprobe.d/vfio.conf", "options vfio_pci ids=10de:2330\n") }, "", "list addresses in vfio.keepOff"},
		{"a module that may not be loaded", nil, func(n *node) { n.put("etc/modprobe.d/hard.conf", "install vfio-pci /bin/false\n") }, "", "it prevents vfio_pci from loading"},
		{
			"no IOMMU", nil, func(n *node) {
				n.remove("sys/firmware/acpi/tables/DMAR", "sys/class/iommu/dmar0")
				n.put("sys/firmware/acpi/tables/DSDT", "")
			}, "",
			"the firmware describes no IOMMU (no ACPI table DMAR, IVRS or IORT); in the firmware setup enable \"Intel VT for Directed I/O (VT-d)\"",
		},
		{"no interrupt remapping", nil, func(n *node) { n.put("sys/firmware/acpi/tables/DMAR", "DMAR"+strings.Repeat("\x00", 60)) }, "", "no interrupt remapping"},
		{"no network for Kata's VMs", nil, func(n *node) {
			n.put("usr/lib/modules/6.12.9-1/modules.builtin", "kernel/fs/ext4/ext4.ko\n")
		}, "", "kernel 6.12.9-1 lacks modules that Kata needs: nfnetlink (the Go runtime opens"},
		{"no virtiofsd", nil, func(n *node) { n.remove("opt/kata/libexec/virtiofsd") }, "", "/opt/kata/libexec/virtiofsd (virtio_fs_daemon), which does not exist"},
		{"no VFIO", nil, func(n *node) { n.put("usr/lib/modules/6.12.9-1/modules.dep", "kernel/a.ko:\n") }, "", "kernel 6.12.9-1 has no vfio-pci"},
		{
			"no VFs", nil, func(n *node) { n.put("sys/bus/pci/devices/0000:5e:00.0/uevent", "") },
			"virtualFunctions: [{pf: '0000:5e:00.0', count: 8}]\n", "PF 0000:5e:00.0 supports no VFs; enable SR-IOV in the firmware setup",
		},
		{
			"a number of VFs that is not one", nil, func(n *node) {
				n.put("sys/bus/pci/devices/0000:5e:00.0/sriov_totalvfs", "many\n")
				n.put("sys/bus/pci/devices/0000:5e:00.0/uevent", "DRIVER=ice\n")
			},
			"virtualFunctions: [{pf: '0000:5e:00.0', count: 8}]\n", `sriov_totalvfs is "many", which is not a number; check the driver of the PF`,
		},
		{
			"too many VFs", nil, func(n *node) {
				n.put("sys/bus/pci/devices/0000:5e:00.0/sriov_totalvfs", "4\n")
				n.put("sys/bus/pci/devices/0000:5e:00.0/uevent", "DRIVER=ice\n")
			},
			"virtualFunctions: [{pf: '0000:5e:00.0', count: 8}]\n", "the blueprint requires 8 VFs of PF 0000:5e:00.0, which supports 4",
		},
		{"no such interface", nil, func(*node) {}, "virtualFunctions: [{pf: ens1, count: 8}]\n", "the node has no interface ens1"},
		{"an old kernel", nil, func(*node) {}, "versions: {kernel: {minimum: '6.18'}}\n", "kernel is 6.12.9-1 (the running kernel), but the blueprint requires 6.18 or newer"},
		{"GRUB without its tools", nil, func(n *node) { n.remove("usr/sbin/update-grub", "usr/sbin/grub-mkconfig") }, "", "the tool for it (update-grub, grub2-mkconfig) is not installed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.files == nil {
				c.files = files("Debian 12")
			}
			n := newNode(t, c.files)
			n.put("proc/cmdline", "ro\n")
			c.change(n)
			before, b := n.snapshot(), parse(t, c.fields)
			n.expect(n.plan(b), bootstrap.Impossible, "plan")
			_, err := n.engine().Apply(t.Context(), b, "")
			if refused, ok := errors.AsType[*bootstrap.RefusedError](err); !ok || !strings.Contains(refused.Error(), c.want) {
				t.Errorf("error %v\nwant %q", err, c.want)
			}
			n.same(before, "after the refusal")
			if len(n.tools.ran) > 0 {
				t.Errorf("ran %v", n.tools.ran)
			}
		})
	}
}

func (n *node) remove(names ...string) {
	n.t.Helper()
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(n.root, name)); err != nil {
			n.t.Fatal(err)
		}
	}
}

// broken is a disk on which one file can't be replaced, or none.
type broken struct {
	bootstrap.Files
	name     string
	readOnly bool
}

func (b *broken) Writable(string) error {
	if b.readOnly {
		return unix.EROFS
	}
	return nil
}

func (b *broken) Stage(name string, content []byte, like state.Image) (commit, discard func() error, err error) {
	commit, discard, err = b.Files.Stage(name, content, like)
	if name == b.name && err == nil {
		return func() error { return errors.Join(unix.EPERM, discard()) }, discard, nil
	}
	return commit, discard, err
}

func (b *broken) Symlink(name, target string) error {
	if name == b.name {
		return unix.EPERM
	}
	return b.Files.Symlink(name, target)
}

func TestFileThatCantBeReplacedHasTheOthersTakenBack(t *testing.T) {
	for _, f := range fit(t).plan(blueprint.Default()).Files {
		n := fit(t)
		before := n.snapshot()
		n.files = func(files bootstrap.Files) bootstrap.Files { return &broken{Files: files, name: f.Path} }
		_, err := n.engine().Apply(t.Context(), blueprint.Default(), "")
		if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "the changes are undone") {
			t.Errorf("error %v", err)
		}
		n.same(before, "after the error at "+f.Path)
		if status, err := n.engine().Status(); err != nil || len(status.Files) > 0 || status.Unfinished {
			t.Errorf("status %+v, %v", status, err)
		}
	}
}

func TestReadOnlyDiskIsAProblemBeforeAnythingIsDone(t *testing.T) {
	n := fit(t)
	n.files = func(files bootstrap.Files) bootstrap.Files { return &broken{Files: files, readOnly: true} }
	n.expect(n.plan(blueprint.Default()), bootstrap.Impossible, "on a read-only disk")
}

func TestRevertKeepsWhatSomebodyHasChanged(t *testing.T) {
	n := fit(t)
	before := n.snapshot()
	n.apply(blueprint.Default())
	changed, removed := "etc/modprobe.d/50-kata-vfio.conf", "etc/modules-load.d/kata-vfio.conf"
	n.put(changed, n.read(changed)+"options kvm x=y\n")
	n.remove(removed)
	r := n.revert()
	if len(r.Kept) != 1 || !strings.Contains(r.Kept[0].Diff, "+options kvm x=y\n") {
		t.Errorf("kept %+v", r.Kept)
	}
	want := n.snapshot()
	if got := want[changed]; !strings.Contains(got, "options kvm") {
		t.Errorf("the changed file is %q", got)
	}
	n.remove(changed)
	n.revert()
	n.same(before, "when the changed file is away")
}

// A kernel that was removed since does not get its boot loader's entry back.
func TestRevertSkipsRemovedKernels(t *testing.T) {
	n := newNode(t, files("Fedora"))
	n.put("boot/loader/entries/m-6.11.conf", entry)
	n.put("proc/cmdline", "ro\n")
	n.apply(blueprint.Default())
	n.remove("boot/loader/entries/m-6.11.conf")
	n.expect(n.plan(blueprint.Default()), bootstrap.RebootNeeded, "without the kernel")
	if r := n.revert(); len(r.Kept) != 1 || !strings.Contains(r.Kept[0].Why, "removed") {
		t.Errorf("kept %+v", r.Kept)
	}
	if _, err := os.Stat(filepath.Join(n.root, "boot/loader/entries/m-6.11.conf")); err == nil {
		t.Error("it is there again")
	}
}

func TestRevertTakesBackWhatIsNamedAlone(t *testing.T) {
	n := fit(t)
	before := n.snapshot()
	n.apply(blueprint.Default())
	n.revert("etc/modprobe.d/50-kata-vfio.conf")
	if _, err := os.Stat(filepath.Join(n.root, "etc/modprobe.d/50-kata-vfio.conf")); err == nil {
		t.Error("it is still there")
	}
	n.expect(n.plan(blueprint.Default()), bootstrap.ChangesNeeded, "after a partial revert")
	if _, err := n.engine().Revert(t.Context(), "etc/passwd"); err == nil || !strings.Contains(err.Error(), "bootstrap did not change /etc/passwd") {
		t.Errorf("error %v", err)
	}
	n.revert()
	n.same(before, "after both reverts")
}

// Drift is told with the file, when it was written and since when it is otherwise.
func TestDriftIsNamedAndMended(t *testing.T) {
	n := newNode(t, files("openSUSE"))
	n.put("proc/cmdline", "ro\n")
	n.apply(blueprint.Default())
	n.reboot()
	n.expect(n.plan(blueprint.Default()), bootstrap.Fit, "after reboot")
	ours, theirs := "etc/modprobe.d/50-kata-vfio.conf", "etc/default/grub"
	n.put(ours, "options vfio_pci disable_denylist=Y\n")
	n.put(theirs, strings.Replace(n.read(theirs), "GRUB_TIMEOUT=5", "GRUB_TIMEOUT=9", 1))
	p := n.plan(blueprint.Default())
	n.expect(p, bootstrap.ChangesNeeded, "after the drift")
	for _, f := range p.Files {
		drifted := f.Path == ours || f.Path == theirs
		if drifted != (f.Drift != nil) || (f.Status == bootstrap.ToDo) != (f.Path == ours) || drifted && f.Drift.Since.IsZero() {
			t.Errorf("%s: %s, drift %+v", f.Path, f.Status, f.Drift)
		}
	}
	n.apply(blueprint.Default())
	n.expect(n.plan(blueprint.Default()), bootstrap.Fit, "after the mending")

	r := n.revert()
	if len(r.Kept) != 1 || r.Kept[0].Path != theirs {
		t.Errorf("kept %+v", r.Kept)
	}
}

// The handler for NICs comes and goes with the blueprint, and what it shares with kata-gpu stays.
func TestNICHandlerFollowsTheBlueprint(t *testing.T) {
	const nicConfig = "opt/kata/share/defaults/kata-containers/kata-vfio/configuration.toml"
	n := newNode(t, files("openSUSE"), containerd(3, "2.1.4-1"))
	n.put("proc/cmdline", "ro\n")
	before := n.snapshot()
	n.apply(blueprint.Default())
	n.reboot()
	without := n.snapshot()
	both := parse(t, "containers: {nicHandler: true}\n")
	n.expect(n.plan(both), bootstrap.ChangesNeeded, "with the handler")
	if r := n.apply(both); len(r.Changed) != 3 || r.Reboot {
		t.Errorf("changed %v, reboot %t", r.Changed, r.Reboot)
	}
	n.expect(n.plan(both), bootstrap.Fit, "with the handler applied")
	n.put(nicConfig, n.read(nicConfig)+"# edited\n")
	drifted := slices.ContainsFunc(n.plan(both).Files, func(f bootstrap.FilePlan) bool { return f.Path == nicConfig && f.Drift != nil })
	if n.expect(n.plan(both), bootstrap.ChangesNeeded, "with another configuration"); !drifted {
		t.Errorf("the drift of %s is not named", nicConfig)
	}
	n.apply(both)
	n.expect(n.plan(both), bootstrap.Fit, "applied again")
	n.apply(blueprint.Default())
	n.same(without, "without the handler")
	n.apply(both)
	n.revert()
	n.same(before, "after revert")
}

// A file that somebody has edited since, and that is edited again, goes back to what
// they have made of it.
func TestSomebodysLaterEditOfTheirFileSurvivesRevert(t *testing.T) {
	n := newNode(t, files("openSUSE"))
	n.put("proc/cmdline", "ro\n")
	n.apply(blueprint.Default())
	edited := "GRUB_TIMEOUT=9\nGRUB_CMDLINE_LINUX=\"\"\n"
	n.put("etc/default/grub", edited)
	n.apply(blueprint.Default())
	n.revert()
	if got := n.read("etc/default/grub"); got != edited {
		t.Errorf("it is %q", got)
	}
}

func TestArgumentThatIsNoLongerWantedGoes(t *testing.T) {
	n := newNode(t, files("Fedora"))
	n.put("proc/cmdline", "ro\n")
	before := n.snapshot()
	n.apply(parse(t, "kernel: {arguments: [efi=disable_early_pci_dma]}\n"))
	n.apply(blueprint.Default())
	for _, name := range []string{"boot/loader/entries/m-6.12.conf", "etc/kernel/cmdline", "etc/default/grub"} {
		if text := n.read(name); strings.Contains(text, "efi=") || !strings.Contains(text, "intel_iommu=on") {
			t.Errorf("%s is %q", name, text)
		}
	}
	n.revert()
	n.same(before, "after revert")
}

func TestModesAndOwnersAreKept(t *testing.T) {
	n := newNode(t, files("openSUSE"))
	n.put("proc/cmdline", "ro\n")
	file := filepath.Join(n.root, "etc/default/grub")
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(file, "user.site", []byte("ours"), 0); err != nil {
		t.Fatal(err)
	}
	before := n.snapshot()
	look := func(when string) {
		t.Helper()
		value := make([]byte, 16)
		size, err := unix.Getxattr(file, "user.site", value)
		info, _ := os.Stat(file)
		if err != nil || string(value[:size]) != "ours" || info.Mode() != 0o640 {
			t.Errorf("%s: attribute %q, %v, mode %v", when, value[:max(size, 0)], err, info.Mode())
		}
	}
	n.apply(blueprint.Default())
	look("after apply")
	n.revert()
	look("after revert")
	n.same(before, "after revert")
}

func TestToolThatFailsIsRunAgain(t *testing.T) {
	n := fit(t)
	n.tools.fail = errors.New("no space left on device")
	_, err := n.engine().Apply(t.Context(), blueprint.Default(), "")
	if err == nil || !strings.Contains(err.Error(), "update-grub failed: no space left on device") {
		t.Errorf("error %v", err)
	}
	n.tools.fail, n.tools.ran = nil, nil
	n.expect(n.plan(blueprint.Default()), bootstrap.ChangesNeeded, "with a tool to run")
	n.apply(blueprint.Default())
	if len(n.tools.ran) == 0 || n.tools.ran[0] != "/usr/sbin/update-grub" {
		t.Errorf("ran %v", n.tools.ran)
	}
	n.expect(n.plan(blueprint.Default()), bootstrap.RebootNeeded, "once it has run")
}

func TestDamagedJournalIsNotTrusted(t *testing.T) {
	const journal = "var/lib/kata-vfio/bootstrap/journal.json"
	for _, c := range []struct {
		name   string
		damage func(string) string
		want   string
	}{
		{"cut off", func(s string) string { return s[:len(s)/2] }, "the journal is damaged"},
		{"changed", func(s string) string { return strings.Replace(s, "grub.d", "grub.e", 1) }, "the journal is damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := fit(t)
			n.apply(blueprint.Default())
			n.put(journal, c.damage(n.read(journal)))
			before := n.snapshot()
			_, planErr := n.engine().Plan(t.Context(), blueprint.Default())
			_, revertErr := n.engine().Revert(t.Context())
			for _, err := range []error{planErr, revertErr} {
				if !errors.Is(err, bootstrap.ErrDamaged) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v", err)
				}
			}
			n.same(before, "after the errors")
		})
	}
}

func TestNewerJournalIsLeftToTheProgramThatWroteIt(t *testing.T) {
	n := fit(t)
	body := `{"version":2,"pending":["BootConfig"]}`
	n.put("var/lib/kata-vfio/bootstrap/journal.json", `{"sum":"`+state.Sum([]byte(body))+`","journal":`+body+`}`)
	if _, err := n.engine().Apply(t.Context(), blueprint.Default(), ""); err == nil || !strings.Contains(err.Error(), "written by a newer kata-vfio-bootstrap") {
		t.Errorf("error %v", err)
	}
}

func TestBackupThatIsMissingKeepsTheFile(t *testing.T) {
	n := newNode(t, files("openSUSE"))
	n.put("proc/cmdline", "ro\n")
	n.apply(blueprint.Default())
	n.remove("var/lib/kata-vfio/bootstrap/backups")
	before := n.snapshot()
	if _, err := n.engine().Revert(t.Context()); err == nil || !strings.Contains(err.Error(), "is missing or damaged") {
		t.Errorf("error %v", err)
	}
	n.same(before, "after the error")
}

func TestTwoProcessesDoNotWorkAtOnce(t *testing.T) {
	n := fit(t)
	n.apply(blueprint.Default())
	files, err := writer.OpenDisk(n.root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = files.Close() }()
	release, err := files.Lock(t.Context(), ".")
	if err != nil {
		t.Fatal(err)
	}
	n.plan(blueprint.Default()) // reading needs no lock
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.engine().Revert(ctx); !errors.Is(err, writer.ErrBusy) {
		t.Errorf("error %v", err)
	}
	release()
	n.revert()
}

func TestRunningSettingsComeAndGo(t *testing.T) {
	n := fit(t)
	parameter, pages := "sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	override := "sys/bus/pci/devices/0000:3b:00.0/driver_override"
	n.put(parameter, "Y")
	n.put(pages, "0")
	n.put(override, "(null)  ")
	n.put("sys/bus/pci/devices/0000:3b:00.0/uevent", "DRIVER=nvidia\n")
	b := parse(t, "kernel: {hugePages: [{size: 2Mi, count: 8}]}\nvfio: {keepOff: ['0000:3b:00.0']}\n")
	e := n.engine()
	e.Attributes = attributes(n.set) // a file that is written is what it shows, as the kernel has it
	r, err := e.Apply(t.Context(), b, "")
	if err != nil {
		t.Fatal(err)
	}
	if n.read(parameter) != "N" || n.read(pages) != "8" || n.read(override) != "vfio-pci" || len(r.Settings) != 3 {
		t.Errorf("parameter %q, pages %q, override %q, settings %+v", n.read(parameter), n.read(pages), n.read(override), r.Settings)
	}
	n.put(parameter, "Y") // somebody else
	if _, err := e.Revert(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.read(parameter) != "Y" || n.read(pages) != "0" || n.read(override) != "\n" {
		t.Errorf("parameter %q, pages %q, override %q", n.read(parameter), n.read(pages), n.read(override))
	}
}

// TOML allows DOS line ends: containerd's own file is edited in its own way, and comes back.
func TestDOSLineEndsOfTOMLAreKept(t *testing.T) {
	n := newNode(t, files("Debian 12"), containerd(3, "2.1.4-1"))
	n.put("proc/cmdline", "ro\n")
	const config = "etc/containerd/config.toml"
	n.put(config, strings.ReplaceAll(n.read(config), "\n", "\r\n"))
	before := n.snapshot()
	n.apply(blueprint.Default())
	text := n.read(config)
	if !strings.Contains(text, "imports") || strings.Count(text, "\n") != strings.Count(text, "\r\n") {
		t.Errorf("it is %q", text)
	}
	if again := n.apply(blueprint.Default()); len(again.Changed) > 0 {
		t.Errorf("again it changed %+v", again.Changed)
	}
	n.revert()
	n.same(before, "after revert")
}

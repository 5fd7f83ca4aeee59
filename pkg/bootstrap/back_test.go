package bootstrap_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// The unit that was started is stopped while systemd still has it, and modules are not loaded for a node that is left.
func TestRevertStopsTheSocketAndLoadsNothing(t *testing.T) {
	n := fit(t)
	n.apply(blueprint.Default())
	n.tools.ran = nil
	r := n.revert()
	stop := slices.Index(n.tools.ran, "systemctl stop kata-vfio-pod-resources.socket*")
	if reload := slices.Index(n.tools.ran, "systemctl daemon-reload"); stop < 0 || reload < stop {
		t.Errorf("ran %q", n.tools.ran)
	}
	for _, ran := range n.tools.ran {
		if strings.HasPrefix(ran, "modprobe") || strings.Contains(ran, " start ") {
			t.Errorf("ran %q", ran)
		}
	}
	for _, s := range r.Steps {
		if !s.Ran || s.Error != "" {
			t.Errorf("step %+v", s)
		}
	}
}

// The socket of a blueprint that wants it no longer is stopped too.
func TestApplyStopsTheSocketThatIsNoLongerWanted(t *testing.T) {
	n := fit(t)
	n.apply(blueprint.Default())
	n.tools.ran = nil
	n.apply(parse(t, "containers: {runtime: None}\n"))
	if !slices.Contains(n.tools.ran, "systemctl stop kata-vfio-pod-resources.socket*") || slices.Contains(n.tools.ran, "systemctl start kata-vfio-pod-resources.socket") {
		t.Errorf("ran %q", n.tools.ran)
	}
}

// A revert that was cut off before its tools ran does not have a later apply stop what that starts.
func TestApplyAfterARevertThatFailedStartsTheSocket(t *testing.T) {
	n := fit(t)
	n.apply(blueprint.Default())
	n.tools.fail, n.tools.failing = errors.New("no"), "/usr/sbin/update-grub"
	if _, err := n.engine().Revert(t.Context()); err == nil {
		t.Fatal("no error")
	}
	n.tools.fail, n.tools.ran = nil, nil
	n.apply(blueprint.Default())
	if slices.Contains(n.tools.ran, "systemctl stop kata-vfio-pod-resources.socket*") || !slices.Contains(n.tools.ran, "systemctl start kata-vfio-pod-resources.socket") {
		t.Errorf("ran %q", n.tools.ran)
	}
}

// Whichever tool fails, at apply or at revert, the next revert ends it, and nothing is left to know.
func TestToolThatFailsOnTheWayBackIsRunAgain(t *testing.T) {
	for _, failing := range []string{"/usr/sbin/update-grub", "systemctl daemon-reload", "systemctl stop", "udevadm"} {
		for _, reverts := range []bool{false, true} {
			n := fit(t)
			before := n.snapshot()
			if reverts {
				n.apply(blueprint.Default())
			}
			n.tools.fail, n.tools.failing = errors.New("no"), failing
			var r *bootstrap.Result
			var err error
			verb := "apply"
			if reverts {
				verb = "revert"
				r, err = n.engine().Revert(t.Context())
			} else if r, err = n.engine().Apply(t.Context(), blueprint.Default(), ""); failing == "systemctl stop" {
				continue // apply stops nothing
			}
			if err == nil || !strings.Contains(err.Error(), failing) || !strings.Contains(err.Error(), "run "+verb+" again") {
				t.Errorf("%s of %s: %v", failing, verb, err)
			}
			failed := slices.IndexFunc(r.Steps, func(s bootstrap.Step) bool { return s.Error != "" })
			if failed < 0 || r.Steps[failed].Ran || failed > 0 && !r.Steps[failed-1].Ran || failed+1 < len(r.Steps) && r.Steps[failed+1].Ran {
				t.Errorf("%s of %s: steps %+v", failing, verb, r.Steps)
			}
			n.tools.fail = nil
			n.revert()
			n.same(before, "after another revert")
			if _, err := os.Stat(filepath.Join(n.root, "var/lib/kata-vfio/bootstrap/journal.json")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s of %s: the journal is still there: %v", failing, verb, err)
			}
		}
	}
}

// After the revert, the rest of the file is the user's edit alone.
func TestRevertLeavesNothingOfOursInAFileThatWasChangedAndAppliedAgain(t *testing.T) {
	grub := func(n *node) {
		n.put("etc/default/grub", strings.Replace(n.read("etc/default/grub"), "GRUB_TIMEOUT=5", "GRUB_TIMEOUT=9", 1)+"GRUB_DISABLE_OS_PROBER=true\n")
	}
	entries := func(n *node) { // as grubby --args=foo does
		for _, name := range []string{"boot/loader/entries/m-6.12.conf", "etc/kernel/cmdline"} {
			n.put(name, strings.Replace(n.read(name), "iommu=nopt", "iommu=nopt foo", 1))
		}
	}
	for distribution, edit := range map[string]func(*node){"openSUSE": grub, "Fedora": entries} {
		n := newNode(t, files(distribution))
		n.put("proc/cmdline", "ro\n")
		pristine := newNode(t, files(distribution))
		n.apply(blueprint.Default())
		edit(n)
		n.expect(n.plan(blueprint.Default()), bootstrap.RebootNeeded, distribution+": theirs is not a reason for another apply")
		n.apply(parse(t, "kernel: {arguments: [efi=disable_early_pci_dma]}\n"))
		if r := n.revert(); len(r.Kept) > 0 {
			t.Errorf("%s: kept %+v", distribution, r.Kept)
		}
		for _, name := range []string{"etc/default/grub", "boot/loader/entries/m-6.12.conf", "etc/kernel/cmdline"} {
			if _, err := os.Stat(filepath.Join(n.root, name)); err != nil {
				continue
			}
			want := pristine.read(name)
			switch {
			case distribution == "openSUSE":
				want = strings.Replace(want, "GRUB_TIMEOUT=5", "GRUB_TIMEOUT=9", 1) + "GRUB_DISABLE_OS_PROBER=true\n"
			case strings.HasSuffix(name, ".conf"):
				want = strings.Replace(want, "$tuned_params", "$tuned_params foo", 1)
			case name == "etc/kernel/cmdline":
				want = strings.Replace(want, "ro\n", "ro foo\n", 1)
			}
			if got := n.read(name); got != want {
				t.Errorf("%s: /%s is %q, want %q", distribution, name, got, want)
			}
		}
	}
}

// What the distribution's own tool makes of the same words is nobody's change: update-initramfs has kernel-install write entries again.
func TestEntryThatAToolWroteAnewIsStillOurs(t *testing.T) {
	const entry = "boot/efi/loader/entries/id-6.12.9-1.conf"
	n := newNode(t, files("Debian 13, systemd-boot"))
	n.put("proc/cmdline", "ro\n")
	before := n.snapshot()
	n.apply(blueprint.Default())
	n.put(entry, strings.Replace(n.read(entry), "ro crashkernel=1G $tuned_params intel_iommu=on iommu=nopt", "ro intel_iommu=on iommu=nopt crashkernel=1G $tuned_params", 1))
	status, err := n.engine().Status()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range status.Files {
		if f.Drift != nil {
			t.Errorf("/%s drifted: %+v", f.Path, f.Drift)
		}
	}
	n.expect(n.plan(blueprint.Default()), bootstrap.RebootNeeded, "written anew")
	if r := n.revert(); len(r.Kept) > 0 {
		t.Errorf("kept %+v", r.Kept)
	}
	n.same(before, "after the way back")
}

// An argument that only our own part of a changed file has is nobody's conflict, and gives way to another.
func TestOurOwnArgumentsInAChangedFileAreNoConflict(t *testing.T) {
	for _, distribution := range []string{"openSUSE", "Fedora"} {
		for _, c := range []struct{ first, second, gone, there string }{
			{"kernel: {iommu: Passthrough}\n", "", "iommu=pt", "iommu=nopt"},
			{"kernel: {hugePages: [{size: 1Gi, count: 4}]}\n", "kernel: {hugePages: [{size: 1Gi, count: 8}]}\n", "hugepages=4", "hugepagesz=1G hugepages=8"},
		} {
			n := newNode(t, files(distribution))
			n.put("proc/cmdline", "ro\n")
			n.apply(parse(t, c.first))
			for _, name := range []string{"etc/default/grub", "boot/loader/entries/m-6.12.conf"} {
				if _, err := os.Stat(filepath.Join(n.root, name)); err == nil {
					n.put(name, "# edited\n"+n.read(name))
				}
			}
			n.apply(parse(t, c.second))
			if line := n.tools.commandLine(t); strings.Contains(line, c.gone) || !strings.Contains(line, c.there) {
				t.Errorf("%s: the kernel is started with %q", distribution, line)
			}
		}
	}
}

// Running settings are brought back with the files or not at all.
func TestRevertThatFailsLeavesSettingsAndFiles(t *testing.T) {
	apply := func() (*node, map[string]string) {
		n := fit(t)
		n.put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0")
		n.put("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "Y")
		e := n.engine()
		e.Attributes = attributes(n.set)
		if _, err := e.Apply(t.Context(), parse(t, "kernel: {hugePages: [{size: 2Mi, count: 8}]}\n"), ""); err != nil {
			t.Fatal(err)
		}
		return n, n.snapshot()
	}
	right := func(n *node, before map[string]string) {
		t.Helper()
		pages, unsafe := n.read("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"), n.read("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts")
		if pages != "8" || unsafe != "N" {
			t.Errorf("pages %q, unsafe interrupts %q", pages, unsafe)
		}
		n.same(before, "after the error")
	}
	n, before := apply()
	n.files = func(f bootstrap.Files) bootstrap.Files { return &full{f, 1} }
	e := n.engine()
	e.Attributes = attributes(n.set)
	if _, err := e.Revert(t.Context()); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("on a full disk: %v", err)
	}
	right(n, before)

	n, before = apply()
	e, writes := n.engine(), 0
	e.Attributes = attributes(func(name string, data []byte) error {
		if writes++; writes == 2 {
			return unix.EIO
		}
		return n.set(name, data)
	})
	if _, err := e.Revert(t.Context()); !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), "the changes are undone") {
		t.Errorf("with a setting that can't be written: %v", err)
	}
	right(n, before)
	e = n.engine()
	e.Attributes = attributes(n.set)
	if _, err := e.Revert(t.Context()); err != nil || n.read("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages") != "0" {
		t.Errorf("then: %v", err)
	}
	if status, err := n.engine().Status(); err != nil || len(status.Settings) > 0 {
		t.Errorf("then the journal has %+v, %v", status.Settings, err)
	}
}

// Huge pages of which only some could be had are ours all the same.
func TestHugePagesThatCameInPartGoWithRevert(t *testing.T) {
	n := fit(t)
	const pages = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	n.put(pages, "0")
	e := n.engine()
	e.Attributes = attributes(func(name string, data []byte) error {
		if name == pages && string(data) == "8" {
			data = []byte("5")
		}
		return n.set(name, data)
	})
	if _, err := e.Apply(t.Context(), parse(t, "kernel: {hugePages: [{size: 2Mi, count: 8}]}\n"), ""); err == nil || !strings.Contains(err.Error(), "was set to 8, but is \"5\"") {
		t.Errorf("error %v", err)
	}
	if _, err := e.Revert(t.Context()); err != nil || n.read(pages) != "0" {
		t.Errorf("after revert %s, %v", n.read(pages), err)
	}
}

// TestHugePagesOfADeviceAreOnItsNUMANode, and go with the revert.
func TestHugePagesOfADeviceAreOnItsNUMANode(t *testing.T) {
	n := fit(t)
	const pages = "sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
	n.put(pages, "0")
	n.put("sys/devices/system/node/node1/meminfo", "Node 1\n")
	n.put("sys/bus/pci/devices/0000:9b:00.0/numa_node", "1\n")
	n.apply(parse(t, "kernel: {hugePages: [{size: 2Mi, count: 8, device: '0000:9b:00.0'}]}\n"))
	if got := n.read("etc/tmpfiles.d/kata-vfio.conf"); !strings.Contains(got, "w /"+pages+" - - - - 8\n") || n.read(pages) != "8" {
		t.Errorf("%s pages; at boot:\n%s", n.read(pages), got)
	}
	n.revert()
	if n.read(pages) != "0" {
		t.Errorf("after revert %s pages", n.read(pages))
	}
}

// A path that can't be looked at any more is told, and the others are reverted.
func TestPathThatCantBeLookedAtIsKept(t *testing.T) {
	n := fit(t)
	n.apply(blueprint.Default())
	n.remove("etc/modprobe.d")
	n.put("etc/modprobe.d", "-> /elsewhere")
	status, err := n.engine().Status()
	if err != nil || !slices.ContainsFunc(status.Files, func(f bootstrap.FileReport) bool {
		return strings.HasPrefix(f.Path, "etc/modprobe.d/") && f.Error != ""
	}) {
		t.Errorf("status %+v, %v", status, err)
	}
	r := n.revert()
	if len(r.Kept) != 1 || !strings.Contains(r.Kept[0].Why, "it can't be read") || len(r.Changed) != len(status.Files)-1 {
		t.Errorf("kept %+v, changed %d of %d", r.Kept, len(r.Changed), len(status.Files))
	}
}

// What is kept names a command, and that is good for a revert.
func TestKeptFileNamesTheCommandThatGivesItUp(t *testing.T) {
	for name, want := range map[string]string{"etc/modprobe.d/50-kata-vfio.conf": "`rm ", "etc/default/grub": "`cp "} {
		n := newNode(t, files("openSUSE"))
		n.put("proc/cmdline", "ro\n")
		before := n.snapshot()
		n.apply(blueprint.Default())
		n.put(name, "# another\n")
		r := n.revert()
		if len(r.Kept) != 1 || !strings.Contains(r.Kept[0].Why, want) {
			t.Fatalf("kept %+v", r.Kept)
		}
		_, text, _ := strings.Cut(r.Kept[0].Why, "`")
		text, _, _ = strings.Cut(text, "`")
		if _, err := n.tools.shell(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		n.revert()
		n.same(before, "after "+text)
	}
}

// A boot loader's configuration that no tool here generates is left to do, and another loader's does not matter.
func TestBootConfigurationWithoutATool(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*node)
		left   bool
	}{
		{"the tools are gone", func(n *node) { n.remove("usr/sbin/update-grub", "usr/sbin/grub-mkconfig") }, true},
		{"systemd-boot starts it", func(n *node) {
			n.put("sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", "\x06\x00\x00\x00systemd-boot 257")
			n.put("efi/loader/entries/a.conf", entry)
		}, false},
	} {
		n := fit(t)
		before := n.snapshot()
		n.image = true
		n.apply(blueprint.Default())
		n.image = false
		c.change(n)
		r := n.revert()
		left := slices.ContainsFunc(r.Steps, func(s bootstrap.Step) bool { return !s.Runs && len(s.Commands) == 1 })
		if left != c.left {
			t.Errorf("%s: steps %+v", c.name, r.Steps)
		}
		for name := range n.snapshot() {
			if _, was := before[name]; !was && strings.Contains(name, "kata-vfio") {
				t.Errorf("%s: /%s is left", c.name, name)
			}
		}
	}
}

func TestJournalsDirectoryAloneIsRoots(t *testing.T) {
	n := fit(t)
	n.apply(blueprint.Default())
	for dir, want := range map[string]fs.FileMode{"var": 0o755, "var/lib": 0o755, "var/lib/kata-vfio": 0o755, "var/lib/kata-vfio/bootstrap": 0o700} {
		if info, err := os.Stat(filepath.Join(n.root, dir)); err != nil || info.Mode().Perm() != want {
			t.Errorf("/%s: %v, %v", dir, info.Mode(), err)
		}
	}
}

// A larger file than is read is refused: to write what was read would cut it off.
func TestFileThatIsTooLargeToEditIsRefused(t *testing.T) {
	n := newNode(t, files("openSUSE"))
	n.put("proc/cmdline", "ro\n")
	n.put("etc/default/grub", n.read("etc/default/grub")+strings.Repeat("# x\n", state.MaxImage/8))
	if _, err := n.engine().Apply(t.Context(), blueprint.Default(), ""); err == nil || !strings.Contains(err.Error(), "/etc/default/grub: it is larger than") {
		t.Errorf("error %v", err)
	}
}

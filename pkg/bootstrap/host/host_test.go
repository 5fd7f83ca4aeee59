package host_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// tree is a node's files.
type tree map[string]string

func (t tree) ReadAtMost(name string, limit int64) ([]byte, error) {
	content, ok := t[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return []byte(content[:min(int64(len(content)), limit)]), nil
}

func (t tree) ReadDir(name string) ([]string, error) {
	var names []string
	for _, file := range slices.Sorted(maps.Keys(t)) {
		if path.Dir(file) == name {
			names = append(names, path.Base(file))
		}
	}
	return names, nil
}

func content(t *testing.T, w state.Wanted, name string) string {
	t.Helper()
	for _, f := range w.Files {
		if f.Path == name {
			_, body, _ := strings.Cut(string(f.Content), "revert` removes it.\n")
			return body
		}
	}
	t.Fatalf("no file %s", name)
	return ""
}

func TestFilesSayWhatTheBlueprintAsksFor(t *testing.T) {
	b := blueprint.Default()
	b.VFIO.KeepOff = []pci.Address{{Bus: 0x3b}}
	b.Kernel.EarlyBinding = true
	b.Kernel.HugePages = []blueprint.HugePages{{Size: blueprint.HugePage2Mi, Count: 4, Node: new(0)}, {Size: blueprint.HugePage2Mi, Count: 8, Node: new(1)}}
	b.VirtualFunctions = []v1alpha1.VFRule{{PF: "ens1", Count: new(8)}, {PF: "0000:5f:00.0", Count: new(4), EswitchMode: v1alpha1.EswitchSwitchdev}}
	b.Containers.Runtime = blueprint.RuntimeCRIO
	p := &host.Platform{
		Systemd: true, Networkd: true, Initramfs: host.Dracut,
		Modules: map[string]host.Module{"vfio_pci": {Loadable: true}, "vfio_iommu_type1": {BuiltIn: true}, "iommufd": {}},
	}
	w := host.Wanted(tree{"sys/class/net/ens1/device/uevent": "DRIVER=ice\nPCI_SLOT_NAME=0000:5e:00.0\n"}, b, p)
	if len(w.Problems)+len(w.Settings) > 0 {
		t.Errorf("problems %v, settings %v", w.Problems, w.Settings)
	}
	for name, want := range map[string]string{
		"etc/modules-load.d/kata-vfio.conf": "vfio_pci\n",
		"etc/modprobe.d/50-kata-vfio.conf":  "options vfio_pci disable_denylist=N\noptions vfio_iommu_type1 allow_unsafe_interrupts=N\n",
		"etc/udev/rules.d/10-kata-vfio.rules": `ACTION=="add", SUBSYSTEM=="pci", KERNEL=="0000:3b:00.0", ATTR{driver_override}="vfio-pci"
ACTION=="add", SUBSYSTEM=="pci", KERNEL=="0000:5e:00.0", ATTR{sriov_drivers_autoprobe}="0"
ACTION=="add", SUBSYSTEM=="net", KERNELS=="0000:5e:00.0", ATTR{device/sriov_numvfs}="8"
ACTION=="add", SUBSYSTEM=="pci", KERNEL=="0000:5f:00.0", ATTR{sriov_drivers_autoprobe}="0"
ACTION!="remove", SUBSYSTEM=="net", TEST=="device/physfn", ENV{NM_UNMANAGED}="1", ENV{KATA_VFIO_VF}="1"
`,
		"etc/tmpfiles.d/kata-vfio.conf": "w /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages - - - - 4\n" +
			"w /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages - - - - 8\n",
		"etc/systemd/network/05-kata-vfio-vf.network":         "[Match]\nProperty=KATA_VFIO_VF=1\n\n[Link]\nUnmanaged=yes\n",
		"etc/systemd/system/crio.service.d/50-kata-vfio.conf": "[Service]\nLimitMEMLOCK=infinity\n",
		"etc/dracut.conf.d/50-kata-vfio.conf": "add_drivers+=\" vfio-pci \"\n" +
			"install_items+=\" /etc/udev/rules.d/10-kata-vfio.rules /etc/modprobe.d/50-kata-vfio.conf \"\n",
	} {
		if diff := cmp.Diff(want, content(t, w, name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if len(w.Files) != 7 {
		t.Errorf("%d files, want 7", len(w.Files))
	}
}

// The running node is asked for what can be seen of it; a function that a claim has
// is left to the plugin.
func TestRunningNodeIsAskedForItsSettings(t *testing.T) {
	b := blueprint.Default()
	b.VFIO.KeepOff = []pci.Address{{Bus: 0x3b}, {Bus: 0x3c}, {Bus: 0x3d}}
	b.VirtualFunctions = []v1alpha1.VFRule{{PF: "0000:5e:00.0", Count: new(8)}}
	w := host.Wanted(tree{
		"sys/bus/pci/devices/0000:3b:00.0/uevent": "DRIVER=nvidia\n", "sys/bus/pci/devices/0000:3b:00.0/driver_override": "(null)\n",
		"sys/bus/pci/devices/0000:3c:00.0/uevent": "DRIVER=mlx5_vfio_pci\n", "sys/bus/pci/devices/0000:3c:00.0/driver_override": "mlx5_vfio_pci\n",
		"sys/bus/pci/devices/0000:5e:00.0/sriov_totalvfs": "64\n", "sys/bus/pci/devices/0000:5e:00.0/uevent": "DRIVER=ice\n",
	}, b, &host.Platform{Live: true, Systemd: true, IOMMUs: []string{"dmar0"}})
	var got []string
	for _, s := range w.Settings {
		if strings.HasPrefix(s.Path, "sys/bus/pci") {
			got = append(got, s.Path[len("sys/bus/pci/devices/"):]+"="+s.Value+map[bool]string{true: " at boot"}[s.AtBoot])
		}
	}
	want := []string{"0000:5e:00.0/sriov_drivers_autoprobe=0", "0000:5e:00.0/sriov_numvfs=8 at boot", "0000:3b:00.0/driver_override=vfio-pci"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	var problems []string
	for _, p := range w.Problems {
		problems = append(problems, p.Text)
		if p.Fatal {
			t.Errorf("fatal: %+v", p)
		}
	}
	want = []string{"0000:3b:00.0 is still bound to driver nvidia", "vfio.keepOff names 0000:3d:00.0, but the node has no such function"}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestPinsAreHeldToFacts(t *testing.T) {
	b := blueprint.Default()
	b.Versions = blueprint.Versions{
		Kernel: blueprint.Version{Minimum: "6.6"}, Containerd: blueprint.Version{Exact: "2.4.2"}, Kata: blueprint.Version{Minimum: "4.0"}, CRIO: blueprint.Version{Minimum: "1.36"},
	}
	facts := []state.Fact{{Part: "containerd", Name: "version", Value: "1:2.3.0", Source: "/x"}, {Part: "kata", Name: "version", Value: "1:4.1.0"}, {Part: "CRI-O", Name: "version", Value: "unknown"}}
	var got []string
	for _, p := range host.Pins(b, &host.Platform{Kernel: "6.12.9"}, facts) {
		got = append(got, p.Text)
	}
	want := []string{"containerd is 1:2.3.0 (/x), but the blueprint requires 2.4.2", "the blueprint requires CRI-O 1.36 or newer, but no file shows the installed version"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestPinsOfAVersionThatIsKnownInPart: containerd that was built from a checkout tells only its major version.
func TestPinsOfAVersionThatIsKnownInPart(t *testing.T) {
	b := blueprint.Default()
	b.Versions.Containerd = blueprint.Version{Minimum: "2.2"}
	for have, want := range map[string]struct {
		code rule.Code
		text string
	}{
		"2.x": {rule.VersionUnknown, "the blueprint requires containerd 2.2 or newer, but /x shows only that it is 2.x"},
		"1.x": {rule.VersionMismatch, "containerd is 1.x (/x), but the blueprint requires 2.2 or newer"},
	} {
		found := host.Pins(b, &host.Platform{}, []state.Fact{{Part: "containerd", Name: "version", Value: have, Source: "/x"}})
		if len(found) != 1 || found[0].Code != want.code || found[0].Text != want.text || found[0].Fatal != (want.code == rule.VersionMismatch) {
			t.Errorf("%s: %+v, want %s: %s", have, found, want.code, want.text)
		}
	}
}

// linked is a tree in which "-> target" is a link, which it does not follow.
type linked struct{ tree }

func (t linked) ReadAtMost(name string, limit int64) ([]byte, error) {
	if target, ok := strings.CutPrefix(t.tree[name], "-> "); ok {
		return nil, fmt.Errorf("read %s: %s leads out of the root", name, target)
	}
	return t.tree.ReadAtMost(name, limit)
}

func (t linked) ReadLink(name string) (string, error) {
	if target, ok := strings.CutPrefix(t.tree[name], "-> "); ok {
		return target, nil
	}
	return "", fs.ErrInvalid
}

func TestModprobesFilesAreReadAsModprobeDoes(t *testing.T) {
	const bad = "options vfio_iommu_type1 allow_unsafe_interrupts=yes\n"
	for about, c := range map[string]struct {
		of   tree
		want string
	}{
		"a mask":                      {tree{"etc/modprobe.d/a.conf": "-> /dev/null"}, ""},
		"a link below the root":       {tree{"etc/modprobe.d/a.conf": "-> /etc/alternatives/a", "etc/alternatives/a": "-> /opt/a", "opt/a": "options nvidia x=1\n"}, ""},
		"a bad file behind a link":    {tree{"etc/modprobe.d/a.conf": "-> /etc/alternatives/a", "etc/alternatives/a": "# x\n" + bad}, "/etc/modprobe.d/a.conf line 2"},
		"a link to nothing":           {tree{"etc/modprobe.d/a.conf": "-> /nowhere"}, ""},
		"a file that is hidden":       {tree{"etc/modprobe.d/a.conf": "# nothing\n", "usr/lib/modprobe.d/a.conf": bad}, ""},
		"a file that is masked":       {tree{"etc/modprobe.d/a.conf": "-> /dev/null", "usr/lib/modprobe.d/a.conf": bad}, ""},
		"one that is not":             {tree{"etc/modprobe.d/b.conf": "# nothing\n", "lib/modprobe.d/a.conf": bad}, "/lib/modprobe.d/a.conf line 1"},
		"two lines":                   {tree{"etc/modprobe.d/a.conf": "\n\noptions vfio_pci \\\n disable_denylist=t\n"}, "/etc/modprobe.d/a.conf line 3"},
		"a value that is refused":     {tree{"etc/modprobe.d/a.conf": "options vfio_pci disable_denylist=2\n"}, "line 1: it sets disable_denylist"},
		"another word for what it is": {tree{"etc/modprobe.d/a.conf": "options vfio_pci disable_denylist=Off\n"}, ""},
	} {
		w := host.Wanted(linked{c.of}, blueprint.Default(), &host.Platform{Systemd: true})
		got := ""
		for _, p := range w.Problems {
			got += p.Text
		}
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", about, got, c.want)
		}
	}
}

func TestHostReportsMissingParts(t *testing.T) {
	b := blueprint.Default()
	b.Kernel.HugePages = []blueprint.HugePages{{Size: blueprint.HugePage2Mi, Count: 4, Node: new(0)}, {Size: blueprint.HugePage2Mi, Count: 4, Node: new(1)}, {Size: blueprint.HugePage1Gi, Count: 4}}
	b.VirtualFunctions = []v1alpha1.VFRule{
		{PF: "0000:5e:00.0", Count: new(8)},
		{PF: "0000:5f:00.0", Count: new(8)},
		{PF: "0000:6f:00.0", Count: new(8), Optional: true},
		{PF: "ens9", Count: new(8), Optional: true}, // of other boards
	}
	of := tree{
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages": "0\n", "sys/devices/system/node/node0/meminfo": "Node 0\n",
		"sys/bus/pci/devices/0000:5e:00.0/uevent": "DRIVER=ice\n",
	}
	p := &host.Platform{Live: true, Systemd: true, IOMMUs: []string{"dmar0"}, Cmdline: "hugepagesz=1G hugepages=4"}
	var got []string
	for _, p := range host.Wanted(of, b, p).Problems {
		got = append(got, fmt.Sprint(p.Fatal, " ", p.Text))
	}
	want := []string{
		"true PF 0000:5e:00.0 supports no VFs",
		"true virtualFunctions names PF 0000:5f:00.0, but the node has no such function",
		"true the blueprint requires huge pages on NUMA node 1, which does not exist (there is no /sys/devices/system/node/node1)",
		"true the blueprint requires huge pages of 1Gi, but the node does not support them (there is no /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	p.Cmdline = "quiet" // nobody has asked this kernel for pages of 1 GiB
	if more := host.Wanted(of, b, p).Problems; len(more) != len(want)-1 {
		t.Errorf("before the boot: %+v", more)
	}
}

// A change of a file in the initial RAM file system regenerates it.
func TestEarlyBindingMakesTheInitramfsAnew(t *testing.T) {
	b := blueprint.Default()
	b.Kernel.EarlyBinding, b.VFIO.KeepOff = true, []pci.Address{{Bus: 0x3b}}
	w := host.Wanted(tree{}, b, &host.Platform{Systemd: true, Initramfs: host.Dracut})
	rebuilt := 0
	for _, f := range w.Files {
		if slices.Contains(f.Then, state.Initramfs) {
			rebuilt++
		} else if strings.Contains(content(t, w, "etc/dracut.conf.d/50-kata-vfio.conf"), "/"+f.Path) {
			t.Errorf("%s is in it and does not", f.Path)
		}
	}
	if rebuilt != 3 {
		t.Errorf("%d files do, want 3", rebuilt)
	}
}

// The hook of initramfs-tools brings the rules, and fails for nobody without them.
func TestInitramfsHookEndsWell(t *testing.T) {
	b := blueprint.Default()
	b.Kernel.EarlyBinding = true
	w := host.Wanted(tree{}, b, &host.Platform{Systemd: true, Initramfs: host.UpdateInitramfs})
	hook := ""
	for _, f := range w.Files {
		if f.Path == "etc/initramfs-tools/hooks/kata-vfio" {
			hook = string(f.Content)
		}
	}
	dir := t.TempDir()
	rules := filepath.Join(dir, "10-kata-vfio.rules")
	functions := filepath.Join(dir, "hook-functions")
	if err := os.WriteFile(functions, []byte("manual_add_modules() { echo \"modules: $*\"; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hook = strings.NewReplacer("/usr/share/initramfs-tools/hook-functions", functions, "/etc/udev/rules.d/10-kata-vfio.rules", rules).Replace(hook)
	for _, there := range []bool{false, true} {
		if there {
			if err := os.WriteFile(rules, []byte("# rules\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		target := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-ec", hook, "kata-vfio")
		cmd.Env = []string{"PATH=/usr/bin:/bin", "DESTDIR=" + target}
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != "modules: vfio-pci\n" {
			t.Errorf("rules %t: %v: %s", there, err, out)
		}
		if _, err := os.Stat(filepath.Join(target, "etc/udev/rules.d/10-kata-vfio.rules")); (err == nil) != there {
			t.Errorf("rules %t: %v", there, err)
		}
	}
}

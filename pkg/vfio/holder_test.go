package vfio_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

const containerID = "3f2c0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab"

func open(t testing.TB, root string) *sysfs.FS {
	t.Helper()
	fs, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	return fs
}

func holders(t *testing.T, fs *sysfs.FS, nodes ...string) []vfio.Holder {
	t.Helper()
	found, err := vfio.Holders(t.Context(), fs, nodes)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// captured is a tree of proc as a capture has it: the links of open files are
// plain links, with or without something behind them.
type captured struct {
	t    testing.TB
	root string
}

func newCaptured(t testing.TB) captured {
	t.Helper()
	c := captured{t: t, root: t.TempDir()}
	c.put("proc/uptime", "1 1\n")
	return c
}

func (c captured) put(name, content string) {
	c.t.Helper()
	name = filepath.Join(c.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func (c captured) link(name, target string) {
	c.t.Helper()
	name = filepath.Join(c.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Symlink(target, name); err != nil {
		c.t.Fatal(err)
	}
}

// process adds a process with open files, from 3 on.
func (c captured) process(pid, comm, cgroup string, files ...string) {
	c.t.Helper()
	dir := "proc/" + pid
	c.put(dir+"/comm", comm+"\n")
	c.put(dir+"/stat", pid+" ("+comm+") S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 8675309 1 1\n")
	c.put(dir+"/cgroup", "0::"+cgroup+"\n")
	for i, file := range files {
		c.link(dir+"/fd/"+string(rune('3'+i)), file)
	}
}

func TestHolders(t *testing.T) {
	c := newCaptured(t)
	c.process("4711", "qemu-system-x86", "/kubepods.slice/cri-containerd-"+containerID+".scope", "/dev/vfio/vfio", "/dev/vfio/15", "/dev/vfio/15", "/dev/vfio/16")
	c.process("4712", "Xorg", "/user.slice", "socket:[1]", "/dev/dri/card0", "/var/log/Xorg.0.log")
	c.process("900", "odd) S (", "/", "/dev/vfio/15 (deleted)")
	c.process("4713", "bash", "/user.slice", "/dev/vfio/150", "/dev/null", "/tmp/dev/vfio/15")
	c.put("proc/4714/comm", "gone\n") // no fd: it ended while the tree was captured
	fs := open(t, c.root)
	want := []vfio.Holder{
		{PID: 900, Comm: "odd) S (", Node: "/dev/vfio/15", StartTime: 8675309},
		{PID: 4711, Comm: "qemu-system-x86", Node: "/dev/vfio/15", Container: containerID, StartTime: 8675309},
		{PID: 4711, Comm: "qemu-system-x86", Node: "/dev/vfio/16", Container: containerID, StartTime: 8675309},
		{PID: 4712, Comm: "Xorg", Node: "/dev/dri/card0", StartTime: 8675309},
	}
	if diff := cmp.Diff(want, holders(t, fs, "/dev/vfio/15", "/dev/vfio/16", "/dev/dri/card0")); diff != "" {
		t.Errorf("holders (-want +got):\n%s", diff)
	}
	if found := holders(t, fs, "/dev/vfio/17"); found != nil {
		t.Errorf("holders of a node that nobody has open: %v", found)
	}
	if found, err := vfio.NewProcesses(fs).Find(t.Context(), []string{"/dev/dri/card0"}); err != nil || len(found) != 1 {
		t.Errorf("Find: %v, %v", found, err)
	}
}

func TestHolderString(t *testing.T) {
	h := vfio.Holder{PID: 4711, Comm: "qemu-system-x86", Node: "/dev/vfio/15"}
	if want := "qemu-system-x86 (pid 4711, opened /dev/vfio/15)"; h.String() != want {
		t.Errorf("%q, want %q", h, want)
	}
	h.Container = "3f2c"
	if want := "qemu-system-x86 (pid 4711, container 3f2c, opened /dev/vfio/15)"; h.String() != want {
		t.Errorf("%q, want %q", h, want)
	}
}

// A process that was handed an open VFIO device, and no node, is found by what
// the kernel says of the device.
func TestHoldersOfPassedDevices(t *testing.T) {
	k := sysfstest.New(t)
	gpu := k.AddGPU(0x3b)
	k.AddDriver("vfio-pci", sysfstest.Driver{VFIO: true})
	c := captured{t: t, root: k.Root()}
	for pid, syspath := range map[string]string{
		"100": "vfio-device-syspath: /sys/devices/pci0000:3a/0000:3a:01.0/" + gpu.String() + "\n",
		"101": "vfio-device-syspath: /sys/devices/pci0000:00/0000:00:1f.7\n", // another function, which is gone
		"102": "vfio-device-syspath: /sys/devices/platform/e0000000.xgmac\n",
		"103": "",
	} {
		c.process(pid, "vmm", "/", "anon_inode:[vfio-device]", "anon_inode:[eventfd]")
		c.put("proc/"+pid+"/fdinfo/3", "pos:\t0\nflags:\t02000002\n"+syspath)
	}
	group, _ := k.Group(gpu)
	found := holders(t, open(t, k.Root()), vfio.GroupNode(group))
	if len(found) != 1 || found[0].PID != 100 || found[0].Node != vfio.GroupNode(group) {
		t.Errorf("holders: %v, want process 100 alone", found)
	}
}

// A device that is closed between the looks at its link and at its fdinfo says nothing of the process' other files.
func TestHoldersOfClosedDevices(t *testing.T) {
	c := newCaptured(t)
	c.process("100", "vmm", "/", "anon_inode:[vfio-device]", "/dev/vfio/15")
	found := holders(t, open(t, c.root), "/dev/vfio/15")
	if len(found) != 1 || found[0].PID != 100 || found[0].Node != "/dev/vfio/15" {
		t.Errorf("holders: %v, want process 100", found)
	}
}

// A descriptor that only names the node holds nothing: the program's own look at a node
// is one. One whose flags are not known counts.
func TestHoldersOfPathsOnly(t *testing.T) {
	c := newCaptured(t).whole()
	for pid, fdinfo := range map[string]string{
		"100": "pos:\t0\nflags:\t012000000\n",
		"101": "pos:\t0\nflags:\t0100002\n",
		"102": "pos:\t0\n",
		"103": "pos:\t0\nflags:\tnone\n",
	} {
		c.process(pid, "look", "/", "/dev/vfio/15")
		c.more(pid, "")
		c.put("proc/"+pid+"/fdinfo/3", fdinfo)
	}
	c.put("sys/class/vfio/15/dev", "235:15\n")
	fs := open(t, c.root)
	var found []int
	for _, h := range holders(t, fs, "/dev/vfio/15") {
		found = append(found, h.PID)
	}
	usages, err := vfio.Usages(t.Context(), fs)
	var used []int
	for i := range usages {
		used = append(used, usages[i].PID)
	}
	if want := []int{101, 102, 103}; err != nil || !slices.Equal(found, want) || !slices.Equal(used, want) {
		t.Errorf("holders %v, usages %v (%v); want %v of both", found, used, err, want)
	}
}

func TestHoldersOnTheScriptedKernel(t *testing.T) {
	k := sysfstest.New(t)
	gpu := k.AddGPU(0x3b)
	for _, w := range [][2]string{
		{sysfs.FunctionPath(gpu) + "/driver_override", "vfio-pci"},
		{"sys/bus/pci/drivers/nvidia/unbind", gpu.String()},
		{"sys/bus/pci/drivers_probe", gpu.String()},
	} {
		if err := k.Write(w[0], []byte(w[1])); err != nil {
			t.Fatal(err)
		}
	}
	group, _ := k.Group(gpu)
	node := vfio.GroupNode(group)
	holder := k.Hold(node, 4711, "qemu-system-x86", containerID)
	fs := open(t, k.Root())
	want := []vfio.Holder{{PID: 4711, Comm: "qemu-system-x86", Node: node, Container: containerID}}
	if diff := cmp.Diff(want, holders(t, fs, node), cmpopts.IgnoreFields(vfio.Holder{}, "StartTime")); diff != "" {
		t.Errorf("holders (-want +got):\n%s", diff)
	}
	holder.Release()
	if found := holders(t, fs, node); found != nil {
		t.Errorf("holders after the release: %v", found)
	}
}

// What can't be looked at is never "nobody".
func TestHoldersCannotSee(t *testing.T) {
	empty := open(t, t.TempDir())
	if found, err := vfio.Holders(t.Context(), empty, []string{"/dev/vfio/15"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a tree without proc: %v, %v; want ErrNotExist", found, err)
	}
	c := newCaptured(t)
	c.process("4711", "qemu", "/", "/dev/vfio/15")
	c.put("proc/4711/stat", "4711 (qemu) S 1\n")
	if found, err := vfio.Holders(t.Context(), open(t, c.root), []string{"/dev/vfio/15"}); err == nil || !strings.Contains(err.Error(), "4711") {
		t.Errorf("a process that can't be told: %v, %v; want an error with its PID", found, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := vfio.Holders(ctx, open(t, c.root), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v, %v", found, err)
	}
}

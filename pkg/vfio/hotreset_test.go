package vfio

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// The numbers are those that a C compiler makes of vfio.h.
func TestRequests(t *testing.T) {
	for name, r := range map[string]struct{ got, want uint }{
		"VFIO_GET_API_VERSION":               {getAPIVersion, 0x3b64},
		"VFIO_CHECK_EXTENSION":               {checkExtension, 0x3b65},
		"VFIO_SET_IOMMU":                     {setIOMMU, 0x3b66},
		"VFIO_GROUP_GET_STATUS":              {groupGetStatus, 0x3b67},
		"VFIO_GROUP_SET_CONTAINER":           {groupSetContainer, 0x3b68},
		"VFIO_GROUP_GET_DEVICE_FD":           {groupGetDevice, 0x3b6a},
		"VFIO_DEVICE_GET_PCI_HOT_RESET_INFO": {getHotResetInfo, 0x3b70},
		"VFIO_DEVICE_PCI_HOT_RESET":          {hotReset, 0x3b71},
	} {
		if r.got != r.want {
			t.Errorf("%s is %#x, want %#x", name, r.got, r.want)
		}
	}
}

// native encodes the 32-bit words of a struct.
func native(words ...uint32) []byte {
	var b []byte
	for _, w := range words {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	return b
}

func TestResetStructs(t *testing.T) {
	if got, want := newReset([]int{7, 9}), native(20, 0, 2, 7, 9); !bytes.Equal(got, want) {
		t.Errorf("vfio_pci_hot_reset is %x, want %x", got, want)
	}
	if got, want := newReset(nil), native(12, 0, 0); !bytes.Equal(got, want) {
		t.Errorf("without groups it is %x, want %x", got, want)
	}
	info := newResetInfo(2)
	if want := native(28, 0, 0, 0, 0, 0, 0); !bytes.Equal(info, want) {
		t.Errorf("vfio_pci_hot_reset_info is %x, want %x", info, want)
	}
	// The kernel fills it in: 0000:3b:00.1 of group 15 and 0002:41:1f.7 of 16.
	info = slices.Concat(native(28, 0, 2), native(15), []byte{0, 0, 0x3b, 0x01}, native(16), binary.NativeEndian.AppendUint16(nil, 2), []byte{0x41, 0xff})
	got, err := dependents(info)
	want := []dependent{{group: 15, bus: 0x3b, fun: 1}, {group: 16, segment: 2, bus: 0x41, dev: 0x1f, fun: 7}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("dependents are %+v, %v; want %+v", got, err, want)
	}
	if got, err := dependents(native(12, 0, 3)); err == nil {
		t.Errorf("three in no room are %+v, want an error", got)
	}
}

func TestForeigners(t *testing.T) {
	gpu, audio, other := pci.Address{Bus: 0x3b}, pci.Address{Bus: 0x3b, Function: 1}, pci.Address{Bus: 0x3b, Device: 1}
	far := pci.Address{Domain: 0x10002, Bus: 0x3b}
	affected := []dependent{{bus: 0x3b}, {bus: 0x3b, fun: 1}}
	tests := []struct {
		name     string
		affected []dependent
		set      []pci.Address
		want     []pci.Address
	}{
		{"all are ours", affected, []pci.Address{audio, gpu}, nil},
		{"and more", affected, []pci.Address{audio, gpu, other}, nil},
		{"one is not", affected, []pci.Address{gpu}, []pci.Address{audio}},
		{"a domain above ffff", []dependent{{segment: 2, bus: 0x3b}}, []pci.Address{far}, nil},
		{"another domain", []dependent{{segment: 3, bus: 0x3b}}, []pci.Address{far}, []pci.Address{{Domain: 3, Bus: 0x3b}}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, foreigners(tt.affected, tt.set)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	err := error(&ForeignError{Set: []pci.Address{gpu}, Foreign: []pci.Address{audio, other}})
	if want := "a hot reset of 0000:3b:00.0 would also reset 0000:3b:00.1, 0000:3b:01.0"; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

// Before anything is opened: the functions must be there, on VFIO and in groups.
func TestHotResetRefuses(t *testing.T) {
	k := sysfstest.New(t)
	gpu := k.AddGPU(0x3b)
	fsys, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fsys.Close() }()
	if err := resetTogether(t.Context(), fsys, []pci.Address{gpu}); err == nil || !strings.Contains(err.Error(), "nvidia") {
		t.Errorf("a GPU on its host driver: %v, want an error that names the driver", err)
	}
	if err := resetTogether(t.Context(), fsys, []pci.Address{{Bus: 0x77}}); !errors.Is(err, sysfs.ErrNoFunction) {
		t.Errorf("no such function: %v", err)
	}
	if err := resetTogether(t.Context(), fsys, nil); err == nil {
		t.Error("a reset of nothing succeeded")
	}
	bindTo(t, k, gpu, "vfio-pci")
	// The nodes of a scripted kernel are files: what is asked of them fails, and
	// the descriptors are returned.
	before := descriptors(t)
	if err := resetTogether(t.Context(), fsys, []pci.Address{gpu}); err == nil || !strings.Contains(err.Error(), gpu.String()) {
		t.Errorf("nodes that are files: %v, want an error with the address", err)
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestExclude: a group that can be opened is open until the end, a kernel without its node excludes nobody, and what
// the kernel says otherwise is no "nobody has it".
func TestExclude(t *testing.T) {
	k := sysfstest.New(t)
	gpu, host := k.AddGPU(0x3b), k.AddGPU(0x3c)
	fsys := openTree(t, k.Root())
	bindTo(t, k, gpu, "vfio-pci")
	f := &device.Function{Address: gpu, Group: new(0)}
	group, _ := k.Group(gpu)
	*f.Group = group
	node := k.Path("dev/vfio/" + strconv.Itoa(group))
	before := descriptors(t)
	x, err := Exclude(t.Context(), fsys, []pci.Address{gpu, host})
	if err != nil || descriptors(t) != before+1 {
		t.Fatalf("%v, %d descriptors; want one more than %d: that of the group on VFIO", err, descriptors(t), before)
	}
	if err := x.HotReset(); err == nil { // the nodes are files
		t.Error("a hot reset by files succeeded")
	}
	if descriptors(t) != before+1 {
		t.Errorf("%d descriptors after the reset, want the group still open", descriptors(t))
	}
	x.End()
	if got, err := Opened(t.Context(), fsys, f); err != nil || got != "" || descriptors(t) != before {
		t.Errorf("opened: %q, %v, %d descriptors; want nobody and %d", got, err, descriptors(t), before)
	}
	must(os.Remove(node))
	if got, err := Opened(t.Context(), fsys, f); !errors.Is(err, ErrCannotAsk) || got != "" {
		t.Errorf("without its node: %q, %v", got, err)
	}
	if got, err := Opened(t.Context(), fsys, &device.Function{Address: host}); !errors.Is(err, ErrCannotAsk) || got != "" {
		t.Errorf("on its host driver: %q, %v", got, err)
	}
	must(os.Mkdir(node, 0o755))
	if got, err := Opened(t.Context(), fsys, f); err == nil {
		t.Errorf("a directory: %q, %v; want an error", got, err)
	}
}

// TestExcludeEndsWithItsCaller: that a caller does not wait longer says nothing of other users. The open waits for a lease,
// as it waits in the kernel for a group whose devices another user opens.
func TestExcludeEndsWithItsCaller(t *testing.T) {
	k := sysfstest.New(t)
	gpu := k.AddGPU(0x3b)
	bindTo(t, k, gpu, "vfio-pci")
	group, _ := k.Group(gpu)
	lease, err := os.Create(k.Path("dev/vfio/" + strconv.Itoa(group)))
	must(err)
	defer func() { _ = lease.Close() }()
	if _, err := unix.FcntlInt(lease.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatalf("take a lease of the group's node, which a file system in TMPDIR must have: %v", err)
	}
	errLeft := errors.New("the caller has left")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errLeft)
	defer cancel()
	f := &device.Function{Address: gpu, Group: &group}
	if got, err := Opened(ctx, openTree(t, k.Root()), f); !errors.Is(err, errLeft) || errors.Is(err, ErrBusy) || got != "" {
		t.Errorf("opened: %q, %v; want %q alone", got, err, errLeft)
	}
	if got, err := Opened(t.Context(), openTree(t, k.Root()), f); err != nil || got != GroupNode(group) {
		t.Errorf("opened, after the longest wait: %q, %v; want the group's node", got, err)
	}
	_, err = unix.FcntlInt(lease.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	must(err)
}

func openTree(t *testing.T, root string) *sysfs.FS {
	t.Helper()
	fsys, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fsys.Close() })
	return fsys
}

// bindTo moves a GPU from its host driver.
func bindTo(t *testing.T, k *sysfstest.Kernel, a pci.Address, driver string) {
	t.Helper()
	must(k.Write(sysfs.FunctionPath(a)+"/driver_override", []byte(driver)))
	must(k.Write("sys/bus/pci/drivers/nvidia/unbind", []byte(a.String())))
	must(k.Write("sys/bus/pci/drivers_probe", []byte(a.String())))
}

func TestClaimed(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "dev/nvme0n1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fsys, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fsys.Close() }()
	f := &device.Function{Children: device.Children{Block: []string{"nvme0n1", "gone"}}}
	if node, err := Claimed(t.Context(), fsys, f); err != nil || node != "" {
		t.Errorf("claimed: %q, %v; want none", node, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if node, err := Claimed(ctx, fsys, f); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %q, %v", node, err)
	}
}

// A node that is not where its disk is named leads to no answer, except for a disk that never has a node.
func TestClaimedNeedsTheNodeOfTheDisk(t *testing.T) {
	for name, c := range map[string]struct {
		disk  string
		files []string
		err   string
	}{
		"a disk of a driver that puts its nodes into a directory":  {disk: "cciss!c0d0", files: []string{"sys/class/block/cciss!c0d0/dev", "dev/cciss/c0d0"}},
		"a disk whose node is elsewhere":                           {disk: "cciss!c0d0", files: []string{"sys/class/block/cciss!c0d0/dev", "dev/cciss!c0d0"}, err: "/dev/cciss/c0d0 does not lead to a disk"},
		"a disk without a node":                                    {disk: "nvme0n1", files: []string{"sys/class/block/nvme0n1/hidden=0", "dev/null"}, err: "/dev/nvme0n1 does not lead to a disk"},
		"a disk without a node, on a kernel without the attribute": {disk: "nvme0n1", files: []string{"sys/class/block/nvme0n1/dev"}, err: "/dev/nvme0n1 does not lead to a disk"},
		"a path of a multipath disk":                               {disk: "nvme0c0n1", files: []string{"sys/class/block/nvme0c0n1/hidden=1", "dev/nvme0n1"}},
		"a disk that is gone":                                      {disk: "nvme1n1", files: []string{"sys/class/block/nvme0n1/dev"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, file := range c.files {
				file, text, _ := strings.Cut(file, "=")
				must(os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755))
				must(os.WriteFile(filepath.Join(root, file), []byte(text+"\n"), 0o600))
			}
			f := &device.Function{Children: device.Children{Block: []string{c.disk}}}
			node, err := Claimed(t.Context(), openTree(t, root), f)
			if node != "" || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("claimed %q, %v; want the error %q", node, err, c.err)
			}
		})
	}
}

// resetTogether excludes the functions of set, and resets them.
func resetTogether(ctx context.Context, fs *sysfs.FS, set []pci.Address) error {
	x, err := Exclude(ctx, fs, set)
	if err != nil {
		return err
	}
	defer x.End()
	return x.HotReset()
}

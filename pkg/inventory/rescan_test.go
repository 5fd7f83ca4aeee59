package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

func rescan(t *testing.T, node *sysfs.FS, prev *device.Snapshot, addrs ...pci.Address) *device.Snapshot {
	t.Helper()
	snap, err := inventory.Rescan(t.Context(), node, prev, addrs)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

func write(t *testing.T, k *sysfstest.Kernel, path, value string) {
	t.Helper()
	if err := k.Write(path, []byte(value)); err != nil {
		t.Fatalf("write %q to %s: %v", value, path, err)
	}
}

// bindVFIO gives a function to vfio-pci as an operator would.
func bindVFIO(t *testing.T, k *sysfstest.Kernel, a pci.Address, driver string) {
	t.Helper()
	write(t, k, sysfs.FunctionPath(a)+"/driver_override", "vfio-pci")
	if driver != "" {
		write(t, k, "sys/bus/pci/drivers/"+driver+"/unbind", a.String())
	}
	write(t, k, "sys/bus/pci/drivers_probe", a.String())
}

// After any change, a rescan of the functions concerned gives what a new scan
// would, and does not touch the old snapshot.
func TestRescanEqualsScan(t *testing.T) {
	type fixture struct {
		k    *sysfstest.Kernel
		gpu  pci.Address
		nvme pci.Address
		pf   pci.Address
		vfs  []pci.Address
	}
	tests := []struct {
		name   string
		change func(*testing.T, *fixture)
		addrs  func(*fixture) []pci.Address
	}{
		{
			"nothing",
			func(*testing.T, *fixture) {},
			func(f *fixture) []pci.Address { return []pci.Address{f.gpu} },
		},
		{
			"a GPU goes to VFIO",
			func(t *testing.T, f *fixture) { bindVFIO(t, f.k, f.gpu, "nvidia") },
			func(f *fixture) []pci.Address { return []pci.Address{f.gpu} },
		},
		{
			"a VF goes to VFIO",
			func(t *testing.T, f *fixture) { bindVFIO(t, f.k, f.vfs[1], "igbvf") },
			func(f *fixture) []pci.Address { return []pci.Address{f.vfs[1]} },
		},
		{
			"all VFs go",
			func(t *testing.T, f *fixture) { write(t, f.k, sysfs.FunctionPath(f.pf)+"/sriov_numvfs", "0") },
			func(f *fixture) []pci.Address { return []pci.Address{f.pf} },
		},
		{
			"VFs come, told by one of them",
			func(t *testing.T, f *fixture) {
				write(t, f.k, sysfs.FunctionPath(f.pf)+"/sriov_numvfs", "0")
				write(t, f.k, sysfs.FunctionPath(f.pf)+"/sriov_numvfs", "4")
			},
			func(f *fixture) []pci.Address { return f.k.VFs(f.pf)[3:] },
		},
		{
			"a surprise removal",
			func(_ *testing.T, f *fixture) { f.k.Remove(f.gpu) },
			func(f *fixture) []pci.Address { return []pci.Address{f.gpu} },
		},
		{
			"a new function in a group that is known",
			func(t *testing.T, f *fixture) {
				group, _ := f.k.Group(f.gpu)
				audio := sysfstest.Audio(pci.Address{Bus: f.gpu.Bus, Function: 1})
				audio.Group = group
				f.k.Add(audio)
			},
			func(f *fixture) []pci.Address { return []pci.Address{f.gpu} },
		},
		{
			"a disk is mounted",
			func(_ *testing.T, f *fixture) { f.k.AddMount("nvme0n1p1", "/data") },
			func(f *fixture) []pci.Address { return []pci.Address{f.nvme} },
		},
		{
			"a parameter is set and a driver loaded",
			func(_ *testing.T, f *fixture) {
				f.k.SetParameter("iommufd", "allow_unsafe_interrupts", "Y")
				f.k.AddDriver("xe_vfio_pci", sysfstest.Driver{VFIO: true})
			},
			func(*fixture) []pci.Address { return nil },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := sysfstest.New(t)
			f := &fixture{k: k, gpu: k.AddGPU(0x3b), nvme: k.AddNVMe(0x41)}
			f.pf, f.vfs = k.AddNIC(0x5e, 3)
			node := open(t, k)
			before := scan(t, node)
			kept := scan(t, node)
			tt.change(t, f)
			got := rescan(t, node, before, tt.addrs(f)...)
			if diff := cmp.Diff(scan(t, node), got); diff != "" {
				t.Errorf("rescan (-scan +rescan):\n%s", diff)
			}
			if diff := cmp.Diff(got, rescanLightly(t, node, before, tt.addrs(f)...), lightly()); diff != "" {
				t.Errorf("light rescan (-rescan +light):\n%s", diff)
			}
			if diff := cmp.Diff(kept, before); diff != "" {
				t.Errorf("the old snapshot has changed:\n%s", diff)
			}
		})
	}
}

func TestRescanShares(t *testing.T) {
	k := sysfstest.New(t)
	gpu, nvme := k.AddGPU(0x3b), k.AddNVMe(0x41)
	node := open(t, k)
	before := scan(t, node)
	k.Remove(nvme) // without an event
	after := rescan(t, node, before, gpu)
	old, now := function(t, before, nvme), function(t, after, nvme)
	if &old.Children.Nodes[0] != &now.Children.Nodes[0] {
		t.Error("a function that was not asked for was read again")
	}
	stale := *before
	stale.Stale = "an earlier scan failed"
	if got := rescan(t, node, &stale, gpu); got.Stale != stale.Stale {
		t.Errorf("a part of a stale snapshot became %q", got.Stale)
	}
}

func TestRescanFails(t *testing.T) {
	tr := nicTree(t)
	node := tr.open()
	before := scan(t, node)
	tr.put(nicPlace+"/numa_node", "none\n")
	if snap, err := inventory.Rescan(t.Context(), node, before, []pci.Address{addr(t, nicAddress)}); err == nil || snap != nil {
		t.Errorf("snapshot %v, error %v; want an error and nothing else", snap, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if snap, err := inventory.Rescan(ctx, node, before, []pci.Address{addr(t, nicAddress)}); !errors.Is(err, context.Canceled) {
		t.Errorf("snapshot %v, error %v; want context.Canceled", snap, err)
	}
}

// However the node is cut into functions that are read and functions that are
// kept, the snapshot stays in order and complete.
func TestRescanOrder(t *testing.T) {
	tr := newTree(t)
	var all []pci.Address
	for i := range 6 {
		a := fmt.Sprintf("0000:00:%02x.0", i)
		tr.function("pci0000:00/"+a, nil)
		all = append(all, addr(t, a))
	}
	node := tr.open()
	whole := scan(t, node)
	for mask := range 1 << len(all) {
		prev, asked := *whole, []pci.Address(nil)
		prev.Functions = nil
		for i, a := range all {
			if mask&(1<<i) == 0 {
				prev.Functions = append(prev.Functions, whole.Functions[i])
			} else {
				asked = append(asked, a)
			}
		}
		slices.Reverse(asked)
		if diff := cmp.Diff(whole, rescan(t, node, &prev, asked...)); diff != "" {
			t.Fatalf("kept and read by mask %b (-want +got):\n%s", mask, diff)
		}
	}
}

// TestRescanKeepsASpeedThatItCannotRead: an operation on an interface that hangs in the kernel must not stop the inventory. A
// FIFO can't be read either.
func TestRescanKeepsASpeedThatItCannotRead(t *testing.T) {
	k := sysfstest.New(t)
	pf, _ := k.AddNIC(0x5e, 0)
	speed := k.Path("sys/bus/pci/devices/" + pf.String() + "/net/eth0/speed")
	if err := os.WriteFile(speed, []byte("25000\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	node := open(t, k)
	before := scan(t, node)
	if err := errors.Join(os.Remove(speed), unix.Mkfifo(speed, 0o600)); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(speed, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	again, err := inventory.Rescan(t.Context(), node, before, []pci.Address{pf})
	if err != nil {
		t.Fatal(err)
	}
	if got := function(t, again, pf).PortSpeed; got != 25000 {
		t.Errorf("the port's speed is %d, want the former one", got)
	}
	if got := function(t, scan(t, node), pf).PortSpeed; got != 0 {
		t.Errorf("in a scan without a former speed it is %d, want 0", got)
	}
	if _, err := lock.WriteString("100\n"); err != nil { // the read that hangs gets this
		t.Fatal(err)
	}
}

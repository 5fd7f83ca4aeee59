package inventory_test

import (
	"path"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

func rescanLightly(t *testing.T, node *sysfs.FS, prev *device.Snapshot, addrs ...pci.Address) *device.Snapshot {
	t.Helper()
	snap, err := inventory.Rescan(t.Context(), node, prev, addrs, inventory.Lightly())
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// lightly ignores what a light rescan keeps although it changes.
func lightly() cmp.Option { return cmpopts.IgnoreFields(pci.SRIOV{}, "NumVFs") }

// Whatever decides on a claim of a VF is read again in a light rescan of the VF, also where it is its PF's.
func TestLightRescanSeesWhatDecides(t *testing.T) {
	const vfs = 3
	tests := map[string]func(t *testing.T, k *sysfstest.Kernel, pf, vf string){
		"the PF's link": func(_ *testing.T, k *sysfstest.Kernel, pf, _ string) { k.PutFile(pf+"/current_link_width", "0\n") },
		"the PF's fatal errors": func(_ *testing.T, k *sysfstest.Kernel, pf, _ string) {
			k.PutFile(pf+"/aer_dev_fatal", "TOTAL_ERR_FATAL 3\n")
		},
		"the VF's resets": func(_ *testing.T, k *sysfstest.Kernel, _, vf string) { k.PutFile(vf+"/reset_method", "bus\n") },
		"the VF's memory": func(_ *testing.T, k *sysfstest.Kernel, _, vf string) {
			k.PutFile(vf+"/resource", "0x0000000000001000 0x0000000000001fff 0x0000000000040200\n")
		},
		"the VF's revision": func(t *testing.T, k *sysfstest.Kernel, _, vf string) {
			k.PutFile(vf+"/revision", "0x07\n")
			k.SetConfig(address(t, vf), 8, 7)
		},
		"the PF's driver": func(t *testing.T, k *sysfstest.Kernel, pf, _ string) { bindVFIO(t, k, address(t, pf), "igb") },
		"the number of VFs": func(t *testing.T, k *sysfstest.Kernel, pf, _ string) {
			write(t, k, pf+"/sriov_numvfs", "0")
			write(t, k, pf+"/sriov_numvfs", strconv.Itoa(vfs-1))
		},
		"the group's type": func(t *testing.T, k *sysfstest.Kernel, _, vf string) {
			group, _ := k.Group(address(t, vf))
			k.SetGroupType(group, "identity")
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			pf, all := k.AddNIC(0x5e, vfs)
			node := open(t, k)
			before := scan(t, node)
			change(t, k, sysfs.FunctionPath(pf), sysfs.FunctionPath(all[1]))
			want := scan(t, node)
			if cmp.Equal(before, want) {
				t.Fatal("nothing has changed")
			}
			if diff := cmp.Diff(want, rescanLightly(t, node, before, all[1]), lightly()); diff != "" {
				t.Errorf("light rescan (-scan +rescan):\n%s", diff)
			}
		})
	}
}

func address(t *testing.T, place string) pci.Address {
	t.Helper()
	return addr(t, place[len(sysfs.Devices)+1:])
}

// A port's registers say what reaches the devices below it.
func TestLightRescanReadsPorts(t *testing.T) {
	k := sysfstest.New(t)
	gpu := k.AddGPU(0x3b)
	node := open(t, k)
	before := scan(t, node)
	f := function(t, before, gpu)
	port := f.Upstream[len(f.Upstream)-1]
	k.SetACS(port, 0)
	want := scan(t, node)
	if cmp.Equal(before, want) {
		t.Fatal("nothing has changed")
	}
	if diff := cmp.Diff(want, rescanLightly(t, node, before, gpu, port)); diff != "" {
		t.Errorf("light rescan (-scan +rescan):\n%s", diff)
	}
}

// Software switches ACS, ATS, PRI and PASID of a function at any time, and no uevent says so.
func TestLightRescanReadsWhatSoftwareSwitches(t *testing.T) {
	for name, change := range map[string]func(k *sysfstest.Kernel, gpu *device.Function){
		"ACS": func(k *sysfstest.Kernel, gpu *device.Function) { k.SetACS(gpu.Address, 0) },
		"all others": func(k *sysfstest.Kernel, gpu *device.Function) {
			for _, c := range gpu.Capabilities.Switches[1:] {
				k.SetConfig(gpu.Address, c.Offset+4, 0x01, 0, 0x01, 0x80)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			k.AddRootPort(0x3b)
			gpu := sysfstest.GPU(addr(t, "0000:3b:00.0"))
			gpu.Capabilities.ACS = sysfstest.FullACS()
			gpu.Capabilities.ATS, gpu.Capabilities.PRI, gpu.Capabilities.PASID = &pci.Switchable{}, &pci.Switchable{}, &pci.Switchable{}
			k.Add(gpu)
			node := open(t, k)
			before := scan(t, node)
			change(k, function(t, before, gpu.Address))
			want := scan(t, node)
			if cmp.Equal(before, want) {
				t.Fatal("nothing has changed")
			}
			if diff := cmp.Diff(want, rescanLightly(t, node, before, gpu.Address)); diff != "" {
				t.Errorf("light rescan (-scan +rescan):\n%s", diff)
			}
		})
	}
}

// Of a function that did not answer, a light rescan keeps nothing: it may answer now.
func TestLightRescanReadsWhatWasUnreadable(t *testing.T) {
	k := sysfstest.New(t)
	gpu := k.AddGPU(0x3b)
	node := open(t, k)
	want := scan(t, node)
	config, err := node.ConfigSpace(gpu)
	if err != nil {
		t.Fatal(err)
	}
	k.FallOff(gpu)
	before := scan(t, node)
	k.SetConfig(gpu, 0, config...)
	if diff := cmp.Diff(want, rescanLightly(t, node, before, gpu)); diff != "" {
		t.Errorf("light rescan (-scan +rescan):\n%s", diff)
	}
}

// A rescan finds what hangs on a function by a walk through its directory, and a scan by the kernel's lists.
func TestRescanFindsWhatHangsOnAFunction(t *testing.T) {
	tr := newTree(t)
	where := tr.function("pci0000:00/"+nicAddress, nil)
	nested := tr.function("pci0000:00/"+nicAddress+"/pci10000:e0/10000:e0:06.0", nil)
	usb := where + "/usb1/1-1/1-1:1.0"
	for _, d := range []struct{ place, class, number, uevent string }{
		{where + "/infiniband_verbs/uverbs0", "infiniband_verbs", "char/231:192", "DEVNAME=infiniband/uverbs0\n"},
		{where + "/sound/card0/controlC0", "sound", "char/116:2", "DEVNAME=snd/controlC0\n"},
		{where + "/drm/card0", "drm", "char/226:0", "DEVNAME=dri/card0\n"},
		{where + "/drm/card0/card0-DP-1/i2c-7/i2c-dev/i2c-7", "i2c-dev", "char/89:7", "DEVNAME=i2c-7\n"},
		{where + "/vfio-dev/vfio7", "vfio-dev", "char/511:7", "DEVNAME=vfio/devices/vfio7\n"},
		{where + "/odd", "odd", "char/1:1", "MAJOR=1\n"},
		{nested + "/nvme/nvme0", "nvme", "char/240:0", "DEVNAME=nvme0\n"},
		{usb + "/host3/target3:0:0/3:0:0:0/block/sda", "block", "block/8:0", "DEVNAME=sda\n"},
		{usb + "/host3/target3:0:0/3:0:0:0/block/sda/sda1", "block", "block/8:1", "DEVNAME=sda1\n"},
		{usb + "/net/eth7", "net", "", ""},
		{where + "/net/eth0", "net", "", ""},
	} {
		tr.link(d.place+"/subsystem", "sys/class/"+d.class)
		if d.class == "net" || d.class == "block" {
			tr.link("sys/class/"+d.class+"/"+path.Base(d.place), d.place)
		}
		if d.number != "" {
			tr.put(d.place+"/dev", d.number+"\n")
			tr.put(d.place+"/uevent", d.uevent)
			tr.link("sys/dev/"+d.number, d.place)
		}
	}
	tr.mkdir(where + "/net/eth0/queues/rx-0")
	tr.link(usb+"/net/eth7/upper_bond0", "sys/devices/virtual/net/bond0")
	node := tr.open()
	want := scan(t, node)
	f := function(t, want, addr(t, nicAddress))
	if len(f.Children.Nodes) != 7 || len(f.Children.Net) != 2 || len(f.Children.Block) != 1 {
		t.Fatalf("the scan found %+v", f.Children)
	}
	for _, a := range []string{nicAddress, "10000:e0:06.0"} {
		if diff := cmp.Diff(want, rescan(t, node, want, addr(t, a))); diff != "" {
			t.Errorf("rescan of %s (-scan +rescan):\n%s", a, diff)
		}
	}
}

package sysfstest_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

const (
	pfAddress = "0000:45:00.0"
	numVFs    = devices + pfAddress + "/sriov_numvfs"
	autoprobe = devices + pfAddress + "/sriov_drivers_autoprobe"
)

func TestNumVFsRules(t *testing.T) {
	tests := map[string]struct {
		steps []step
		want  int
	}{
		"none":                {nil, 0},
		"enable":              {[]step{{numVFs, "2", nil}}, 2},
		"enable all":          {[]step{{numVFs, "8\n", nil}}, 8},
		"hexadecimal":         {[]step{{numVFs, "0x3", nil}}, 3},
		"one too many":        {[]step{{numVFs, "9", unix.ERANGE}}, 0},
		"no number":           {[]step{{numVFs, "two", unix.EINVAL}}, 0},
		"negative":            {[]step{{numVFs, "-1", unix.EINVAL}}, 0},
		"more than 16 bits":   {[]step{{numVFs, "65536", unix.EINVAL}}, 0},
		"the same number":     {[]step{{numVFs, "2", nil}, {numVFs, "2", nil}}, 2},
		"another number":      {[]step{{numVFs, "2", nil}, {numVFs, "3", unix.EBUSY}}, 2},
		"disable":             {[]step{{numVFs, "2", nil}, {numVFs, "0", nil}}, 0},
		"disable and enable":  {[]step{{numVFs, "2", nil}, {numVFs, "0", nil}, {numVFs, "3", nil}}, 3},
		"without a driver":    {[]step{{"sys/bus/pci/drivers/igb/unbind", pfAddress, nil}, {numVFs, "2", unix.ENOENT}}, 0},
		"on a VFIO driver":    {append(toVFIO(pci.Address{Bus: 0x45}, "igb"), step{numVFs, "2", unix.ENOENT}), 0},
		"unbind removes them": {[]step{{numVFs, "2", nil}, {"sys/bus/pci/drivers/igb/unbind", pfAddress, nil}}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			pf, _ := k.AddNIC(0x45, 0)
			take(t, k, tt.steps...)
			if got := read(t, k, numVFs); got != strconv.Itoa(tt.want) {
				t.Errorf("sriov_numvfs reads %s, want %d", got, tt.want)
			}
			links, err := filepath.Glob(k.Path(devices + pfAddress + "/virtfn*"))
			if err != nil || len(links) != tt.want || len(k.VFs(pf)) != tt.want {
				t.Errorf("PF links to %q, VFs are %v; want %d", links, k.VFs(pf), tt.want)
			}
		})
	}
}

func TestVF(t *testing.T) {
	k := sysfstest.New(t)
	pf, vfs := k.AddNIC(0x45, 4)
	want := []pci.Address{addr(t, "0000:45:02.0"), addr(t, "0000:45:02.1"), addr(t, "0000:45:02.2"), addr(t, "0000:45:02.3")}
	if diff := cmp.Diff(want, vfs); diff != "" {
		t.Fatalf("VFs (-want +got):\n%s", diff)
	}
	dir := devices + vfs[3].String()
	for name, want := range map[string]string{
		"vendor": "0x8086", "device": "0x10ca", "class": "0x020000", "reset_method": "flr", "numa_node": "0",
	} {
		if got := read(t, k, dir+"/"+name); got != want {
			t.Errorf("%s reads %s, want %s", name, got, want)
		}
	}
	for link, want := range map[string]string{
		dir + "/physfn":                       pf.String(),
		devices + pfAddress + "/virtfn3":      vfs[3].String(),
		devices + pfAddress + "/virtfn0":      vfs[0].String(),
		dir + "/driver":                       "igbvf",
		devices + vfs[0].String() + "/driver": "igbvf",
	} {
		target, err := filepath.EvalSymlinks(k.Path(link))
		if err != nil || filepath.Base(target) != want {
			t.Errorf("%s leads to %s, %v; want %s", link, target, err, want)
		}
	}
	groups := map[int]bool{}
	for _, a := range append(vfs, pf) {
		n, ok := k.Group(a)
		groups[n] = ok
	}
	if len(groups) != 5 {
		t.Errorf("PF and VFs are in groups %v, want one each", groups)
	}
	wantFiles(t, k, false, dir+"/sriov_numvfs")
}

// A VF's ids are in its PF's capability, not in its own header.
func TestVFConfigHasNoIDs(t *testing.T) {
	k := sysfstest.New(t)
	_, vfs := k.AddNIC(0x45, 1)
	config := []byte(read(t, k, devices+vfs[0].String()+"/config"))
	if got := binary.LittleEndian.Uint32(config); got != 0xffffffff {
		t.Errorf("ids are %08x, want ffffffff", got)
	}
	if pci.Dead(config, true) {
		t.Error("the VF counts as dead")
	}
	pf, err := pci.ParseCapabilities([]byte(read(t, k, devices+pfAddress+"/config")))
	if err != nil {
		t.Fatal(err)
	}
	want := &pci.SRIOV{TotalVFs: 8, NumVFs: 1, VFDevice: 0x10ca}
	if diff := cmp.Diff(want, pf.SRIOV); diff != "" {
		t.Errorf("SR-IOV capability (-want +got):\n%s", diff)
	}
}

func TestAutoprobe(t *testing.T) {
	k := sysfstest.New(t)
	pf, _ := k.AddNIC(0x45, 0)
	take(t, k, step{autoprobe, "x", unix.EINVAL}, step{autoprobe, "off", nil}, step{numVFs, "1", nil})
	if got := read(t, k, autoprobe); got != "0" {
		t.Errorf("reads %q", got)
	}
	vf := k.VFs(pf)[0]
	wantDriver(t, k, vf, "")
	probe := step{"sys/bus/pci/drivers_probe", vf.String(), nil}
	take(t, k, probe, step{"sys/bus/pci/drivers/igbvf/bind", vf.String(), unix.ENODEV})
	wantDriver(t, k, vf, "")

	take(t, k, step{devices + vf.String() + "/driver_override", "vfio-pci", nil}, probe)
	wantDriver(t, k, vf, "vfio-pci")

	take(t, k, step{autoprobe, "y", nil}, step{devices + vf.String() + "/driver_override", "\n", nil},
		step{"sys/bus/pci/drivers/vfio-pci/unbind", vf.String(), nil}, probe)
	wantDriver(t, k, vf, "igbvf")
}

func TestVFOfMultiportCard(t *testing.T) {
	k := sysfstest.New(t)
	k.AddRootPort(0x45)
	port1 := sysfstest.NIC(addr(t, "0000:45:00.1"))
	port1.Driver, port1.SRIOV.Offset, port1.SRIOV.VFs = "mlx5_core", 257, 2
	k.Add(port1)
	if diff := cmp.Diff([]pci.Address{addr(t, "0000:46:00.2"), addr(t, "0000:46:00.3")}, k.VFs(port1.Address)); diff != "" {
		t.Errorf("VFs on the next bus (-want +got):\n%s", diff)
	}
	// They hang below the same port as the PF, whatever the bus number.
	target, err := os.Readlink(k.Path(devices + "0000:46:00.2"))
	if want := "../../../devices/pci0000:44/0000:44:01.0/0000:46:00.2"; err != nil || target != want {
		t.Errorf("VF is at %s, %v; want %s", target, err, want)
	}
	wantFiles(t, k, true, "sys/class/infiniband/mlx5_0")
}

func TestDisablingWaitsForTheHolderOfAVF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sysfstest.New(t)
		pf, vfs := k.AddNIC(0x45, 2)
		take(t, k, toVFIO(vfs[1], "igbvf")...)
		n, _ := k.Group(vfs[1])
		h := k.Hold("/dev/vfio/"+strconv.Itoa(n), 4711, "qemu", "")
		done := make(chan error, 1)
		go func() { done <- k.Write(numVFs, []byte("0")) }()
		synctest.Wait()
		wantFiles(t, k, false, devices+vfs[0].String())
		wantFiles(t, k, true, devices+vfs[1].String())
		h.Release()
		if err := <-done; err != nil || len(k.VFs(pf)) > 0 {
			t.Errorf("disable: %v, VFs left: %v", err, k.VFs(pf))
		}
		wantFiles(t, k, false, devices+vfs[1].String())
	})
}

func TestPFVanishesWithItsVFs(t *testing.T) {
	k := sysfstest.New(t)
	pf, vfs := k.AddNIC(0x45, 2)
	k.Remove(pf)
	wantFiles(t, k, false, devices+pfAddress, devices+vfs[0].String(), "sys/class/net/eth0", "sys/class/net/eth1")
	wantFiles(t, k, true, devices+"0000:44:01.0")
}

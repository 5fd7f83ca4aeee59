//go:build lab

package machine_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// Both kinds of device nodes with iommufd, groups only without.
func TestDeviceNodes(t *testing.T) {
	node.Bind(t, topology.GPU0, "vfio-pci")
	exists(t, "/dev/vfio/vfio", true)
	exists(t, filepath.Join("/dev/vfio", node.Group(t, topology.GPU0)), true)
	iommufd := node.Variant(t) == image.IOMMUFD
	exists(t, "/dev/iommu", iommufd)
	exists(t, "/dev/vfio/devices", iommufd)
	if iommufd {
		exists(t, filepath.Join("/dev/vfio/devices", node.CDev(t, topology.GPU0)), true)
	}
}

func exists(t *testing.T, path string, want bool) {
	t.Helper()
	if _, err := os.Stat(path); (err == nil) != want {
		t.Errorf("%s: %v; want it there: %v", path, err, want)
	}
}

// Every kind of function goes to vfio-pci and back to where it was; node.Bind checks both.
func TestBind(t *testing.T) {
	for _, address := range []string{
		topology.GPU0, topology.GPU1, topology.GPU1Audio, topology.GPU2, topology.GPU3, topology.GPU4, topology.GPU5,
		topology.NVMe0, topology.NIC0, topology.BigBAR, topology.Edu0, topology.PF1,
	} {
		t.Run(address, func(t *testing.T) { node.Bind(t, address, "vfio-pci") })
	}
}

func TestVFs(t *testing.T) {
	for _, pf := range []string{topology.PF0, topology.PF1, topology.NVMe0} {
		t.Run(pf, func(t *testing.T) { testVFs(t, pf) })
	}
}

func testVFs(t *testing.T, pf string) {
	node.VFs(t, pf, "2")
	for i := range 2 {
		vf := topology.VF(pf, i)
		if got := filepath.Base(evalLink(t, node.Path(vf, "physfn"))); got != pf {
			t.Errorf("the PF of %s is %s, want %s", vf, got, pf)
		}
		if group := node.Group(t, vf); group == "" || group == node.Group(t, pf) {
			t.Errorf("%s is in the group %q, want one of its own", vf, group)
		}
		node.Bind(t, vf, "vfio-pci")
	}
}

func evalLink(t *testing.T, path string) string {
	t.Helper()
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// igbvf reaches its PF through the VF's BARs. QEMU before 10.0.13 maps them at the wrong place above 4 GiB, binding
// looks right, and no frame ever passes.
func TestVFsReachTheirPF(t *testing.T) {
	up := exec.CommandContext(t.Context(), "ip", "link", "set", node.Interface(t, topology.PF0), "up")
	if out, err := up.CombinedOutput(); err != nil { // a PF that is down does not answer either
		t.Fatalf("%s: %v: %s", up, err, out)
	}
	before := dmesg(t)
	node.VFs(t, topology.PF0, "1")
	if got := node.Driver(t, topology.VF(topology.PF0, 0)); got != "igbvf" {
		t.Errorf("the VF is bound to %q, want igbvf", got)
	}
	if log := bytes.TrimPrefix(dmesg(t), before); bytes.Contains(log, []byte("PF still")) {
		t.Errorf("igbvf cannot reach its PF: this QEMU maps the BARs of VFs wrongly:\n%s", log)
	}
}

func dmesg(t *testing.T) []byte {
	t.Helper()
	log, err := exec.CommandContext(t.Context(), "dmesg").Output()
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// modules.alias names the VFIO drivers of this machine, and no others.
func TestModulesAlias(t *testing.T) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	release := unix.ByteSliceToString(name.Release[:])
	alias := node.Read(t, filepath.Join("/lib/modules", release, "modules.alias"))
	if want := "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci"; !strings.Contains(alias, want) {
		t.Errorf("modules.alias does not have %q", want)
	}
	if want := "alias pci:v00008086d000010CAsv*sd*bc*sc*i* igbvf"; !strings.Contains(alias, want) {
		t.Errorf("modules.alias does not have %q", want)
	}
}

// What the product's tests and demo call must be there.
func TestPrograms(t *testing.T) {
	for _, name := range []string{"ip", "lspci", "modprobe", "ethtool", "driverctl", "qemu-system-x86_64", "ps"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Error(err)
		}
	}
	exists(t, "/usr/share/misc/pci.ids", true)
	exists(t, "/dev/kvm", true)
}

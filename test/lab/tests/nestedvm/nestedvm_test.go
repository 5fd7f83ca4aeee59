//go:build lab

package nestedvm_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/nested"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

const (
	vfMAC     = "02:00:00:00:00:10"
	pfAddress = "10.9.0.20"
	vmAddress = "10.9.0.30/24"
)

// deviceNode is what a CDI spec would name for a function.
func deviceNode(t *testing.T, address string) string {
	t.Helper()
	if node.Variant(t) == image.IOMMUFD {
		return filepath.Join("/dev/vfio/devices", node.CDev(t, address))
	}
	return filepath.Join("/dev/vfio", node.Group(t, address))
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// preparePF brings the PF up with an address and gives its first VF a MAC.
func preparePF(t *testing.T) {
	t.Helper()
	pf := node.Interface(t, topology.PF0)
	command(t, "ip", "address", "replace", pfAddress+"/24", "dev", pf)
	command(t, "ip", "link", "set", pf, "up")
	node.VFs(t, topology.PF0, "1")
	command(t, "ip", "link", "set", pf, "vf", "0", "mac", vfMAC)
	node.LinkUp(t, topology.PF0)
}

func TestVFAndGPU(t *testing.T) {
	preparePF(t)
	vf := topology.VF(topology.PF0, 0)
	node.Bind(t, vf, "vfio-pci")
	node.Bind(t, topology.GPU0, "vfio-pci")
	begin := time.Now()
	vm, err := nested.Start(t.Context(), nested.Config{Nodes: []string{deviceNode(t, vf), deviceNode(t, topology.GPU0)}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			t.Log(vm.Log())
		}
		if err := vm.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	t.Logf("the VM is up after %.1fs, QEMU's pid is %d", time.Since(begin).Seconds(), vm.PID())
	checkReport(t, vm)
	checkTraffic(t, vm)
}

func checkReport(t *testing.T, vm *nested.VM) {
	t.Helper()
	report, err := vm.Report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the VM's report: %+v", report)
	display := slices.IndexFunc(report.Functions, func(f protocol.Function) bool {
		return f.Vendor == "1234" && f.Device == "1111" && f.Class == "038000" && f.Driver == "bochs-drm"
	})
	if display < 0 || len(report.Displays) != 1 || len(report.Framebuffers) != 1 {
		t.Fatalf("the VM has no working display: %+v", report)
	}
	if at := report.Functions[display].Address; report.Displays[0].Address != at {
		t.Errorf("the DRM device is of %s, the display is %s", report.Displays[0].Address, at)
	}
	if len(report.Interfaces) != 1 || report.Interfaces[0].MAC != vfMAC || report.Interfaces[0].Driver != "igbvf" {
		t.Errorf("the VM's interfaces are %+v, want one of igbvf with MAC %s", report.Interfaces, vfMAC)
	}
}

// checkTraffic pings the gateway outside the machine and the PF, whose traffic stays on the device.
func checkTraffic(t *testing.T, vm *nested.VM) {
	t.Helper()
	if err := vm.Configure(t.Context(), vfMAC, vmAddress); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{topology.Gateway, pfAddress} {
		got, err := vm.Ping(t.Context(), to, 5)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("ping %s: %+v", to, got)
		if got.Received == 0 {
			t.Errorf("no reply to %d pings of %s through the VF", got.Sent, to)
		}
	}
}

// A VM without devices of a group that is not viable says so: the caller sees QEMU's own words.
func TestNotViable(t *testing.T) {
	if node.Variant(t) == image.IOMMUFD {
		node.Bind(t, topology.GPU1, "vfio-pci") // its audio function stays with its driver
		expectRefusal(t, "Operation not permitted", deviceNode(t, topology.GPU1))
		return
	}
	node.Bind(t, topology.Edu0, "vfio-pci") // the bridge's driver and the e1000's hold the group
	expectRefusal(t, "group "+node.Group(t, topology.Edu0)+" is not viable", deviceNode(t, topology.Edu0))
}

// Two functions of one group, of which each has an iommufd object of its own as in Kata: the kernel lets one context have
// the group. By the group's node there is one function only.
func TestTwoFunctionsOfOneGroup(t *testing.T) {
	if node.Variant(t) != image.IOMMUFD {
		return
	}
	node.Bind(t, topology.GPU1, "vfio-pci")
	node.Bind(t, topology.GPU1Audio, "vfio-pci")
	expectRefusal(t, "Operation not permitted", deviceNode(t, topology.GPU1), deviceNode(t, topology.GPU1Audio))
}

func expectRefusal(t *testing.T, want string, paths ...string) {
	t.Helper()
	vm, err := nested.Start(t.Context(), nested.Config{Nodes: paths})
	if err == nil {
		t.Fatal("the VM started", vm.Stop(t.Context()))
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("the error does not say %q: %v", want, err)
	}
}

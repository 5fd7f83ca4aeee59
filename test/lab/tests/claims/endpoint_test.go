//go:build lab

package claims_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/test/lab/endpoint"
	"github.com/kata-vfio/kata-vfio/test/lab/nested"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// sandboxNS makes a pod's network namespace, as a runtime and its CNI do, and returns its path.
func sandboxNS(t *testing.T, name string) string {
	t.Helper()
	ip(t, "netns", "add", name)
	return "/var/run/netns/" + name
}

// asEndpoint prepares a claim for a VF that is to be a physical endpoint, on which PF0 has the other end of its network.
func asEndpoint(t *testing.T, n *node.Node, vf string) *journal.Record {
	t.Helper()
	req := stage.Request(t, "endpoint", vf)
	req.Devices[0].VF = &v1alpha1.VFConfig{
		Attachment: v1alpha1.AttachPhysicalEndpoint,
		Network: &v1alpha1.GuestNetwork{
			Interface: "net1", MTU: new(1400), Addresses: []string{"10.9.8.30/24", "2001:db8:8::30/64"},
			Routes: []v1alpha1.GuestRoute{{To: "198.51.100.0/24", Via: "10.9.8.20"}},
		},
	}
	req.Devices[0].VF.Default()
	return mustPrepare(t, n, req)
}

// onPF0 gives PF0 VFs and an address, and returns its interface.
func onPF0(t *testing.T, vfs string) {
	t.Helper()
	pf := kernel.Interface(t, topology.PF0)
	ip(t, "address", "add", "10.9.8.20/24", "dev", pf)
	t.Cleanup(func() { ip(t, "address", "flush", "dev", kernel.Interface(t, topology.PF0)) })
	ip(t, "link", "set", pf, "up")
	kernel.VFs(t, topology.PF0, vfs)
	kernel.Eventually(t, pf+" has a carrier", 30*time.Second, func() bool {
		return kernel.Read(t, filepath.Join("/sys/class/net", pf, "carrier")) == "1"
	})
}

func handOver(t *testing.T, n *node.Node, sandbox, netns string) {
	t.Helper()
	if err := n.Preparer.HandOver(t.Context(), "endpoint", journal.Sandbox{ID: sandbox, NetNS: netns}); err != nil {
		t.Fatal(err)
	}
}

// inPod is the only endpoint in a pod's namespace.
func inPod(t *testing.T, netns string) endpoint.Endpoint {
	t.Helper()
	found, err := endpoint.Scan(netns)
	if err != nil || len(found) != 1 {
		t.Fatalf("Kata finds %+v in %s, %v; want one endpoint", found, netns, err)
	}
	return found[0]
}

// TestPhysicalEndpointReachesItsVM by the pod's namespace, where Kata finds it with its addresses and takes it; and it
// comes back from where Kata leaves it, once the VM is gone.
func TestPhysicalEndpointReachesItsVM(t *testing.T) {
	vf := topology.VF(topology.PF0, 0)
	onPF0(t, "1")
	n := open(t, nil)
	bindings, policy := stage.Bindings(t), stage.VFs(t, n)
	mac := asEndpoint(t, n, vf).Plan.Functions[0].VF.Want.MAC
	netns := sandboxNS(t, "first")
	t.Cleanup(func() { ip(t, "netns", "delete", "first") })
	handOver(t, n, "first", netns)
	handOver(t, n, "first", netns) // its shim asks again
	found := inPod(t, netns)
	want := endpoint.Endpoint{
		Function: vf, Driver: "igbvf", Name: "net1", MAC: mac, MTU: 1400, Addresses: []string{"10.9.8.30/24", "2001:db8:8::30/64"},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("Kata finds (-want +got):\n%s", diff)
	}
	t.Run("VM", func(t *testing.T) {
		group, err := found.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		handOver(t, n, "first", netns) // what Kata has taken is left alone
		vm := startEndpointVM(t, group, &found)
		if got, err := vm.Ping(t.Context(), "10.9.8.20", 5); err != nil || got.Received == 0 {
			t.Errorf("ping: %+v, %v", got, err)
		}
		_, err = n.Preparer.Unprepare(t.Context(), "endpoint")
		stage.Says(t, err, vf, "in use")
	})
	if _, err := n.Preparer.Renew(t.Context(), "endpoint", "first"); err != nil { // Kata left it on vfio-pci
		t.Fatal(err)
	}
	if driver := kernel.Driver(t, vf); driver != "igbvf" {
		t.Errorf("between two sandboxes it is on %q", driver)
	}
	mustUnprepare(t, n, "endpoint")
	stage.Unchanged(t, bindings)
	if diff := cmp.Diff(policy, stage.VFs(t, n)); diff != "" {
		t.Errorf("what the PF imposes (-before +after):\n%s", diff)
	}
}

// startEndpointVM starts a VM with what Kata took, and configures there what it found, as Kata's agent does.
func startEndpointVM(t *testing.T, group string, found *endpoint.Endpoint) *nested.VM {
	t.Helper()
	vm, err := nested.Start(t.Context(), nested.Config{Nodes: []string{group}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(vm.Log())
		}
		if err := vm.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := vm.Configure(t.Context(), found.MAC, found.Addresses[0]); err != nil {
		t.Fatal(err)
	}
	return vm
}

// TestPhysicalEndpointComesBack from wherever it was left, without a VM: its namespace is gone before Kata looked, or is
// still there; Kata gave it back, or took it and died. The VF came without a driver, as provisioned ones do.
func TestPhysicalEndpointComesBack(t *testing.T) {
	vf := topology.VF(topology.PF0, 0)
	onPF0(t, "1")
	kernel.Write(t, kernel.Path(vf, "driver/unbind"), vf)
	kernel.Write(t, kernel.Path(topology.PF0, "sriov_drivers_autoprobe"), "0")
	t.Cleanup(func() { kernel.Write(t, kernel.Path(topology.PF0, "sriov_drivers_autoprobe"), "1") })
	n := open(t, nil)
	bindings, policy := stage.Bindings(t), stage.VFs(t, n)
	take := func(t *testing.T, found endpoint.Endpoint) {
		if _, err := found.Take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, leave := range map[string]func(t *testing.T, netns string){
		"its namespace is gone": func(t *testing.T, _ string) { ip(t, "netns", "delete", "pod") },
		"it is where it was":    func(*testing.T, string) {},
		"Kata died":             func(t *testing.T, netns string) { take(t, inPod(t, netns)) },
		"Kata gave it back": func(t *testing.T, netns string) {
			found := inPod(t, netns)
			take(t, found)
			if err := found.GiveBack(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"on no driver": func(t *testing.T, _ string) { kernel.Write(t, kernel.Path(vf, "driver/unbind"), vf) },
	} {
		t.Run(name, func(t *testing.T) {
			asEndpoint(t, n, vf)
			netns := sandboxNS(t, "pod")
			handOver(t, n, "pod", netns)
			leave(t, netns)
			mustUnprepare(t, n, "endpoint")
			stage.Unchanged(t, bindings)
			if diff := cmp.Diff(policy, stage.VFs(t, n)); diff != "" {
				t.Errorf("what the PF imposes (-before +after):\n%s", diff)
			}
			if name != "its namespace is gone" {
				ip(t, "netns", "delete", "pod")
			}
		})
	}
}

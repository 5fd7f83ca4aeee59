package dra_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/podnet"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// configure gives a claim's VFs an address and a network.
func configure(c *resourceapi.ResourceClaim, by resourceapi.AllocationConfigSource, network string) {
	configureVF(c, by, `"mac":"02:00:5E:10:00:01","network":`+network)
}

// configureVF gives a claim's VFs the fields of a VFConfig.
func configureVF(c *resourceapi.ResourceClaim, by resourceapi.AllocationConfigSource, fields string) {
	raw := `{"apiVersion":"` + v1alpha1.APIVersion + `","kind":"VFConfig",` + fields + `}`
	c.Status.Allocation.Devices.Config = append(c.Status.Allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
		Source: by, DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: v1alpha1.DriverName, Parameters: runtime.RawExtension{Raw: []byte(raw)},
		}},
	})
}

// TestNetworkOfAVF: the tenant reads in the claim which address the VF has,
// and the guest in its metadata what to make of the interface.
func TestNetworkOfAVF(t *testing.T) {
	n := plugintest.New(t)
	_, vfs := n.Kernel.AddNIC(0x21, 1)
	c := plugintest.Allocated("uid-1", "vf-"+vfs[0].Label())
	const network = `{"interface":"net1","mtu":9000,"addresses":["192.0.2.10/24","2001:db8::10/64"],"routes":[{"to":"default","via":"192.0.2.1"}]}`
	configure(c, resourceapi.AllocationConfigSourceClaim, network)
	k := plugintest.Serve(t, n, n.Claims, "", c)
	n.Publish(&plugintest.Recorder{})
	if answer := k.Prepare(c)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	want := &resourceapi.NetworkDeviceData{
		HardwareAddress: "02:00:5e:10:00:01", InterfaceName: "net1", IPs: []string{"192.0.2.10/24", "2001:db8::10/64"},
	}
	if diff := cmp.Diff(want, k.Status(c)[0].NetworkData); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	data, err := os.ReadFile(filepath.Join(k.Dir, "plugin/dra-device-metadata/team-a_claim-uid-1/gpu/metadata.json"))
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(network)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{`"hardwareAddress":"02:00:5e:10:00:01"`, `"interfaceName":"net1"`, `"guestNetwork":{"string":` + string(quoted) + `}`} {
		if !strings.Contains(strings.Join(strings.Fields(string(data)), ""), word) {
			t.Errorf("the metadata lack %s:\n%s", word, data)
		}
	}
}

// usePlugin has the node's pool "tenants" served by a shell script.
func usePlugin(t *testing.T, n *plugintest.Node, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "scripted"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.Reopen(func(c *prepare.Config) {
		c.Node = &v1alpha1.NodeConfig{AddressPools: []v1alpha1.AddressPool{{Name: "tenants", IPAM: []byte(`{"type":"scripted"}`)}}}
		c.Node.Default()
		c.Parts.Addresses = &podnet.Plugins{Dirs: []string{dir}, Limit: 10 * time.Second}
	})
}

// pooled has the claim name a class whose parameters are those that the
// allocation has of its class, and returns that class.
func pooled(c *resourceapi.ResourceClaim) *resourceapi.DeviceClass {
	c.Spec.Devices.Requests[0].Exactly.DeviceClassName = "pooled.example.com"
	var said []string
	for _, config := range c.Status.Allocation.Devices.Config {
		if config.Source == resourceapi.AllocationConfigSourceClass {
			said = append(said, string(config.Opaque.Parameters.Raw))
		}
	}
	return plugintest.DeviceClass("pooled.example.com", c.Namespace, said...)
}

// TestAddressesFromAPool: the class names the pool, the claim the interface; the
// claim's status has the addresses, and the guest's files name no pool.
func TestAddressesFromAPool(t *testing.T) {
	n := plugintest.New(t)
	_, vfs := n.Kernel.AddNIC(0x21, 1)
	usePlugin(t, n, `echo '{"ips":[{"address":"192.0.2.10/24","gateway":"192.0.2.1"}],"routes":[{"dst":"0.0.0.0/0"}]}'`)
	c := plugintest.Allocated("uid-1", "vf-"+vfs[0].Label())
	configure(c, resourceapi.AllocationConfigSourceClass, `{"addressPool":"tenants"}`)
	configure(c, resourceapi.AllocationConfigSourceClaim, `{"interface":"net1"}`)
	k := plugintest.Serve(t, n, n.Claims, "", c, pooled(c))
	n.Publish(&plugintest.Recorder{})
	if answer := k.Prepare(c)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	want := &resourceapi.NetworkDeviceData{HardwareAddress: "02:00:5e:10:00:01", InterfaceName: "net1", IPs: []string{"192.0.2.10/24"}}
	if diff := cmp.Diff(want, k.Status(c)[0].NetworkData); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	data, err := os.ReadFile(filepath.Join(k.Dir, "plugin/dra-device-metadata/team-a_claim-uid-1/gpu/metadata.json"))
	if err != nil {
		t.Fatal(err)
	}
	const network = `{\"interface\":\"net1\",\"addresses\":[\"192.0.2.10/24\"],\"routes\":[{\"to\":\"default\",\"via\":\"192.0.2.1\"}]}`
	if !strings.Contains(string(data), network) {
		t.Errorf("the metadata lack %s:\n%s", network, data)
	}
}

// TestNetworkWithoutAddress: the claim's owner reads what the plugin says.
func TestNetworkWithoutAddress(t *testing.T) {
	n := plugintest.New(t)
	_, vfs := n.Kernel.AddNIC(0x21, 1)
	usePlugin(t, n, `echo '{"code":999,"msg":"no IP addresses available"}'; exit 1`)
	c := plugintest.Allocated("uid-1", "vf-"+vfs[0].Label())
	configure(c, resourceapi.AllocationConfigSourceClass, `{"addressPool":"tenants"}`)
	k := plugintest.Serve(t, n, n.Claims, "", c, pooled(c))
	if answer := k.Prepare(c)["uid-1"]; !strings.Contains(answer.Error, "no IP addresses available") {
		t.Errorf("the kubelet hears %q", answer.Error)
	}
	if ready := k.Status(c)[0].Conditions[0]; ready.Reason != "NoAddress" || !strings.Contains(ready.Message, "from pool tenants") {
		t.Errorf("the condition is %+v", ready)
	}
}

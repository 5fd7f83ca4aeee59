package dra_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// TestTheNetworkOfAVF: the tenant reads in the claim which address the VF has,
// and the guest in its metadata what to make of the interface.
func TestTheNetworkOfAVF(t *testing.T) {
	n := newNode(t)
	_, vfs := n.k.AddNIC(0x21, 1)
	c := allocated("uid-1", "vf-"+vfs[0].Label())
	const network = `{"interface":"net1","mtu":9000,"addresses":["192.0.2.10/24","2001:db8::10/64"],"routes":[{"to":"default","via":"192.0.2.1"}]}`
	raw := `{"apiVersion":"` + v1alpha1.APIVersion + `","kind":"VFConfig","mac":"02:00:5E:10:00:01","network":` + network + `}`
	c.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClaim,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
			Driver: v1alpha1.DriverName, Parameters: runtime.RawExtension{Raw: []byte(raw)},
		}},
	}}
	k := serve(t, n, n.claims, "", c)
	n.publish(&recorder{})
	if answer := k.prepare(c)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	want := &resourceapi.NetworkDeviceData{
		HardwareAddress: "02:00:5e:10:00:01", InterfaceName: "net1", IPs: []string{"192.0.2.10/24", "2001:db8::10/64"},
	}
	if diff := cmp.Diff(want, k.status(c)[0].NetworkData); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	data, err := os.ReadFile(filepath.Join(k.dir, "plugin/dra-device-metadata/team-a_claim-uid-1/gpu/metadata.json"))
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

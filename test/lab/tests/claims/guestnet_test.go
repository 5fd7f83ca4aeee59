//go:build lab

package claims_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	metadatav1alpha1 "k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/test/lab/nested"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// Where the host has put the program, and where it and the files of device metadata are in the VM.
const (
	guestnetHere = "/host/kata-vfio-guestnet"
	guestnet     = "/bin/kata-vfio-guestnet"
	guestDevices = "/etc/devices"
)

// guestReport is what the test reads of the program's report.
type guestReport struct {
	Changed    bool
	Interfaces []struct {
		MAC       string
		FoundBy   string
		Carrier   bool
		Name      struct{ Value string }
		MTU       struct{ Value int }
		Addresses []struct {
			Address   string
			Tentative bool
		}
		Rules []struct{ From string }
	}
}

// TestGuestnetInTheVM configures two VFs of one claim in their VM, as their claim says: names, MTU, both families, and
// a table of its own for the second.
func TestGuestnetInTheVM(t *testing.T) {
	pf := kernel.Interface(t, topology.PF0)
	// The last is on no network of the VM's: the second interface's table alone leads there.
	for _, address := range []string{"10.9.8.20/24", "10.9.7.20/24", "2001:db8:8::20/64", "203.0.113.20/32"} {
		ip(t, "address", "add", address, "dev", pf)
	}
	t.Cleanup(func() { ip(t, "address", "flush", "dev", pf) })
	ip(t, "link", "set", pf, "up")
	kernel.VFs(t, topology.PF0, "2")
	kernel.LinkUp(t, topology.PF0)
	n := open(t, nil)
	req := stage.Request(t, "guestnet", topology.VF(topology.PF0, 0), topology.VF(topology.PF0, 1))
	req.Devices[0].VF = &v1alpha1.VFConfig{Network: &v1alpha1.GuestNetwork{
		Interface: "net1", MTU: new(1400), Addresses: []string{"10.9.8.30/24", "2001:db8:8::30/64"},
		Routes: []v1alpha1.GuestRoute{{To: "198.51.100.0/24", Via: "10.9.8.20"}},
	}}
	req.Devices[1].VF = &v1alpha1.VFConfig{Network: &v1alpha1.GuestNetwork{
		Interface: "net2", Addresses: []string{"10.9.7.30/24"}, Table: new(300),
		Routes: []v1alpha1.GuestRoute{{To: "default", Via: "10.9.7.20"}},
	}}
	rec := mustPrepare(t, n, req)
	t.Run("VM", func(t *testing.T) {
		vm := startWithGuestnet(t, rec)
		report := runGuestnet(t, vm)
		if !report.Changed || len(report.Interfaces) != 2 {
			t.Fatalf("the first run: %+v", report)
		}
		one, two := report.Interfaces[0], report.Interfaces[1]
		if one.Name.Value != "net1" || one.MTU.Value != 1400 || len(one.Addresses) != 2 || !one.Carrier || one.FoundBy != "mac" {
			t.Errorf("the first interface: %+v", one)
		}
		for _, a := range one.Addresses {
			if a.Tentative {
				t.Errorf("%s may not be used yet", a.Address)
			}
		}
		if two.Name.Value != "net2" || len(two.Rules) != 1 || two.Rules[0].From != "10.9.7.30" {
			t.Errorf("the second interface: %+v", two)
		}
		pingFromVM(t, vm)
		if again := runGuestnet(t, vm); again.Changed {
			t.Errorf("the second run has changed something: %+v", again)
		}
	})
	mustUnprepare(t, n, "guestnet")
}

// pingFromVM reaches the host by both interfaces and families, and through the default route of the second one's table.
func pingFromVM(t *testing.T, vm *nested.VM) {
	t.Helper()
	for _, ping := range []struct{ from, to string }{
		{"", "10.9.8.20"}, {"", "10.9.7.20"}, {"", "2001:db8:8::20"}, {"10.9.7.30", "203.0.113.20"},
	} {
		if got, err := vm.PingFrom(t.Context(), ping.from, ping.to, 5); err != nil || got.Received == 0 {
			t.Errorf("ping %s from %q: %+v, %v", ping.to, ping.from, got, err)
		}
	}
	// Without the source there is no rule and no route: the ping above went by the table.
	if got, err := vm.Ping(t.Context(), "203.0.113.20", 1); err == nil && got.Received > 0 {
		t.Errorf("203.0.113.20 is reached past the table: %+v", got)
	}
}

// deviceMetadata writes the claim's files of device metadata, as the kubelet plugin's library lays them out for its pod, and
// returns where each is in the VM. That the plugin writes such ones is TestGuestReadsWhatThePluginWrites' to show: here is not a kubelet.
func deviceMetadata(t *testing.T, rec *journal.Record) map[string]string {
	t.Helper()
	requests := map[string][]metadatav1beta1.Device{}
	for i := range rec.Plan.Devices {
		d := &rec.Plan.Devices[i]
		network, err := json.Marshal(d.Network)
		if err != nil {
			t.Fatal(err)
		}
		fn, _ := rec.Plan.Function(d.Address)
		requests[d.Request] = append(requests[d.Request], metadatav1beta1.Device{
			Driver: v1alpha1.DriverName, Pool: d.Pool, Name: d.Name,
			Attributes:  map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{v1alpha1.AttrGuestNetwork: {StringValue: new(string(network))}},
			NetworkData: &resourceapi.NetworkDeviceData{HardwareAddress: fn.VF.Want.MAC},
		})
	}
	files, dir := map[string]string{}, t.TempDir()
	for request, devices := range requests {
		content := metadatav1beta1.DeviceMetadata{
			TypeMeta:   metav1.TypeMeta{Kind: "DeviceMetadata"},
			ObjectMeta: metav1.ObjectMeta{Namespace: rec.Plan.Claim.Namespace, Name: rec.Plan.Claim.Name},
			Requests:   []metadatav1beta1.DeviceMetadataRequest{{Name: request, Devices: devices}},
		}
		var text []byte
		for _, version := range []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion, metadatav1alpha1.SchemeGroupVersion} {
			content.APIVersion = version.String() // both have the same fields
			object, err := json.Marshal(content)
			if err != nil {
				t.Fatal(err)
			}
			text = append(append(text, object...), '\n')
		}
		here := filepath.Join(dir, request+".json")
		if err := os.WriteFile(here, text, 0o600); err != nil {
			t.Fatal(err)
		}
		files[path.Join(guestDevices, metadata.ResourceClaimsSubDir, rec.Plan.Claim.Name, request, metadata.MetadataFileName(v1alpha1.DriverName))] = here
	}
	return files
}

// startWithGuestnet starts the claim's VM with the program and what the claim's metadata tell it.
func startWithGuestnet(t *testing.T, rec *journal.Record) *nested.VM {
	t.Helper()
	files := deviceMetadata(t, rec)
	files[guestnet] = guestnetHere
	vm, err := nested.Start(t.Context(), nested.Config{Nodes: stage.Nodes(t, rec.ID()), Files: files})
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
	return vm
}

// runGuestnet runs the program in the VM, which must succeed.
func runGuestnet(t *testing.T, vm *nested.VM) guestReport {
	t.Helper()
	got, err := vm.Run(t.Context(), guestnet, "--metadata-dir", guestDevices, "-o", "json")
	if err != nil || got.Code != 0 {
		t.Fatalf("code %d, %v: %s", got.Code, err, got.Stderr)
	}
	var report guestReport
	if err := json.Unmarshal([]byte(got.Stdout), &report); err != nil {
		t.Fatal(fmt.Errorf("%w in %s", err, got.Stdout))
	}
	t.Logf("%s", got.Stderr)
	return report
}

package dra_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// cdiSpec is one that the plugin's library wrote.
type cdiSpec specs.Spec

// mounts are all that it asks for, for whichever device.
func (s cdiSpec) mounts() []*specs.Mount {
	all := s.ContainerEdits.Mounts
	for _, d := range s.Devices {
		all = append(all, d.ContainerEdits.Mounts...)
	}
	return all
}

// TestGuestReadsWhatThePluginWrites: kata-vfio-guestnet finds in the files of device metadata the VFs of the claim, with the
// address that was chosen for one and that the claim gave the other, and what to make of their interfaces. A GPU beside them has none.
func TestGuestReadsWhatThePluginWrites(t *testing.T) {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	_, vfs := n.Kernel.AddNIC(0x21, 2)
	c := plugintest.Allocated("uid-1", "vf-"+vfs[0].Label(), "gpu-0000-3b-00-0")
	const network = `{"interface":"net1","mtu":9000,"addresses":["192.0.2.10/24","2001:db8::10/64"],"routes":[{"to":"default","via":"192.0.2.1"}],"table":300}`
	configure(c, resourceapi.AllocationConfigSourceClaim, network)
	other := plugintest.Allocated("uid-2", "vf-"+vfs[1].Label()) // nobody says anything of it
	k := plugintest.Serve(t, n, n.Claims, "", c, other)
	n.Publish(&plugintest.Recorder{})
	for uid, answer := range k.Prepare(c, other) {
		if answer.Error != "" {
			t.Fatalf("%s: %s", uid, answer.Error)
		}
	}
	devices, err := guestnet.ReadMetadata(metadataMounts(k))
	if err != nil {
		t.Fatal(err)
	}
	type seen struct {
		Claim, Request, Name, MAC string
		Network                   v1alpha1.GuestNetwork
	}
	var got []seen
	for i := range devices {
		d := &devices[i]
		got = append(got, seen{d.Claim, d.Request, d.Name, d.MAC.String(), d.Network})
	}
	chosen := k.Status(other)[0].NetworkData.HardwareAddress
	want := []seen{
		{"claim-uid-1", "gpu", "worker-1/kata-vfio.dev/pf-0000-21-00-0/vf-" + vfs[0].Label(), "02:00:5e:10:00:01", v1alpha1.GuestNetwork{
			Interface: "net1", MTU: new(9000), Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"},
			Routes: []v1alpha1.GuestRoute{{To: "default", Via: "192.0.2.1"}}, Table: new(300),
		}},
		{"claim-uid-2", "gpu", "worker-1/kata-vfio.dev/pf-0000-21-00-0/vf-" + vfs[1].Label(), chosen, v1alpha1.GuestNetwork{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestGuestReadsThePortGUIDOfAnInfiniBandVF: it is what IPoIB's interface can be told by.
func TestGuestReadsThePortGUIDOfAnInfiniBandVF(t *testing.T) {
	n := plugintest.New(t)
	n.Links.Use(vftest.InfiniBand())
	_, vfs := n.Kernel.AddHCA(0x21, 2)
	c := plugintest.Allocated("uid-1", "vf-"+vfs[0].Label())
	configureVF(c, resourceapi.AllocationConfigSourceClaim, `"network":{"interface":"ib0","addresses":["192.0.2.10/24"]}`)
	k := plugintest.Serve(t, n, n.Claims, "", c)
	n.Publish(&plugintest.Recorder{})
	if answer := k.Prepare(c)["uid-1"]; answer.Error != "" {
		t.Fatal(answer.Error)
	}
	devices, err := guestnet.ReadMetadata(metadataMounts(k))
	if err != nil {
		t.Fatal(err)
	}
	records, problems := n.Records.List()
	if len(records) != 1 || len(problems) > 0 {
		t.Fatalf("%d records, problems %v; want one", len(records), problems)
	}
	want := records[0].Plan.Functions[0].VF.Want.PortGUID
	if len(devices) != 1 || devices[0].MAC != nil || want == "" || devices[0].PortGUID.String() != want || devices[0].Network.Interface != "ib0" {
		t.Errorf("the guest reads %+v; want the port GUID %q", devices, want)
	}
}

// metadataMounts lays the files of device metadata where their CDI specs mount them, below the directory that it returns in place of DRA's.
func metadataMounts(k *plugintest.Kubelet) string {
	k.T.Helper()
	dir := k.T.TempDir()
	for _, name := range k.Files() {
		if !strings.HasPrefix(name, "cdi/") {
			continue
		}
		for _, m := range specIn(k, name).mounts() {
			inside, ok := strings.CutPrefix(m.ContainerPath, guestnet.DefaultMetadataDir+"/")
			if !ok {
				k.T.Errorf("%s is mounted at %s, out of the guest program's sight", m.HostPath, m.ContainerPath)
				continue
			}
			text, err := os.ReadFile(m.HostPath)
			if err != nil {
				k.T.Fatal(err)
			}
			to := filepath.Join(dir, inside)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				k.T.Fatal(err)
			}
			if err := os.WriteFile(to, text, 0o644); err != nil {
				k.T.Fatal(err)
			}
		}
	}
	return dir
}

// spec is the CDI spec in one of the kubelet's files.
func specIn(k *plugintest.Kubelet, name string) (s cdiSpec) {
	k.T.Helper()
	text, err := os.ReadFile(filepath.Join(k.Dir, name))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		k.T.Fatal(err)
	}
	return s
}

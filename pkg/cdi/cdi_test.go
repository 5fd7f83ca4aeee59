package cdi_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	lib "tags.cncf.io/container-device-interface/pkg/cdi"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

const uid = "0f8fad5b-d9cb-469f-a165-70867728950e"

func claimPlan() *plan.Plan {
	return &plan.Plan{
		Claim:   plan.Ref{UID: uid},
		Devices: []plan.Device{{Name: "gpu-0000-3b-00-0"}, {Name: "vf-0000-21-10-0"}},
	}
}

func nodes() [][]cdi.Node {
	return [][]cdi.Node{
		{{Path: "/dev/vfio/15", Major: 511, Minor: 3}},
		{{Path: "/dev/vfio/devices/vfio7", Major: 510, Minor: 7}},
	}
}

func write(t *testing.T) (dir *cdi.Dir, path string) {
	t.Helper()
	path = t.TempDir()
	dir, err := cdi.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := cdi.Spec(claimPlan(), nodes())
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Write(uid, spec); err != nil {
		t.Fatal(err)
	}
	return dir, path
}

// TestRuntimeInjects loads the file with the library that containerd and
// Kata's Go runtime use, and injects each device into a container.
func TestRuntimeInjects(t *testing.T) {
	_, path := write(t)
	cache, err := lib.NewCache(lib.WithSpecDirs(path), lib.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	if errs := cache.GetErrors(); len(errs) > 0 {
		t.Fatal(errs)
	}
	var oci specs.Spec
	missing, err := cache.InjectDevices(&oci, cdi.QualifiedName(uid, "gpu-0000-3b-00-0"), cdi.QualifiedName(uid, "vf-0000-21-10-0"))
	if err != nil {
		t.Fatalf("InjectDevices: %v (unresolved: %v)", err, missing)
	}
	want := &specs.Linux{
		Devices: []specs.LinuxDevice{
			{Path: "/dev/vfio/15", Type: "c", Major: 511, Minor: 3},
			{Path: "/dev/vfio/devices/vfio7", Type: "c", Major: 510, Minor: 7},
		},
		Resources: &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{
			{Allow: true, Type: "c", Major: new(int64(511)), Minor: new(int64(3)), Access: "rw"},
			{Allow: true, Type: "c", Major: new(int64(510)), Minor: new(int64(7)), Access: "rw"},
		}},
	}
	if diff := cmp.Diff(want, oci.Linux); diff != "" {
		t.Errorf("container (-want +got):\n%s", diff)
	}
}

// TestVersionIsWhatRuntimesRead checks the stamped version from both sides:
// it carries all that the spec uses, and Kata's library reads it.
func TestVersionIsWhatRuntimesRead(t *testing.T) {
	spec, err := cdi.Spec(claimPlan(), nodes())
	if err != nil {
		t.Fatal(err)
	}
	if least, err := cdispecs.MinimumRequiredVersion(spec); err != nil || least > cdi.SpecVersion {
		t.Errorf("the spec needs version %s (%v), it says %s", least, err, cdi.SpecVersion)
	}
	if newest := "0.6.0"; cdi.SpecVersion > newest {
		t.Errorf("version %s is newer than %s, which Kata's Go runtime reads", cdi.SpecVersion, newest)
	}
}

func TestDeviceWithoutNode(t *testing.T) {
	if spec, err := cdi.Spec(claimPlan(), nodes()[:1]); err == nil {
		t.Errorf("Spec = %v; want an error for the device without a node", spec)
	}
}

// TestEndpointIsADeviceWithoutANode that tells its container the address of its
// interface; its nodes, if any, are not for a container.
func TestEndpointIsADeviceWithoutANode(t *testing.T) {
	p := claimPlan()
	vf := pci.Address{Bus: 0x21, Device: 0x10}
	p.Devices[1] = plan.Device{Name: "vf-0000-21-10-0", Request: "nic/fast-1", Address: vf, Attachment: v1alpha1.AttachPhysicalEndpoint}
	p.Functions = []plan.Function{{Address: vf, VF: &plan.VFChange{Want: device.VFSettings{MAC: "02:00:5e:10:00:01"}}}}
	spec, err := cdi.Spec(p, nodes()[:1])
	if err != nil {
		t.Fatal(err)
	}
	want := cdispecs.ContainerEdits{Env: []string{"KATA_VFIO_MAC_NIC_FAST_1=02:00:5e:10:00:01"}}
	if diff := cmp.Diff(want, spec.Devices[1].ContainerEdits); diff != "" {
		t.Errorf("edits (-want +got):\n%s", diff)
	}
}

// TestEndpointsOfOneRequestShareTheirVariable: CDI keeps one of several values, so each device sets the addresses of all.
func TestEndpointsOfOneRequestShareTheirVariable(t *testing.T) {
	p := claimPlan()
	p.Devices, p.Functions = nil, nil
	for i, request := range []string{"nic", "other", "nic"} {
		vf := pci.Address{Bus: 0x21, Device: 0x10, Function: uint8(i)}
		p.Devices = append(p.Devices, plan.Device{Name: "vf-" + vf.Label(), Request: request, Address: vf, Attachment: v1alpha1.AttachPhysicalEndpoint})
		p.Functions = append(p.Functions, plan.Function{Address: vf, VF: &plan.VFChange{Want: device.VFSettings{MAC: fmt.Sprint("02:00:5e:10:00:0", i)}}})
	}
	spec, err := cdi.Spec(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	nic := "KATA_VFIO_MAC_NIC=02:00:5e:10:00:00,02:00:5e:10:00:02"
	for i, want := range []string{nic, "KATA_VFIO_MAC_OTHER=02:00:5e:10:00:01", nic} {
		if diff := cmp.Diff([]string{want}, spec.Devices[i].ContainerEdits.Env); diff != "" {
			t.Errorf("%s (-want +got):\n%s", spec.Devices[i].Name, diff)
		}
	}
}

func TestDirTouchesOnlyItsOwn(t *testing.T) {
	dir, path := write(t)
	leftover := ".kata-vfio.dev-vfio_" + uid + ".json123"
	for _, other := range []string{"nvidia.yaml", "kata-vfio.dev_metadata_x.json", "kata-vfio.dev-vfio_x.json.bak", leftover} {
		if err := os.WriteFile(filepath.Join(path, other), []byte("cdiVersion: 0.5.0\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	claims, err := dir.Claims()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{uid}, claims); diff != "" {
		t.Errorf("Claims (-want +got):\n%s", diff)
	}
	for range 2 { // a second removal is not an error
		if err := dir.Remove(uid); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := dir.Read(uid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Read after Remove = %v; want fs.ErrNotExist", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil || len(entries) != 3 {
		t.Errorf("%d foreign files are left (%v), want 3", len(entries), err)
	}
}

func TestWriteReplaces(t *testing.T) {
	dir, _ := write(t)
	p := claimPlan()
	p.Devices = p.Devices[:1]
	spec, err := cdi.Spec(p, nodes())
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Write(uid, spec); err != nil {
		t.Fatal(err)
	}
	got, err := dir.Read(uid)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spec, got); diff != "" {
		t.Errorf("Read (-want +got):\n%s", diff)
	}
}

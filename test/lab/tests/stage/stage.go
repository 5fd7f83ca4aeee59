// Package stage opens the machine as the plugin opens a node, for guest tests, and looks at it as package node does.
package stage

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// Everything is a node config by which all functions of the types are ours.
func Everything(types ...string) *v1alpha1.NodeConfig {
	c := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: types}}}}
	c.Default()
	return c
}

// VGPUType is a vGPU type of which the module labvgpu has four.
const VGPUType = "NVIDIA H200X-35C"

// VGPUs has the VFs of NVIDIA's GPUs, which labvgpu makes, be vGPUs of a type.
func VGPUs(kind string) []v1alpha1.GPUSliceRule {
	return []v1alpha1.GPUSliceRule{{
		Match:  v1alpha1.GPUMatch{Vendors: []pci.ID{pci.VendorNVIDIA}},
		NVIDIA: &v1alpha1.NVIDIASlices{VGPUType: kind, Instances: 4},
	}}
}

// WithAudio is the default node config and a rule for the audio function in a GPU's group. QEMU's has another vendor's id
// than the GPU, so that it is not a companion. VFs of NVIDIA's GPUs are vGPUs.
func WithAudio() *v1alpha1.NodeConfig {
	c := &v1alpha1.NodeConfig{
		Devices: []v1alpha1.DeviceRule{
			{Match: v1alpha1.DeviceMatch{Types: []string{"gpu", "vf", "gpuvf"}}},
			{Match: v1alpha1.DeviceMatch{Classes: []string{"0403"}}},
		},
		GPUSlices: VGPUs(VGPUType),
	}
	c.Default()
	return c
}

// Config is the node's config: the usual places, the machine itself, the functions of [WithAudio].
func Config() node.Config {
	return node.Config{
		Node: WithAudio(),
		Root: "/", StateDir: node.DefaultStateDir, RunDir: node.DefaultRunDir, CDIDir: node.DefaultCDIDir,
		WriteLimit: node.DefaultWriteLimit,
	}
}

// Open opens the node, and checks at the test's end that no record and no CDI spec is left.
func Open(t *testing.T, c node.Config) *node.Node {
	t.Helper()
	n := OpenPlain(t, c)
	t.Cleanup(func() { Empty(t, n) })
	return n
}

// OpenPlain opens the node as long as the test runs.
func OpenPlain(t *testing.T, c node.Config) *node.Node {
	t.Helper()
	n, err := node.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// Empty checks that the node has no record and no CDI spec, and no remains of either.
func Empty(t *testing.T, n *node.Node) {
	t.Helper()
	if records, errs := n.Parts.Journal.List(); len(records) > 0 || len(errs) > 0 {
		t.Errorf("the journal is not empty: %v, %v", records, errs)
	}
	if uids, err := n.Parts.Specs.Claims(); err != nil || len(uids) > 0 {
		t.Errorf("CDI specs are left: %v, %v", uids, err)
	}
}

// VFs are what the NIC imposes on its VFs, by index. What it has counted is left out.
func VFs(t *testing.T, n *node.Node) []string {
	t.Helper()
	pf := Address(t, topology.PF0)
	count, err := strconv.Atoi(kernel.Read(t, kernel.Path(topology.PF0, "sriov_numvfs")))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for index := range count {
		state, _, err := n.Parts.VFs.Read(t.Context(), pf, index)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, state.Settings.String())
	}
	return all
}

// Files are the names in a directory, none if there is no such directory.
func Files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Scan is a fresh reading of the machine.
func Scan(t *testing.T, opts ...inventory.Option) *device.Snapshot {
	t.Helper()
	fs, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	snap, err := inventory.Scan(t.Context(), fs, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// Address parses an address.
func Address(t *testing.T, text string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Function is a function of a snapshot.
func Function(t *testing.T, snap *device.Snapshot, address string) *device.Function {
	t.Helper()
	f, ok := snap.Function(Address(t, address))
	if !ok {
		t.Fatalf("the snapshot has no %s", address)
	}
	return f
}

// Request asks for functions by the names that the node gives them.
func Request(t *testing.T, uid string, addresses ...string) *claim.Request {
	t.Helper()
	req, err := NewRequest(Scan(t), uid, addresses...)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// NewRequest is Request in a process that is not a test.
func NewRequest(snap *device.Snapshot, uid string, addresses ...string) (*claim.Request, error) {
	req := &claim.Request{UID: uid, Namespace: "tenant-a", Name: uid}
	for _, text := range addresses {
		a, err := pci.ParseAddress(text)
		if err != nil {
			return nil, err
		}
		f, ok := snap.Function(a)
		if !ok {
			return nil, &MissingError{Address: text}
		}
		d := claim.Device{Request: "device", Pool: "lab", Name: f.Name(), Address: a}
		d.VFIO.Default()
		req.Devices = append(req.Devices, d)
	}
	return req, nil
}

// Devices are a record's devices as a claim asks for them.
func Devices(rec *journal.Record) []claim.Device {
	var devices []claim.Device
	for _, d := range rec.Plan.Devices {
		asked := claim.Device{Request: d.Request, Pool: d.Pool, Name: d.Name, Address: d.Address}
		asked.VFIO.Default()
		devices = append(devices, asked)
	}
	return devices
}

// MissingError says that the machine lacks a function.
type MissingError struct{ Address string }

func (e *MissingError) Error() string { return "the machine has no " + e.Address }

// Bindings is how the kernel binds every function, by plain reads.
func Bindings(t *testing.T) map[string]plan.Binding {
	t.Helper()
	all := map[string]plan.Binding{}
	for _, address := range Files(t, "/sys/bus/pci/devices") {
		override := kernel.Read(t, kernel.Path(address, "driver_override"))
		if override == "(null)" {
			override = ""
		}
		all[address] = plan.Binding{Driver: kernel.Driver(t, address), Override: override}
	}
	return all
}

// HaveTypes are the VFs that are vGPUs now.
func HaveTypes(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, address := range Files(t, "/sys/bus/pci/devices") {
		text, err := os.ReadFile(kernel.Path(address, "nvidia/current_vgpu_type"))
		if err == nil && strings.TrimSpace(string(text)) != "0" {
			all = append(all, address)
		}
	}
	return all
}

// Unchanged checks that the bindings are those from before.
func Unchanged(t *testing.T, before map[string]plan.Binding) {
	t.Helper()
	if diff := cmp.Diff(before, Bindings(t)); diff != "" {
		t.Errorf("bindings (-before +after):\n%s", diff)
	}
}

// Says checks that an error is there and has all the words.
func Says(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one that says %q", words)
	}
	t.Log(err)
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
}

//go:build lab

package claims_test

import (
	"errors"
	"maps"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// TestClaimsOfEachKind prepares and unprepares one device of each kind, and looks with plain reads whether exactly the
// claim's functions moved, and moved back.
func TestClaimsOfEachKind(t *testing.T) {
	kernel.VFs(t, topology.PF0, "2")
	kernel.VFs(t, topology.NVMe0, "2")
	tests := map[string]struct {
		ask   string
		takes []string
		cfg   *v1alpha1.NodeConfig
	}{
		"a GPU alone":                  {ask: topology.GPU0},
		"a GPU with audio":             {ask: topology.GPU1, takes: []string{topology.GPU1Audio}, cfg: stage.WithAudio()},
		"a GPU of another vendor":      {ask: topology.GPU2},
		"a GPU with FLR":               {ask: topology.GPU3},
		"a NIC's VF":                   {ask: topology.VF(topology.PF0, 1)},
		"an NVMe's VF":                 {ask: topology.VF(topology.NVMe0, 0), cfg: stage.Everything("nvme")},
		"a whole NIC":                  {ask: topology.NIC0, cfg: stage.Everything("pf")},
		"a PF without VFs":             {ask: topology.PF1, cfg: stage.Everything("pf")},
		"a device with a BAR of 4 GiB": {ask: topology.BigBAR, cfg: stage.Everything("other")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := open(t, tt.cfg)
			before := stage.Bindings(t)
			rec := mustPrepare(t, n, stage.Request(t, "kind", tt.ask))
			want := maps.Clone(before)
			for _, a := range append(tt.takes, tt.ask) {
				want[a] = plan.Binding{Driver: "vfio-pci", Override: "vfio-pci"}
			}
			if diff := cmp.Diff(want, stage.Bindings(t)); diff != "" {
				t.Errorf("prepared (-want +got):\n%s", diff)
			}
			if len(rec.Plan.Functions) != len(tt.takes)+1 {
				t.Errorf("the record holds %v, want %s and %v", rec.Plan.Addresses(), tt.ask, tt.takes)
			}
			if diff := cmp.Diff([]string{stage.WantNode(t, tt.ask)}, stage.Nodes(t, "kind")); diff != "" {
				t.Errorf("CDI nodes (-want +got):\n%s", diff)
			}
			mustUnprepare(t, n, "kind")
			if diff := cmp.Diff(before, stage.Bindings(t)); diff != "" {
				t.Errorf("unprepared (-before +after):\n%s", diff)
			}
		})
	}
}

// TestGroupNodesGo checks that VFIO's nodes are gone with the claim, so that nobody keeps a way in.
func TestGroupNodesGo(t *testing.T) {
	n := open(t, nil)
	mustPrepare(t, n, stage.Request(t, "node", topology.GPU0))
	paths := stage.Nodes(t, "node")
	mustUnprepare(t, n, "node")
	for _, p := range paths {
		if _, err := os.Stat(p); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there (%v)", p, err)
		}
	}
}

// TestOverrideFoundIsPutBack checks driver_override to the letter.
func TestOverrideFoundIsPutBack(t *testing.T) {
	override := kernel.Path(topology.GPU0, "driver_override")
	kernel.Write(t, override, "bochs-drm")
	t.Cleanup(func() { kernel.Write(t, override, "\n") })
	n := open(t, nil)
	before := stage.Bindings(t)
	mustPrepare(t, n, stage.Request(t, "override", topology.GPU0))
	mustUnprepare(t, n, "override")
	if diff := cmp.Diff(before, stage.Bindings(t)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// TestBoundBeforeStays checks that a function that was on vfio-pci is left there, untouched.
func TestBoundBeforeStays(t *testing.T) {
	kernel.Bind(t, topology.GPU0, "vfio-pci")
	n := open(t, nil)
	before := stage.Bindings(t)
	rec := mustPrepare(t, n, stage.Request(t, "before", topology.GPU0))
	if len(rec.Plan.Steps) != 0 {
		t.Errorf("steps %v; want none", rec.Plan.Steps)
	}
	mustUnprepare(t, n, "before")
	if diff := cmp.Diff(before, stage.Bindings(t)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// TestBoundByPolicy binds at start and gives back when the standing record goes.
func TestBoundByPolicy(t *testing.T) {
	cfg := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{
		Match:  v1alpha1.DeviceMatch{Types: []string{"gpu"}, Vendors: nil, Addresses: nil, Classes: []string{"038000"}},
		Policy: v1alpha1.PolicyBound,
	}, {Match: v1alpha1.DeviceMatch{Classes: []string{"0403"}}}}} // the audio function beside one of them
	cfg.Default()
	before := stage.Bindings(t)
	n := open(t, cfg)
	snap := stage.Scan(t)
	if err := n.Maintainer.BindByPolicy(t.Context()); err != nil {
		t.Error(err)
	}
	records, _ := n.Parts.Journal.List()
	if len(records) < 3 {
		t.Errorf("%d standing records; want one for each GPU that can be bound", len(records))
	}
	rec := mustPrepare(t, n, stage.Request(t, "standing-claim", topology.GPU0))
	if len(rec.Plan.Steps) != 0 {
		t.Errorf("steps %v; want none: the function is bound already", rec.Plan.Steps)
	}
	mustUnprepare(t, n, "standing-claim")
	if got := kernel.Driver(t, topology.GPU0); got != "vfio-pci" {
		t.Errorf("after the claim %s is on %q; want vfio-pci", topology.GPU0, got)
	}
	for i := range snap.Functions {
		if f := &snap.Functions[i]; f.Type == device.GPU {
			mustUnprepare(t, n, "standing-"+f.Address.Label())
		}
	}
	if diff := cmp.Diff(before, stage.Bindings(t)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// TestKeptWarm checks that the first GPU of the slices is bound and reset before its claim, which then needs no step, and
// that it goes back when the config wants none.
func TestKeptWarm(t *testing.T) {
	cfg := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{
		Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{stage.Address(t, topology.GPU0)}}, Warm: v1alpha1.Share{Amount: 1},
	}}}
	cfg.Default()
	before := stage.Bindings(t)
	n := open(t, cfg)
	pools, err := n.Maintainer.KeepWarm(t.Context(), maintain.Warming{})
	if err != nil || len(pools) != 1 || len(pools[0].Ready) != 1 {
		t.Fatalf("KeepWarm = %+v, %v; want %s ready", pools, err, topology.GPU0)
	}
	rec := mustPrepare(t, n, stage.Request(t, "warm-claim", topology.GPU0))
	if !rec.Plan.IsWarm() || len(rec.Plan.Steps) != 0 {
		t.Errorf("steps %v; want none: the function is warm", rec.Plan.Steps)
	}
	mustUnprepare(t, n, "warm-claim")
	if got := kernel.Driver(t, topology.GPU0); got != "vfio-pci" {
		t.Errorf("after the claim %s is on %q; want vfio-pci", topology.GPU0, got)
	}
	cfg.Devices[0].Warm = v1alpha1.Share{}
	if _, err := n.Maintainer.KeepWarm(t.Context(), maintain.Warming{Return: true}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, stage.Bindings(t)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	parts "github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// randomSeeds is how many nodes are made. One that fails names its seed.
const randomSeeds = 24

// troubles are the events that may come together on one node, and that a claim meets too.
func troubles() []string {
	return []string{
		"as it is", "a drain", "fatal errors", "a tenant's leftovers", "a device that fell off", "no-IOMMU mode", "ATS",
		"an argument that fakes ACS", "an argument that switches ACS off", "an argument about an absent port",
		"a reset by power management only", "a failure that a waiver accepts", "a run file of another boot",
	}
}

// TestAllSayTheSameOfNodesInRandomTrouble: the slices, `plan`, `devices`, its JSON and `topology` of one node.
func TestAllSayTheSameOfNodesInRandomTrouble(t *testing.T) {
	all := events()
	for seed := range uint64(randomSeeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 33))
			build := []func(testing.TB) *board.Tree{board.Server, board.Switch}[random.IntN(2)]
			n := &pluginNode{Tree: build(t), t: t, config: nodeconfig.Default(), inPod: random.IntN(3) == 0}
			for range 1 + random.IntN(3) {
				name := troubles()[random.IntN(len(troubles()))]
				t.Log(name)
				all[name](n)
			}
			n.configure()
			want := n.slices()
			n.compare(want)
			n.comparePlans(want)
		})
	}
}

// comparePlans plans a claim for each device by itself, as `kata-vfio-plugin plan --all` does, and compares the answers
// with the slices.
func (n *pluginNode) comparePlans(want map[pci.Address][]resourceapi.DeviceTaint) {
	n.t.Helper()
	fsys, _ := n.Read()
	failing, _, err := plugin.Checks{Profile: finding.Profiles()[0], Counts: rule.High}.Gate(n.t.Context(), fsys, n.config, n.Root())
	if err != nil {
		n.t.Fatal(err)
	}
	opened, err := parts.Look(parts.Config{
		Root: n.Root(), StateDir: parts.DefaultStateDir, RunDir: parts.DefaultRunDir, Node: n.config, Name: "worker-1", Checks: failing,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	known, err := opened.Preparer.PlanNode(n.t.Context(), n.Scan())
	if err != nil {
		n.t.Fatal(err)
	}
	candidates := plugin.Candidates("worker-1", &known)
	for _, c := range candidates {
		i := slices.IndexFunc(known.Selection.Ours(), func(f *device.Function) bool { return f.Name() == c.Device.Name })
		if i < 0 {
			continue // a pair
		}
		a := known.Selection.Ours()[i].Address
		request, err := plugin.PreflightRequest([]plugin.Candidate{c}, nil)
		if err != nil {
			n.t.Fatal(err)
		}
		_, err = opened.Preparer.Plan(n.t.Context(), request)
		tainted, foreseen := len(want[a]) > 0, len(c.Device.Taints) > 0
		if refused := err != nil; tainted != foreseen || refused != tainted && !heldOnly(err) {
			n.t.Errorf("%s: plan says %v, its slice has the taints %v, preflight the taints %v", a, err, want[a], c.Device.Taints)
		}
	}
}

// heldOnly reports whether a claim is refused since another one has the device: plan then names no other reason.
func heldOnly(err error) bool {
	refused, ok := errors.AsType[*rule.RefusedError](err)
	return ok && !slices.ContainsFunc(refused.Verdicts, func(r rule.Verdict) bool { return r.Code != rule.Held })
}

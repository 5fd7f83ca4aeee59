package plan_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// randomNode returns a node of few groups, of whose functions anything may be wrong.
func randomNode(r *rand.Rand) plan.Node {
	classes := []pci.Class{0x030200, 0x030000, 0x040300, 0x0c0330, 0x020000, 0x060400, 0x010802, 0x120000}
	drivers := []string{"", "vfio-pci", "nvidia", "igb", "vmd", "snd_hda_intel"}
	often := func() bool { return r.IntN(8) == 0 }
	n := plan.Node{
		Owners: map[pci.Address]plan.Owner{}, FatalErrors: map[pci.Address]bool{}, Sanitizing: map[pci.Address]plan.Sanitizing{},
		Drained: map[pci.Address]string{}, Attempted: map[pci.Address]rule.Code{},
	}
	failing := map[pci.Address][]string{}
	n.Failing = func(a pci.Address) []string { return failing[a] }
	var fns []device.Function
	for i := range 2 + r.IntN(12) {
		f := on(pci.Address{Bus: uint8(0x20 + i/6), Device: uint8(i / 3 % 2), Function: uint8(i % 3)}, classes[r.IntN(len(classes))], drivers[r.IntN(len(drivers))], 1+r.IntN(3))
		if often() {
			f.Group = nil
		}
		if often() {
			f.ResetMethods = nil
		}
		if i > 0 && often() {
			f.VF, f.Type = &device.VF{PF: fns[r.IntN(i)].Address}, device.VFType
		}
		if often() {
			f.PF = &device.PF{TotalVFs: 4, NumVFs: r.IntN(2)}
		}
		if often() {
			f.Uses = []device.Use{{Kind: device.UseConsole, Name: "card0"}}
		}
		f.Locked = often()
		if often() {
			n.Owners[f.Address] = plan.Owner{Claim: plan.Ref{UID: "other", Namespace: "b"}, Quarantined: []string{"", "no reset"}[r.IntN(2)], Bound: r.IntN(2) == 0}
		}
		if often() {
			failing[f.Address] = []string{"IOM-001"}
		}
		if often() {
			n.Sanitizing[f.Address] = plan.Sanitizing{Code: rule.NotSanitized, Text: "waits", Profile: "memory"}
		}
		n.FatalErrors[f.Address] = often()
		if r.IntN(30) == 0 {
			n.Drained[f.Address] = "repair"
		}
		fns = append(fns, f)
	}
	n.Snapshot = assemble(fns)
	n.Snapshot.Host.IOMMUFD, n.Snapshot.Host.NVIDIAModeset = r.IntN(2) == 0, r.IntN(2) == 0
	if often() {
		n.Damaged = "x.json"
	}
	if often() {
		n.HotPlugWindow = 1 << 20
	}
	rules := []v1alpha1.DeviceRule{{Name: "all", Match: v1alpha1.DeviceMatch{Types: []string{"gpu", "vf", "accelerator", "nvme"}}}}
	n.Selection = nodeconfig.Select(&v1alpha1.NodeConfig{Devices: rules[:r.IntN(2)]}, n.Snapshot)
	return n
}

// TestAssessorIsAsGoodAsOneForEachFunction: what an assessor keeps of an IOMMU group changes no assessment.
func TestAssessorIsAsGoodAsOneForEachFunction(t *testing.T) {
	codes := map[rule.Code]bool{}
	evidence := cmp.Transformer("List", func(e isolation.Evidence) []rule.Evidence { return e.List() })
	for seed := range uint64(400) {
		n := randomNode(rand.New(rand.NewPCG(seed, 2))) //nolint:gosec // a failure must come again
		all := plan.NewAssessor(n)
		for i := range n.Snapshot.Functions {
			f := &n.Snapshot.Functions[i]
			got := all.Assess(f)
			if diff := cmp.Diff(plan.NewAssessor(n).Assess(f), got, evidence); diff != "" {
				t.Fatalf("node %d: the assessments of %s differ (-of it alone +of all):\n%s", seed, f.Address, diff)
			}
			for _, refusal := range got.Refusals {
				codes[refusal.Code] = true
			}
		}
	}
	if len(codes) < 12 {
		t.Errorf("the nodes have %d kinds of faults, want more: %v", len(codes), codes)
	}
}

// TestManyMatesThatNoRuleSelects: the refusal names some of them, and counts the others.
func TestManyMatesThatNoRuleSelects(t *testing.T) {
	n := oneGroup(64)
	n.Selection = nodeconfig.Select(&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{}}, n.Snapshot)
	for _, refusal := range plan.NewAssessor(n).Assess(&n.Snapshot.Functions[3]).Refusals {
		if refusal.Code != rule.GroupMateNotSelected {
			continue
		}
		named := strings.Count(refusal.Text, "class ")
		if named != 8 || !strings.Contains(refusal.Text, "; 55 more must be assigned with") || !strings.Contains(refusal.Fix, "of 55 more, which `kata-vfio-audit devices` lists") {
			t.Errorf("the refusal is %q, %q; want eight mates, and 55 more", refusal.Text, refusal.Fix)
		}
		return
	}
	t.Errorf("no rule selects 63 mates of %s, and nothing says so", n.Snapshot.Functions[3].Address)
}

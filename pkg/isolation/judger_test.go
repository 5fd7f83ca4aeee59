package isolation_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// randomNode returns a node with some groups, in which anything may be together.
func randomNode(r *rand.Rand) *device.Snapshot {
	s := &device.Snapshot{Host: device.Host{IOMMUs: []string{"dmar0"}, IRQChips: []string{"IR-PCI-MSI"}}}
	classes := []pci.Class{0x030200, 0x030000, 0x040300, 0x020000, 0x060400, 0x068000, 0x010802}
	drivers := []string{"", "vfio-pci", "nvidia", "pcieport", "shpchp", "igb", "nvme"}
	groups := make([]device.Group, 3)
	for i := range groups {
		groups[i] = device.Group{Number: i + 1, Type: "DMA"}
	}
	for i := range 1 + r.IntN(14) {
		f := device.Function{
			Address: pci.Address{Bus: uint8(0x20 + i/6), Device: uint8(i / 3 % 2), Function: uint8(i % 3)}, Root: "pci0000:00",
			Vendor: []pci.ID{0x10de, 0x8086}[r.IntN(2)], Class: classes[r.IntN(len(classes))], Driver: drivers[r.IntN(len(drivers))],
		}
		f.Type = device.Classify(f.Class, "", false, false)
		if r.IntN(3) > 0 {
			f.ResetMethods = []string{"flr"}
		}
		if r.IntN(2) > 0 {
			f.Upstream = []pci.Address{{Device: f.Address.Bus % 32}}
		}
		if r.IntN(5) == 0 {
			f.Uses = []device.Use{{Kind: device.UseConsole, Name: "card0"}}
		}
		if i > 0 && r.IntN(4) == 0 {
			f.VF, f.Type = &device.VF{PF: s.Functions[r.IntN(i)].Address}, device.VFType
		}
		if n := r.IntN(len(groups) + 1); n > 0 {
			f.Group = new(n)
			groups[n-1].Members = append(groups[n-1].Members, f.Address)
		}
		s.Functions = append(s.Functions, f)
	}
	if r.IntN(4) == 0 {
		groups[0].Members = append(groups[0].Members, pci.Address{Bus: 0x99})
	}
	if r.IntN(4) == 0 {
		groups[1].Others = []string{"ARMH0011:00"}
	}
	s.Groups = groups
	return s
}

// TestJudgerIsAsGoodAsJudge: what a judger keeps of a group changes no judgment, no assignment set and no reset.
func TestJudgerIsAsGoodAsJudge(t *testing.T) {
	viable := 0
	for seed := range uint64(400) {
		s := randomNode(rand.New(rand.NewPCG(seed, 1))) //nolint:gosec // a failure must come again
		judger := isolation.NewJudger(s)
		for i := range s.Functions {
			f := &s.Functions[i]
			got := judger.Judge(f)
			if diff := cmp.Diff(isolation.JudgeByEachMate(s, f), got, listEvidence()); diff != "" {
				t.Fatalf("node %d: the judgments on %s differ (-each mate +judger):\n%s", seed, f.Address, diff)
			}
			if !got.Has(rule.GroupNotViable) {
				viable++
			}
			set, _ := judger.AssignmentSet(f)
			if diff := cmp.Diff(isolation.AssignmentSet(s, f), set); diff != "" {
				t.Fatalf("node %d: the assignment sets of %s differ (-function +judger):\n%s", seed, f.Address, diff)
			}
			if diff := cmp.Diff(isolation.Resets(s, f), judger.Resets(f)); diff != "" {
				t.Fatalf("node %d: the resets of %s differ (-function +judger):\n%s", seed, f.Address, diff)
			}
		}
	}
	if viable == 0 {
		t.Error("no group of any node is viable")
	}
}

// TestManyMatesAreCounted: a note names some mates of a large group.
func TestManyMatesAreCounted(t *testing.T) {
	s := &device.Snapshot{Groups: []device.Group{{Number: 1, Type: "DMA"}}}
	for i := range 12 {
		f := device.Function{Address: pci.Address{Bus: 0x20, Device: uint8(i)}, Class: 0x120000, Group: new(1)}
		s.Functions = append(s.Functions, f)
		s.Groups[0].Members = append(s.Groups[0].Members, f.Address)
	}
	for i, first := range map[int]string{0: "0000:20:01.0", 5: "0000:20:00.0"} {
		for _, note := range isolation.Judge(s, &s.Functions[i]).Notes {
			if note.Code != rule.GroupMates {
				continue
			}
			named := strings.Count(note.Text, "(no driver)")
			want := fmt.Sprintf("0000:20:%02x.0 shares IOMMU group 1 with %s (no driver), ", i, first)
			if named != 8 || !strings.HasPrefix(note.Text, want) || !strings.HasSuffix(note.Text, ", 3 more") {
				t.Errorf("the note is %q; want eight mates, and 3 more", note.Text)
			}
		}
	}
}

package audit_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/test/golden"
)

// h100 is a node with the GPUs of NVIDIA's example of an H100 board, what Fabric Manager listed last, and the map of modules.
func h100(t *testing.T, state fabric.State, m *fabric.Map) plan.Node {
	t.Helper()
	s := &device.Snapshot{Host: device.Host{Kernel: "6.8.0", IOMMUs: []string{"dmar0"}, IRQChips: []string{"IR-PCI-MSI"}, BootID: "boot"}}
	buses := fabrictest.Buses()
	slices.Sort(buses)
	for i, bus := range buses {
		up := at(bus-2, 1, 0)
		gpu := base(at(bus, 0, 0), pci.Class3D<<8, 2*i+1, "vfio-pci", up)
		gpu.Vendor, gpu.Device, gpu.VendorName, gpu.Model, gpu.Type = pci.VendorNVIDIA, 0x2330, "NVIDIA Corporation", "GH100 [H100 SXM5 80GB]", device.GPU
		above := port(up, 2*i+2)
		above.Type = device.Bridge
		s.Functions = append(s.Functions, above, gpu)
		s.Groups = append(s.Groups, device.Group{Number: 2*i + 1, Type: "DMA-FQ", Members: []pci.Address{gpu.Address}}, device.Group{Number: 2*i + 2, Type: "DMA-FQ", Members: []pci.Address{up}})
	}
	slices.SortFunc(s.Functions, func(a, b device.Function) int { return a.Address.Compare(b.Address) })
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	s.Host.Fabric = device.FabricFacts{State: text(state), Product: "HGX", Driver: "570.172.08"}
	if m != nil {
		s.Host.Fabric.Modules = text(m)
	}
	cfg := &v1alpha1.NodeConfig{Fabric: &v1alpha1.Fabric{}}
	cfg.Default()
	return plan.Node{Snapshot: s, Selection: nodeconfig.Select(cfg, s), Owners: map[pci.Address]plan.Owner{}}
}

func activated(ids ...int) fabric.List {
	l := fabrictest.H100()
	for i := range l {
		l[i].Active = slices.Contains(ids, l[i].ID)
	}
	return l
}

// hold has a claim hold the GPUs on the buses.
func hold(n plan.Node, name string, buses ...uint8) {
	for _, b := range buses {
		n.Owners[at(b, 0, 0)] = plan.Owner{Claim: plan.Ref{UID: "uid-" + name, Namespace: "team-a", Name: name}}
	}
}

func modules() *fabric.Map { return fabrictest.Map("HGX", fabrictest.Buses()...) }

// used is a board with a claim of a partition, a claim whose partition Fabric Manager has lost, an active partition of nobody, and a GPU
// that is drained.
func used(t *testing.T) plan.Node {
	n := h100(t, fabric.State{Partitions: activated(3, 11)}, modules())
	hold(n, "train", 0x86, 0x87)
	hold(n, "lost", 0xb8, 0xbb)
	n.Drained = map[pci.Address]string{at(0x44, 0, 0): "RMA"}
	return n
}

// TestPartitionsOfANode: each is free, or active, or blocked, and by what.
func TestPartitionsOfANode(t *testing.T) {
	n := used(t)
	got := map[int]string{}
	for _, p := range n.Fabric().Partitions {
		got[p.ID] = p.Words()
		if p.Links != 18 {
			t.Errorf("partition %d has %d links, want 18", p.ID, p.Links)
		}
	}
	want := map[int]string{
		0: "blocked by team-a/lost +3",
		1: "blocked by team-a/lost +1",
		2: "blocked by 0000:44:00.0 (Drained) +1",
		3: "active: team-a/train", 4: "NOT active, and team-a/lost has it",
		5: "blocked by active partition 11", 6: "blocked by 0000:44:00.0 (Drained)",
		7: "blocked by team-a/train", 8: "blocked by team-a/lost", 9: "blocked by team-a/train", 10: "blocked by team-a/lost",
		11: "active: no claim's", 12: "free", 13: "free", 14: "blocked by 0000:44:00.0 (Drained)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	hold(n, "train", 0x86, 0x87)
	n.Owners[at(0x86, 0, 0)] = plan.Owner{Claim: n.Owners[at(0x86, 0, 0)].Claim, Quarantined: "stays active"}
	if got, want := n.Fabric().Partitions[3].Words(), "active: team-a/train (quarantined)"; got != want {
		t.Errorf("in quarantine it is %q, want %q", got, want)
	}
}

// TestFabricOfANode: without partitions the reason and the fix, and while Fabric Manager is away what it listed last.
func TestFabricOfANode(t *testing.T) {
	for name, c := range map[string]struct {
		node plan.Node
		want []string
		free bool
	}{
		"no map": {h100(t, fabric.State{Partitions: activated()}, nil), []string{
			"NVLink fabric, Fabric Manager 570.172.08: no partitions: no map says which PCI function module 1 is", "fix: run `kata-vfio-bootstrap modules --write`",
		}, false},
		"nothing listed yet": {h100(t, fabric.State{}, modules()), []string{"Fabric Manager has not listed its partitions yet", "fix: start Fabric Manager"}, false},
		"Fabric Manager is away": {h100(t, fabric.State{Partitions: activated(), Away: "no socket"}, modules()), []string{
			"15 partitions, 0 active, as listed last", "Fabric Manager can't be asked: no socket",
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inv := audit.NewInventory(c.node, nil)
			if got := inv.Fabric.Counts(plan.PartitionFree) == 15; got != c.free {
				t.Errorf("all partitions are free: %t, want %t: %+v", got, c.free, inv.Fabric)
			}
			for view, text := range views(t, inv) {
				text = strings.Join(strings.Fields(text), " ")
				for i, want := range c.want {
					if view == "graph" && i > 0 {
						continue // it has one line for the fabric
					}
					if view == "drawing" {
						want = strings.ReplaceAll(want, "'", "&#39;")
					}
					if !strings.Contains(text, want) {
						t.Errorf("the %s lacks %q:\n%s", view, want, text)
					}
				}
			}
		})
	}
}

// TestFabricGolden shows a board whose partitions are used in all ways, at the widths of terminals and in all drawings.
func TestFabricGolden(t *testing.T) {
	inv := audit.NewInventory(used(t), nil)
	var b strings.Builder
	for _, width := range []int{80, 120} {
		if err := inv.WriteTable(&b, audit.Style{Width: width, Terminal: width}); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n")
		if err := output.WriteTree(&b, audit.Tree(inv, audit.Folded), width, false); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n")
	}
	golden.Compare(t, "fabric.txt", b.String())
	golden.Compare(t, "topology-fabric.svg", string(render(t, inv)))
	golden.Compare(t, "topology-fabric.dot", views(t, inv)["graph"])
}

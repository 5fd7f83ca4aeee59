package publish_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestTemplateIsTheSameOnAllNodesOfAKind: what one node's life has made of it is not in its template.
func TestTemplateIsTheSameOnAllNodesOfAKind(t *testing.T) {
	want := publish.Template(pairedBoard(t))
	for name, change := range map[string]func(n *publish.Node){
		"claims": func(n *publish.Node) {
			n.Allocated = []publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-11-00-0"}, {Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-99-00-0"}}
		},
		"a device that lingers": func(n *publish.Node) {
			n.Lingering = []publish.Allocated{{Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-99-00-0"}}
		},
		"a quarantine":   func(n *publish.Node) { refuse(n, addr(t, "0000:11:00.0"), rule.Quarantined) },
		"less isolation": func(n *publish.Node) { blemish(n, addr(t, "0000:12:00.0"), rule.DirectMappedRegion, rule.High) },
		"a drain":        func(n *publish.Node) { n.Health[addr(t, "0000:11:00.0")] = publish.Health{Drained: rule.Drained} },
		"another boot": func(n *publish.Node) {
			for i := range n.Snapshot.Functions {
				f := &n.Snapshot.Functions[i]
				f.Driver, f.Children.RDMA = "vfio-pci", []string{"mlx5_7"}
				f.Group = new(500 - i)
			}
			for i := range n.Snapshot.Groups {
				n.Snapshot.Groups[i].Number = -n.Snapshot.Groups[i].Number
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := pairedBoard(t)
			change(n)
			if diff := cmp.Diff(want, publish.Template(n)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestTemplateNamesNoAddress: the new node's are others.
func TestTemplateNamesNoAddress(t *testing.T) {
	for name, n := range map[string]*publish.Node{"mixed": mixed(t), "board": board(t), "pairs": pairedBoard(t)} {
		text, err := json.Marshal(publish.Template(n))
		if err != nil {
			t.Fatal(err)
		}
		if found := regexp.MustCompile(`[0-9a-f]{4,5}[:-][0-9a-f]{2}[:-][0-9a-f]{2}|iommuGroup|"driver"|isolated|pciBusID|taints`).FindAllString(string(text), -1); found != nil {
			t.Errorf("%s: the template has %q, want nothing of a single node", name, found)
		}
	}
}

// TestTemplateGivesAwayWhatTheNodeDoes: counters keep their meaning under other names.
func TestTemplateGivesAwayWhatTheNodeDoes(t *testing.T) {
	for name, n := range map[string]*publish.Node{"no pairs": board(t), "pairs": pairedBoard(t), "one group": oneGroup(pfWith(t, "0000:5e:00.0", 7, 2, 10))} {
		node, template := publish.Pools(n), publish.Template(n)
		checkPools(t, template)
		for _, kind := range []string{"gpu", "vf", "pf", "gpu-vf"} {
			if want, got := len(given(t, defaults(), node, kind)), len(given(t, defaults(), template, kind)); got != want {
				t.Errorf("%s: the template has %d %s to give, the node %d", name, got, kind, want)
			}
		}
	}
}

// TestTemplateOfSharedGPU: the classes tell it from others, and its pods wait, on new nodes, too.
func TestTemplateOfSharedGPU(t *testing.T) {
	n := nodeOf(hopper(t, "0000:3b:00.0", 1), hopper(t, "0000:3c:00.0", 2))
	shareGPU(n, addr(t, "0000:3b:00.0"))
	shared := publish.Template(n)["worker-1/kata-vfio.dev/shared"].Slices[0].Devices[0]
	want := deviceNamed(publish.Pools(n), sharedGPU)
	if !cmp.Equal(shared.Attributes[publish.AttrSharedWith], want.Attributes[publish.AttrSharedWith]) ||
		!slices.Equal(shared.BindingConditions, want.BindingConditions) || len(shared.BindingConditions) == 0 {
		t.Errorf("the template has %+v, want the sharing of %+v", shared, want)
	}
}

func TestTemplateOfPools(t *testing.T) {
	got := slices.Sorted(maps.Keys(publish.Template(board(t))))
	want := []string{"worker-1/kata-vfio.dev", "worker-1/kata-vfio.dev/nic-0", "worker-1/kata-vfio.dev/nic-1", "worker-1/kata-vfio.dev/nic-2", "worker-1/kata-vfio.dev/nic-3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the pools differ (-want +got):\n%s", diff)
	}
}

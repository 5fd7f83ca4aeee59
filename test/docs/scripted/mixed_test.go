package scripted_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

const mixedGuide = "deploy/guides/mixed-fleet.md"

// TestMixedFleetGuide runs the guide's commands, which are those of a cluster's admin.
func TestMixedFleetGuide(t *testing.T) {
	m := newMachine(t, board.IdleHGX(t, 0), kata())
	for _, heading := range []string{"1. Label the nodes", "3. Install, and look", "4. Configure one pool after the other", "5. Find nodes in no pool", "Move a node to another pool"} {
		steps := docs.Steps(t, mixedGuide, heading)
		if len(steps) == 0 {
			t.Errorf("%q has no commands", heading)
		}
		for _, step := range steps {
			m.follow(step)
		}
	}
}

// fleet is what the guide's values say about pools.
type fleet struct {
	Bootstrap struct{ Blueprint map[string]any }
	Pools     []struct {
		Name      string
		Bootstrap struct{ Blueprint map[string]any }
	}
}

// blueprints returns the blueprint of each pool, as the chart makes it of fields that only one of release and pool has.
func blueprints(t *testing.T) map[string]string {
	t.Helper()
	var values fleet
	if err := yaml.Unmarshal([]byte(docs.Read(t, "deploy/examples/mixed-fleet/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, pool := range values.Pools {
		b := map[string]any{"apiVersion": "bootstrap.kata-vfio.dev/v1alpha1", "kind": "NodeBlueprint"}
		maps.Copy(b, values.Bootstrap.Blueprint)
		maps.Copy(b, pool.Bootstrap.Blueprint)
		text, err := yaml.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		all[pool.Name] = string(text)
	}
	return all
}

// flex is a server with two Flex 170.
func flex(t *testing.T) *board.Tree {
	tree := board.New(t)
	for i, bus := range []uint8{0x3b, 0x5e} {
		tree.AddRootPort(bus)
		gpu := sysfstest.GPU(pci.Address{Bus: bus})
		gpu.Vendor, gpu.Device, gpu.Class, gpu.Driver = 0x8086, 0x56c0, 0x038000, "i915"
		tree.Add(gpu)
		tree.Devices[[]string{"gpu0", "gpu1"}[i]] = gpu.Address
	}
	return tree
}

// TestMixedFleetPools has bootstrap plan with the blueprint of each pool on each board: it keeps drivers off the GPUs of the
// pool's own board, and refuses no node for what only other boards have.
func TestMixedFleetPools(t *testing.T) {
	kept := regexp.MustCompile(`KERNEL=="([0-9a-f:.]+)", ATTR\{driver_override\}="vfio-pci"`)
	all := blueprints(t)
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"flex", "hgx", "mi300"}) {
		t.Fatalf("the pools are %q", got)
	}
	for name, tree := range map[string]*board.Tree{"hgx": board.IdleHGX(t, 0), "mi300": board.AMD(t), "flex": flex(t)} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, tree, kata())
			for pool, text := range all {
				m.Node.Put("etc/kata-vfio/blueprint.yaml", text)
				out, failed := m.Node.Run("kata-vfio-bootstrap plan -f /etc/kata-vfio/blueprint.yaml\n")
				if len(failed) != 1 || !strings.HasPrefix(failed[0], "3: ") || strings.Contains(out, "✗") {
					t.Errorf("%s: plan fails with %q, want 3, changes to make:\n%s", pool, failed, out)
				}
				want, got := []string{}, []string{}
				if pool == name && name != "flex" { // whose GPUs are on demand
					for i := range 8 {
						want = append(want, m.Devices["gpu"+string(rune('0'+i))].String())
					}
				}
				for _, match := range kept.FindAllStringSubmatch(out, -1) {
					got = append(got, match[1])
				}
				slices.Sort(want)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: the functions that are kept off differ (-want +got):\n%s", pool, diff)
				}
			}
		})
	}
}

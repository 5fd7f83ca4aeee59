package scripted_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

// nodeFeatureRule is what the file says of Node Feature Discovery's kind. A field that is not here is a mistake in the file.
type nodeFeatureRule struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       struct {
		Rules []struct {
			Name          string            `json:"name"`
			Labels        map[string]string `json:"labels"`
			MatchFeatures []featureMatch    `json:"matchFeatures"`
		} `json:"rules"`
	} `json:"spec"`
}

type featureMatch struct {
	Feature          string                `json:"feature"`
	MatchExpressions map[string]expression `json:"matchExpressions"`
}

type expression struct {
	Op    string   `json:"op"`
	Value []string `json:"value"`
}

// holds reports what a PCI function's attribute answers.
func (e expression) holds(t *testing.T, value string, has bool) bool {
	t.Helper()
	switch e.Op {
	case "In":
		return has && slices.Contains(e.Value, value)
	case "Exists":
		return has && len(e.Value) == 0
	}
	t.Fatalf("operator %s is not known here", e.Op)
	return false
}

// labels returns the labels that the rules give a node with these PCI functions: each feature matches one function of the node.
func (r *nodeFeatureRule) labels(t *testing.T, functions []map[string]string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, one := range r.Spec.Rules {
		matches := len(one.MatchFeatures) > 0
		for _, feature := range one.MatchFeatures {
			if feature.Feature != "pci.device" || len(feature.MatchExpressions) == 0 {
				t.Fatalf("%s: %+v is not known here", one.Name, feature)
			}
			matches = matches && slices.ContainsFunc(functions, func(f map[string]string) bool {
				for name, e := range feature.MatchExpressions {
					if value, has := f[name]; !e.holds(t, value, has) {
						return false
					}
				}
				return true
			})
		}
		if matches {
			maps.Copy(all, one.Labels)
		}
	}
	return all
}

// pciDevices are a board's functions with the attributes that NFD reads of each: four digits of the class, IDs without their prefix.
func pciDevices(t *testing.T, tree *board.Tree) []map[string]string {
	t.Helper()
	dirs, err := filepath.Glob(tree.Path("sys/bus/pci/devices/*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("%d functions, %v", len(dirs), err)
	}
	var all []map[string]string
	for _, dir := range dirs {
		f := map[string]string{}
		for _, name := range []string{"class", "vendor", "device", "iommu_group/type"} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err == nil {
				f[name] = strings.TrimPrefix(strings.TrimSpace(string(text)), "0x")
			}
		}
		f["class"] = f["class"][:4]
		all = append(all, f)
	}
	return all
}

func readNodeFeatureRule(t *testing.T) *nodeFeatureRule {
	t.Helper()
	var r nodeFeatureRule
	if err := yaml.UnmarshalStrict([]byte(docs.Read(t, "deploy/examples/mixed-fleet/nodefeaturerule.yaml")), &r); err != nil {
		t.Fatal(err)
	}
	if r.APIVersion != "nfd.k8s-sigs.io/v1alpha1" || r.Kind != "NodeFeatureRule" || r.Metadata["name"] == "" {
		t.Errorf("the file has %s %s %q", r.APIVersion, r.Kind, r.Metadata)
	}
	return &r
}

// TestNodeFeatureRuleLabelsPools: the rules give each board the labels of its pool, and no other board any pool.
func TestNodeFeatureRuleLabelsPools(t *testing.T) {
	rules := readNodeFeatureRule(t)
	mi300 := board.New(t)
	mi300.AddHive("9226398475103744421", 0x21, 0x31)
	boards := map[string]*board.Tree{"hgx": board.IdleHGX(t, 0), "mi300": mi300, "flex": flex(t), "": board.IdleDesktop(t)}
	var values struct {
		Pools []struct {
			Name         string
			NodeSelector map[string]string
		}
	}
	if err := yaml.Unmarshal([]byte(docs.Read(t, "deploy/examples/mixed-fleet/values.yaml")), &values); err != nil || len(values.Pools) != len(boards)-1 {
		t.Fatalf("%d pools, %v", len(values.Pools), err)
	}
	want := map[string]map[string]string{"": {}}
	for _, pool := range values.Pools {
		want[pool.Name] = pool.NodeSelector
	}
	for name, tree := range boards {
		got := rules.labels(t, pciDevices(t, tree))
		if got["kata-vfio.dev/iommu"] != "true" {
			t.Errorf("%q: the board has an IOMMU, and the labels are %v", name, got)
		}
		delete(got, "kata-vfio.dev/iommu")
		if diff := cmp.Diff(want[name], got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", name, diff)
		}
	}
}

// TestNodeFeatureRuleNeedsIOMMU: a node whose IOMMU is off has the label of its pool, so that bootstrap can turn it on, and not the other.
func TestNodeFeatureRuleNeedsIOMMU(t *testing.T) {
	functions := pciDevices(t, flex(t))
	for _, f := range functions {
		delete(f, "iommu_group/type")
	}
	if diff := cmp.Diff(map[string]string{"kata-vfio.dev/pool": "flex"}, readNodeFeatureRule(t).labels(t, functions)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

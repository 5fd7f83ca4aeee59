package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
)

// TestExamplesScaleFromZero allocates the claims of deploy/examples on a node that is not there yet, as the Cluster Autoscaler does. A
// claim that gets nothing there gets no new node, either.
func TestExamplesScaleFromZero(t *testing.T) {
	type devices struct{ template, clusterAPI string }
	const none = ""
	want := map[string]devices{
		"direct-claim.yaml":             {"gpu", "gpu"},
		"gang/job.yaml":                 {"gpu gpu", "gpu gpu"},
		"gpu-and-vf-nearest.yaml":       {none, none}, // by pcieSwitch
		"gpu-and-vf-network.yaml":       {"gpu vf", none},
		"gpu-and-vf-same-root.yaml":     {"gpu vf", none},
		"gpu-deployment.yaml":           {"gpu", "gpu"},
		"gpu-job.yaml":                  {"gpu", "gpu"},
		"gpu-notebook.yaml":             {"gpu", "gpu"},
		"gpu-pod.yaml":                  {none, none}, // by isolated
		"gpu-slices-of-one-card.yaml":   {none, none}, // by card
		"gpu-vf-pair.yaml":              {"gpu-vf", none},
		"partition/pod.yaml":            {none, none}, // by fabricVersion; Fabric Manager of a node that is not there says nothing
		"queue/job.yaml":                {"gpu gpu", "gpu gpu"},
		"vf-endpoint-pod.yaml":          {"vf", none},
		"vf-pod.yaml":                   {"vf", none},
		"vf-pod-network.yaml":           {"vf", none},
		"vf-pod-network-by-policy.yaml": {"vf", none},
	}
	got := map[string]devices{}
	for file, claims := range exampleClaims(t) {
		for _, c := range claims {
			got[file] = devices{onNewNode(t, c, templateSlices()), onNewNode(t, c, clusterAPISlices())}
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(devices{})); diff != "" {
		t.Errorf("the devices differ (-want +got):\n%s", diff)
	}
}

const newNode = "new-node"

// templateSlices are those of publish.Template as the autoscaler copies a template's: with the new node's name, and a suffix at
// each pool's (cluster-autoscaler/simulator/dynamicresources/utils/sanitize.go).
func templateSlices() []*resourceapi.ResourceSlice {
	template := publish.Template(fleet.Node("template", 4, &v1alpha1.NodeConfig{Pairing: v1alpha1.PairingSwitch}))
	all := fleet.Slices(template, "template", newNode)
	for _, s := range all {
		s.Spec.Pool.Name += "-a1b2c"
	}
	return all
}

// clusterAPISlices are what its provider for Cluster API makes of the annotations dra-driver and gpu-count
// (cluster-autoscaler/cloudprovider/clusterapi/clusterapi_unstructured.go, InstanceResourceSlices).
func clusterAPISlices() []*resourceapi.ResourceSlice {
	node := newNode
	s := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
		Driver: v1alpha1.DriverName, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
	}}
	s.Name = node + "-" + v1alpha1.DriverName
	for i := range fleet.Rails {
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{
			Name:       fmt.Sprintf("gpu-%d", i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{publish.AttrType: {StringValue: new("gpu")}},
		})
	}
	return []*resourceapi.ResourceSlice{s}
}

// onNewNode returns the types of the devices that a claim gets on the new node.
func onNewNode(t *testing.T, c *resourceapi.ResourceClaim, all []*resourceapi.ResourceSlice) string {
	t.Helper()
	a := allocatorOf(t, all, cel.NewCache(10, cel.Features{}), func(*resourceapi.Device) bool { return false })
	devices, err := allocate(t, a, newNode, c)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range devices {
		devices[i] = strings.TrimRight(strings.TrimRight(name, "0123456789"), "-")
	}
	slices.Sort(devices)
	return strings.Join(devices, " ")
}

// exampleClaims are the claims and the claim templates of each file of deploy/examples that has any, with the defaults that the API
// server fills in. Those of shared-pool are left out: another driver publishes its devices, too, which no template here has.
func exampleClaims(t *testing.T) map[string][]*resourceapi.ResourceClaim {
	t.Helper()
	const root = "../../deploy/examples"
	all := map[string][]*resourceapi.ResourceClaim{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "shared-pool" {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if claims := claimsIn(t, text); claims != nil {
			all[strings.TrimPrefix(path, root+"/")] = claims
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func claimsIn(t *testing.T, text []byte) []*resourceapi.ResourceClaim {
	t.Helper()
	var claims []*resourceapi.ResourceClaim
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var object struct {
			Kind string
			Spec json.RawMessage
		}
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return claims
		} else if err != nil {
			t.Fatal(err)
		}
		var template resourceapi.ResourceClaimTemplateSpec
		into := map[string]any{"ResourceClaim": &template.Spec, "ResourceClaimTemplate": &template}[object.Kind]
		if into == nil {
			continue
		}
		if err := json.Unmarshal(object.Spec, into); err != nil {
			t.Fatal(err)
		}
		claims = append(claims, defaulted(&template.Spec))
	}
}

package scripted_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

// mi300x is a server with eight MI300X, which amdgpu has, in one hive.
func mi300x(t *testing.T) *board.Tree {
	tree := board.New(t)
	tree.AddHive("9226398475103744421", 0x21, 0x31, 0x41, 0x51, 0x61, 0x71, 0x81, 0x91)
	return tree
}

// TestVendorGuides follows each guide's configuration of a node, and reads its other files as the programs do.
func TestVendorGuides(t *testing.T) {
	for guide, tree := range map[string]*board.Tree{"deploy/guides/amd-mi300x.md": mi300x(t), "deploy/guides/intel-flex.md": flex(t)} {
		t.Run(guide, func(t *testing.T) {
			m := newMachine(t, tree, kata())
			for _, step := range docs.Steps(t, guide, "2. Set up the firmware") {
				m.Node.Run(step.Command) // shows the machine's real functions
			}
			files := yamlOf(t, guide, "4. Configure the node")
			m.Node.Put("etc/kata-vfio/node.yaml", files[0])
			m.Node.Put("etc/kata-vfio/blueprint.yaml", files[1])
			for _, step := range docs.Steps(t, guide, "4. Configure the node") {
				m.follow(step, fails(step)...)
			}
			slices, err := v1alpha1.DecodeNodeConfig([]byte(files[2]))
			if err != nil || len(slices.GPUSlices) != 1 {
				t.Errorf("the node config for slices: %+v, %v", slices, err)
			}
			wantPod(t, yamlOf(t, guide, "5. Start a pod")[0])
		})
	}
}

// wantPod checks that a pod runs in a VM, and that its container has the claim of the template beside it and names its device nodes.
func wantPod(t *testing.T, text string) {
	t.Helper()
	var template struct {
		Metadata struct{ Name string }
	}
	var pod struct {
		Spec struct {
			RuntimeClassName string
			ResourceClaims   []struct{ Name, ResourceClaimTemplateName string }
			Containers       []struct {
				Env       []struct{ Name, Value string }
				Resources struct{ Claims []struct{ Name string } }
			}
		}
	}
	first, second, ok := strings.Cut(text, "\n---\n")
	if err := yaml.Unmarshal([]byte(first), &template); err != nil || !ok {
		t.Fatalf("%v, two objects: %t", err, ok)
	}
	if err := yaml.Unmarshal([]byte(second), &pod); err != nil {
		t.Fatal(err)
	}
	c := pod.Spec.Containers[0]
	if pod.Spec.RuntimeClassName != "kata-gpu" || pod.Spec.ResourceClaims[0].ResourceClaimTemplateName != template.Metadata.Name ||
		c.Resources.Claims[0].Name != pod.Spec.ResourceClaims[0].Name || c.Env[0].Name != "VISIBLE_CDI_DEVICES" || !strings.HasSuffix(c.Env[0].Value, ".com/gpu=all") {
		t.Errorf("the pod is %+v", pod)
	}
}

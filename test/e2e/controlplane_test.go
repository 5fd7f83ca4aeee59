//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

func TestControlPlane(t *testing.T) {
	t.Run("ItHasThePinnedVersion", testVersion)
	t.Run("ItServesTheAPIsThatPoliciesAndClaimsNeed", testAPIs)
	t.Run("TheSchedulerAllocatesAClaim", testAllocation)
	t.Run("AKubeletMayChangeItsOwnNodeOnly", testKubeletsLimits)
}

func testVersion(t *testing.T) {
	p := cluster(t)
	out, err := p.Kubectl(t.Context(), "version", "--output=json")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		ClientVersion, ServerVersion struct{ GitVersion string }
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if want := kubernetesVersion(); got.ClientVersion.GitVersion != want || got.ServerVersion.GitVersion != want {
		t.Errorf("kubectl version says %s; want %s", out, want)
	}
	if _, err := p.Kubectl(t.Context(), "get", "nothings"); err == nil || !strings.Contains(err.Error(), "nothings") {
		t.Errorf("an error of kubectl's is %v", err)
	}
}

// testAPIs names what is on by default in the pinned version, so that no test turns it on by mistake.
func testAPIs(t *testing.T) {
	discovery := client(t, cluster(t), controlplane.Admin()).Discovery()
	for groupVersion, want := range map[string][]string{
		"resource.k8s.io/v1": {"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"},
		"admissionregistration.k8s.io/v1": {
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
			"validatingadmissionpolicies", "validatingadmissionpolicybindings",
		},
	} {
		list, err := discovery.ServerResourcesForGroupVersion(groupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range want {
			if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name }) {
				t.Errorf("%s does not have %s", groupVersion, name)
			}
		}
	}
}

func testKubeletsLimits(t *testing.T) {
	p := cluster(t)
	addNode(t, p, "e2e-node-b")
	addNode(t, p, "e2e-node-c")
	nodes := client(t, p, controlplane.NodeIdentity("e2e-node-b")).CoreV1().Nodes()
	label := func(node, key string) error {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"yes"}}}`, key)
		_, err := nodes.Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	until(t, "a kubelet has labeled its node", func(context.Context) error {
		return label("e2e-node-b", "e2e.example.com/mine")
	})
	// Reading another node is what the Node authorizer refuses; writing is for NodeRestriction.
	if err := label("e2e-node-c", "e2e.example.com/mine"); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet that labels another node gets %v", err)
	}
	if err := label("e2e-node-b", "node-restriction.kubernetes.io/mine"); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet that labels its node with what is an administrator's gets %v", err)
	}
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// installation is a control plane with the chart in it.
var installation plane

// installed is a control plane with the chart in it, installed by helm with its default values for the first test that
// asks, and policies that are in force.
func installed(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	return installation.start(t, func(p *controlplane.ControlPlane) error {
		systemNamespace(t, p)
		if err := install(t, p); err != nil {
			return err
		}
		awaitPolicies(t, p)
		return nil
	})
}

// install has helm install the chart with its default values.
func install(t *testing.T, p *controlplane.ControlPlane) error {
	t.Helper()
	return installFrom(t, p, chart)
}

// installFrom is install of a chart that is elsewhere.
func installFrom(t *testing.T, p *controlplane.ControlPlane, chart string) error {
	t.Helper()
	config, err := p.KubeconfigFile(controlplane.Admin(), "")
	if err == nil {
		_, err = helm(t, "install", release, chart, "--namespace", system, "--kubeconfig", config)
	}
	return err
}

// awaitPolicies waits until the API server, which learns of policies a moment after it has taken them, acts by them.
func awaitPolicies(t *testing.T, p *controlplane.ControlPlane) {
	t.Helper()
	admin := client(t, p, controlplane.Admin())
	ns := tenantNamespace(t, p)
	ofNoNode := client(t, p, pluginOfNoNode())
	claimed, err := admin.ResourceV1().ResourceClaims(ns).Create(t.Context(), claimWith(t, "VFIOConfig", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the policies are in force", func(ctx context.Context) error {
		_, err := admin.ResourceV1().ResourceSlices().Create(ctx, slice("kata-vfio.dev", "nowhere", "nowhere"), dryRunCreate())
		if err == nil {
			return errors.New("anybody may publish devices")
		}
		if patchStatus(ctx, ofNoNode, ns, claimed.Name, map[string]any{}, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}) == nil {
			return errors.New("the plugin may change claims' status without a node")
		}
		if _, err = admin.CoreV1().Pods(ns).Create(ctx, pod(t, "volumes: [{name: a, hostPath: {path: /}}]", ""), dryRunCreate()); err == nil {
			return errors.New("a tenant may have a hostPath")
		}
		if _, err = admin.ResourceV1().ResourceClaims(ns).Create(ctx, claimWith(t, "VFConfig", map[string]any{"trust": true}), dryRunCreate()); err == nil {
			return errors.New("a tenant may have a trusted VF")
		}
		got, err := admin.CoreV1().Pods(ns).Create(ctx, pod(t, inVM+oneClaim, ""), dryRunCreate())
		if err == nil && got.Annotations[requiredPlugins] == "" {
			err = errors.New("the annotation is not set")
		}
		return err
	})
}

func dryRunCreate() metav1.CreateOptions {
	return metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
}

// tenantNamespace is a namespace that the policies for tenants look at.
func tenantNamespace(t *testing.T, p *controlplane.ControlPlane) string {
	t.Helper()
	return labeledNamespace(t, p, map[string]string{"kata-vfio.dev/tenant": "team-a"})
}

// addFitNode adds a node with the chart's label and room for VMs. It is ready for most of a minute.
func addFitNode(t *testing.T, p *controlplane.ControlPlane, name string) {
	t.Helper()
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	admin := client(t, p, controlplane.Admin())
	_, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux", "kata-vfio.dev/node": "true"},
		},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Test"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		if err := admin.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// pluginOn is the plugin of a node, as the API server sees it: with the token that the node's kubelet mounts into the
// pod that the DaemonSet has there.
func pluginOn(t *testing.T, p *controlplane.ControlPlane, node string) *kubernetes.Clientset {
	t.Helper()
	admin := client(t, p, controlplane.Admin())
	var pod corev1.Pod
	until(t, "the plugin's pod is on its node", func(ctx context.Context) error {
		pods, err := admin.CoreV1().Pods(system).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err == nil && len(pods.Items) != 1 {
			return errors.New("there is none")
		}
		if err == nil {
			pod = pods.Items[0]
		}
		return err
	})
	kubelet := client(t, p, controlplane.NodeIdentity(node))
	return withToken(t, p, kubelet, &authenticationv1.BoundObjectReference{
		APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
	})
}

// pluginOfNoNode is somebody who may do all that the plugin may, and more, but has a token of no node.
func pluginOfNoNode() controlplane.User {
	return controlplane.User{Name: "system:serviceaccount:" + system + ":" + plugin, Groups: []string{"system:masters"}}
}

// withToken has somebody ask for a token of the plugin's service account, and is who has it.
func withToken(
	t *testing.T, p *controlplane.ControlPlane, by *kubernetes.Clientset, bound *authenticationv1.BoundObjectReference,
) *kubernetes.Clientset {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
	var token string
	// The Node authorizer learns of a pod's node a moment later than we do.
	until(t, "there is a token for the plugin", func(ctx context.Context) error {
		got, err := by.CoreV1().ServiceAccounts(system).CreateToken(ctx, plugin, request, metav1.CreateOptions{})
		if err == nil {
			token = got.Status.Token
		}
		return err
	})
	config, err := p.RESTConfig(controlplane.Admin())
	if err != nil {
		t.Fatal(err)
	}
	made, err := kubernetes.NewForConfig(&rest.Config{
		Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}, BearerToken: token, QPS: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

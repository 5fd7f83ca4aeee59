package main

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/test/golden"
)

// TestStatusShowsWhatNeedsAttention on one screen, and ends with the exit code of a finding.
func TestStatusShowsWhatNeedsAttention(t *testing.T) {
	c := client(append(sampleObjects(t), objectsOf(t, "testdata/parts.yaml")...))
	stdout, stderr, code := ask(t, c, "status")
	if code != exitFindings || !strings.Contains(stderr, "needs attention: 15 problems") {
		t.Errorf("exit code %d, want %d: %s", code, exitFindings, stderr)
	}
	golden.Compare(t, "status.txt", stdout)
}

// healthy is a cluster in which nothing is wrong: a node with a plugin and a device.
func healthy(t *testing.T) []runtime.Object {
	t.Helper()
	labels := map[string]string{"app.kubernetes.io/name": "kata-vfio", "app.kubernetes.io/component": "plugin"}
	return []runtime.Object{
		decode(t, []byte(`
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: a}
spec: {driver: kata-vfio.dev, nodeName: worker-1, pool: {name: worker-1/kata-vfio.dev, generation: 1, resourceSliceCount: 1}, devices: [{name: gpu-0000-3b-00-0, attributes: {pluginVersion: {version: 1.2.3}}}]}
`)),
		&appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kata-vfio-system", Name: "kata-vfio-plugin", Generation: 1, Labels: labels},
			Status:     appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 1, NumberReady: 1, UpdatedNumberScheduled: 1},
		},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kata-vfio-system", Name: "kata-vfio-plugin-a", Labels: labels}, Spec: corev1.PodSpec{NodeName: "worker-1"},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		},
	}
}

func TestStatusOfAHealthyCluster(t *testing.T) {
	c := client(healthy(t))
	stdout, stderr, code := ask(t, c, "status")
	if code != 0 || stderr != "" || !strings.HasSuffix(stdout, "\nkata-vfio-plugin: 1 of 1 ready\nnothing needs attention\n") {
		t.Errorf("exit code %d, stderr %q:\n%s", code, stderr, stdout)
	}
	stdout, _, _ = ask(t, c, "status", "-o", "json")
	if got := documentOf[fleet.Status](t, stdout); len(got.Nodes) != 1 || got.Nodes[0].Plugin != "ready" || got.Nodes[0].PluginVersion != "1.2.3" || got.Nodes[0].Free != 1 || len(got.Problems) != 0 {
		t.Errorf("got %+v", got)
	}
}

// TestStatusShowsPodsThatAreOnNoNode: the scheduler has found no place for the plugin's pod, whose node publishes nothing.
func TestStatusShowsPodsThatAreOnNoNode(t *testing.T) {
	objects := healthy(t)
	d := objects[1].(*appsv1.DaemonSet)
	d.Status.DesiredNumberScheduled, d.Status.UpdatedNumberScheduled = 2, 2
	stdout, _, code := ask(t, client(objects), "status")
	if code != exitFindings || !strings.Contains(stdout, "✗ kata-vfio-plugin: 1 of 2 nodes has no pod that is ready") {
		t.Errorf("exit code %d, want %d and the pod that is missing:\n%s", code, exitFindings, stdout)
	}
}

// TestStatusWithoutRights: without the right to list pods, a node's plugin is unknown, and no problem.
func TestStatusWithoutRights(t *testing.T) {
	state := &fleet.State{Cluster: &cluster.Cluster{}, Missing: map[fleet.Kind]string{fleet.Components: "it is not permitted"}}
	state.Cluster.Add(healthy(t)[0])
	if st := state.Status(); len(st.Nodes) != 1 || st.Nodes[0].Plugin != "unknown" || len(st.Problems) != 0 {
		t.Errorf("got %+v, want one node with an unknown plugin, and no problem", st)
	}
}

// TestStatusWaitsForARollout: until it is over, and no longer than it may.
func TestStatusWaitsForARollout(t *testing.T) {
	objects := healthy(t)
	d := objects[1].(*appsv1.DaemonSet)
	d.Generation = 2
	c := client(objects)
	stdout, stderr, code := ask(t, c, "status", "--wait", "--timeout", "10ms")
	if code != exitFindings || !strings.Contains(stderr, "not over after 10ms: kata-vfio-plugin") || !strings.Contains(stdout, "1 of 1 ready, 0 updated") {
		t.Errorf("a rollout that takes longer: exit code %d, %q\n%s", code, stderr, stdout)
	}
	done := make(chan int)
	go func() {
		_, _, code := ask(t, c, "status", "--wait")
		done <- code
	}()
	d.Status.ObservedGeneration = 2
	if _, err := c.AppsV1().DaemonSets(d.Namespace).UpdateStatus(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if code := <-done; code != 0 {
		t.Errorf("the wait ends with exit code %d, want 0", code)
	}
}

// TestStatusWaitsUntilItKnows: without a list of the parts, a wait does not end well. Without the right to list them, it ends at once.
func TestStatusWaitsUntilItKnows(t *testing.T) {
	for _, resource := range []string{"daemonsets", "deployments", "pods"} {
		c := client(healthy(t))
		c.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewInternalError(errors.New("no leader"))
		})
		_, stderr, code := ask(t, c, "status", "--wait", "--timeout", "10ms")
		want, why := "not over after 10ms: "+resource, "can't be listed: Internal error occurred: no leader"
		if code != exitFindings || !strings.Contains(stderr, want) || !strings.Contains(stderr, why) {
			t.Errorf("%s can't be listed: exit code %d, want %d and %q:\n%s", resource, code, exitFindings, want, stderr)
		}
		c = client(healthy(t))
		forbid(c, resource)
		if _, stderr, code := ask(t, c, "status", "--wait"); code != exitForbidden || !strings.Contains(stderr, "you may not list "+resource) {
			t.Errorf("%s may not be listed: exit code %d, want %d:\n%s", resource, code, exitForbidden, stderr)
		}
		if _, stderr, code := ask(t, c, "status"); code != 0 || !strings.Contains(stderr, "warning: ") {
			t.Errorf("%s may not be listed, and nothing is waited for: exit code %d, want 0 and a warning:\n%s", resource, code, stderr)
		}
	}
}

// TestStatusWaitsForControllers: until a controller has seen the present version, the numbers are of the one before, also if they are 0.
func TestStatusWaitsForControllers(t *testing.T) {
	labels := map[string]string{"app.kubernetes.io/name": "kata-vfio"}
	for name, o := range map[string]runtime.Object{
		"a Deployment": &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kata-vfio-system", Name: "part", Generation: 2, Labels: labels},
			Status:     appsv1.DeploymentStatus{ObservedGeneration: 1, ReadyReplicas: 1, UpdatedReplicas: 1},
		},
		"a new DaemonSet": &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kata-vfio-system", Name: "part", Generation: 1, Labels: labels}},
	} {
		stdout, stderr, code := ask(t, client(append(healthy(t), o)), "status", "--wait", "--timeout", "10ms")
		if code != exitFindings || !strings.Contains(stderr, "not over after 10ms: part") || !strings.Contains(stdout, " ready, 0 updated") {
			t.Errorf("%s: exit code %d, %q\n%s", name, code, stderr, stdout)
		}
	}
}

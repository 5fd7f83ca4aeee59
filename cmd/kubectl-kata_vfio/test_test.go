package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/kube/kubetest"
	"github.com/kata-vfio/kata-vfio/test/golden"
)

// testedNode is how a node does what test asks of it.
type testedNode struct {
	// sees is the log of the pod with the claim.
	sees string
	// second and nodes are Event reasons of the pods that are to be refused; empty if they run.
	second, nodes string
	// policy is an admission policy's message for the pod with device nodes; empty if there is none.
	policy string
}

// wellDone sees its device, and refuses the others.
func wellDone() testedNode {
	return testedNode{sees: `{"functions":[{"vendor":"15b3","device":"101e"},{"vendor":"1af4","device":"1042"}]}`, second: "SharedClaim", policy: "hostPath volumes are refused (MountNotAllowed)"}
}

// testClass selects VFs.
func testClass() *resourceapi.DeviceClass {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "vf.kata-vfio.dev"}, Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
		CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "kata-vfio.dev" && device.attributes["kata-vfio.dev"].?type.orValue("") == "vf"`},
	}}}}
}

// testedCluster is the sample's with a scheduler and kubelets that do so.
func testedCluster(t *testing.T, node testedNode) *fake.Clientset {
	t.Helper()
	c := client(append(slices.DeleteFunc(sampleObjects(t), func(o runtime.Object) bool { _, is := o.(*resourceapi.DeviceClass); return is }), testClass()))
	c.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		pod := a.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		reason := ""
		switch {
		case strings.HasSuffix(pod.Name, "-second"):
			reason = node.second
		case strings.HasSuffix(pod.Name, "-nodes") && node.policy != "":
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, fmt.Errorf("%s", node.policy))
		case strings.HasSuffix(pod.Name, "-nodes"):
			reason = node.nodes
		default:
			allocate(t, c, pod)
		}
		if reason == "" {
			pod.Status.Phase = corev1.PodRunning
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "test", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			return false, nil, nil
		}
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Type: corev1.EventTypeWarning, Reason: reason, Message: "refused here",
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name},
		}
		return false, nil, c.Tracker().Add(event)
	})
	c.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetSubresource() == "log", &runtime.Unknown{Raw: []byte(node.sees + "\n")}, nil
	})
	return c
}

// allocate gives a pod's claim a free device. A reactor may not ask the clientset itself, which waits for it.
func allocate(t *testing.T, c *fake.Clientset, pod *corev1.Pod) {
	t.Helper()
	resource := resourceapi.SchemeGroupVersion.WithResource("resourceclaims")
	object, err := c.Tracker().Get(resource, pod.Namespace, *pod.Spec.ResourceClaims[0].ResourceClaimName)
	if err != nil {
		t.Error(err)
		return
	}
	claim := object.(*resourceapi.ResourceClaim).DeepCopy()
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
		Request: "device", Driver: "kata-vfio.dev", Pool: "worker-1/kata-vfio.dev/pf-0000-5e-00-0", Device: "vf-0000-5e-00-3",
	}}}}
	if err := c.Tracker().Update(resource, claim, pod.Namespace); err != nil {
		t.Error(err)
	}
}

// leftBehind are the test's objects that are still there.
func leftBehind(t *testing.T, c *fake.Clientset) (names []string) {
	t.Helper()
	o := metav1.ListOptions{LabelSelector: testLabel}
	pods, err := c.CoreV1().Pods("").List(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := c.ResourceV1().ResourceClaims("").List(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		names = append(names, "pod "+pods.Items[i].Name)
	}
	for i := range claims.Items {
		names = append(names, "claim "+claims.Items[i].Name)
	}
	return names
}

func TestTestProvesIsolationOfANode(t *testing.T) {
	c := testedCluster(t, wellDone())
	stdout, stderr, code := ask(t, c, "test", "--class", "vf.kata-vfio.dev", "--image", "example.com/guestnet:1")
	if code != 0 || !strings.Contains(stderr, "worker-1: creates claim team-a/") {
		t.Errorf("exit code %d, want 0:\n%s", code, stderr)
	}
	golden.Compare(t, "test.txt", withoutNames(stdout))
	needsNoMore(t, c)
	if left := leftBehind(t, c); len(left) > 0 {
		t.Errorf("it leaves %q", left)
	}
}

// needsNoMore compares what was asked of the API server with the README's Role and the ClusterRole kata-vfio-view.
func needsNoMore(t *testing.T, c *fake.Clientset) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("metadata: {name: kata-vfio-test, namespace: probe}\n"))
	text, _, _ = bytes.Cut(text, []byte("```"))
	var role rbacv1.Role
	if err := yaml.UnmarshalStrict(text, &role); err != nil || len(role.Rules) == 0 {
		t.Fatalf("the README's Role: %+v, %v", role.Rules, err)
	}
	granted := map[string]bool{"list resourceslices": true, "list resourceclaims": true, "list devicetaintrules": true, "get deviceclasses": true} // by kata-vfio-view
	for _, r := range role.Rules {
		for _, verb := range r.Verbs {
			granted[verb+" "+strings.Join(r.Resources, " ")] = true
		}
	}
	for _, a := range c.Actions() {
		resource := a.GetResource().Resource
		if sub := a.GetSubresource(); sub != "" {
			resource += "/" + sub
		}
		if asked := a.GetVerb() + " " + resource; !granted[asked] {
			t.Errorf("it asks to %s, which the README's Role does not grant", asked)
		}
	}
}

// withoutNames replaces what differs between runs.
func withoutNames(text string) string {
	for {
		_, after, found := strings.Cut(text, "kata-vfio-test-")
		if !found || len(after) < 6 {
			return text
		}
		text = strings.ReplaceAll(text, "kata-vfio-test-"+after[:6], "kata-vfio-TEST")
	}
}

// TestTestFindsWhatIsWrong with a node, and leaves nothing there.
func TestTestFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testedNode)
		want   string
	}{
		"no device": {func(n *testedNode) { n.sees = `{"functions":[]}` }, "0 functions of 15b3:101e in the VM, want 1"},
		"two devices": {func(n *testedNode) {
			n.sees = `{"functions":[{"vendor":"15b3","device":"101e"},{"vendor":"15b3","device":"101e"}]}`
		}, "2 functions of 15b3:101e"},
		"no JSON":         {func(n *testedNode) { n.sees = "usage: show" }, "it is not what kata-vfio-guestnet\n"},
		"a second pod":    {func(n *testedNode) { n.second = "" }, "refuses a second pod: pod"},
		"device nodes":    {func(n *testedNode) { n.policy = "" }, "refuses device nodes: pod"},
		"another failure": {func(n *testedNode) { n.second = "FailedMount" }, "no refusal was seen: FailedMount"},
	} {
		node := wellDone()
		c.change(&node)
		limit := "1m"
		if node.second == "FailedMount" { // the only one that waits
			limit = "1s"
		}
		cluster := testedCluster(t, node)
		stdout, stderr, code := ask(t, cluster, "test", "--class", "vf.kata-vfio.dev", "--image", "i", "--node", "worker-1", "--timeout", limit)
		if code != exitFindings || !strings.Contains(stdout, c.want) || !strings.Contains(stderr, "the test fails on 1 of 1 node: worker-1") {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s%s", name, code, exitFindings, c.want, stdout, stderr)
		}
		if left := leftBehind(t, cluster); len(left) > 0 {
			t.Errorf("%s: it leaves %q", name, left)
		}
	}
}

// TestTestByEvent: where no policy refuses the pod with device nodes, the node does.
func TestTestByEvent(t *testing.T) {
	node := wellDone()
	node.policy, node.nodes = "", "MountNotAllowed"
	stdout, stderr, code := ask(t, testedCluster(t, node), "test", "--class", "vf.kata-vfio.dev", "--image", "i", "--node", "worker-1", "-o", "json")
	report := documentOf[testReport](t, stdout)
	if code != 0 || len(report.Tests) != 1 || len(report.Tests[0].Checks) != 5 || report.Tests[0].Checks[3].Text != "MountNotAllowed: refused here" {
		t.Errorf("exit code %d: %+v\n%s", code, report, stderr)
	}
}

// TestRefusalByOthersProvesNothing: behind a quota or Pod Security it is unknown what kata-vfio does.
func TestRefusalByOthersProvesNothing(t *testing.T) {
	node := wellDone()
	node.policy = "exceeded quota: pods"
	stdout, stderr, code := ask(t, testedCluster(t, node), "test", "--class", "vf.kata-vfio.dev", "--image", "i", "-o", "json")
	report := documentOf[testReport](t, stdout)
	if code != 0 || len(report.Tests) != 1 || len(report.Tests[0].Checks) != 5 || report.Tests[0].Checks[3].Result != unknown {
		t.Errorf("exit code %d: %+v, want the refusal of device nodes unknown\n%s", code, report, stderr)
	}
}

// interrupted tests a node, and interrupts the test.
func interrupted(t *testing.T, c *fake.Clientset) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() == "log" {
			cancel()
		}
		return false, nil, nil
	})
	var stdout, stderr bytes.Buffer
	return execute(ctx, sessionOf(c), []string{"test", "--class", "vf.kata-vfio.dev", "--image", "i"}, &stdout, &stderr)
}

// TestTestThatCannotCleanUpAfterAnInterrupt says what is left, and how to delete it.
func TestTestThatCannotCleanUpAfterAnInterrupt(t *testing.T) {
	c := testedCluster(t, wellDone())
	c.PrependReactor("delete", "resourceclaims", func(a clienttesting.Action) (bool, runtime.Object, error) {
		d := a.(clienttesting.DeleteAction)
		_ = c.Tracker().Delete(d.GetResource(), d.GetNamespace(), d.GetName())
		return true, nil, errors.New("the answer was lost")
	})
	err := interrupted(t, c)
	if err == nil || strings.Contains(err.Error(), "what it made is deleted") || !strings.Contains(err.Error(), "the answer was lost; delete it by `kubectl") {
		t.Errorf("got %v, want an error that says what is not deleted", err)
	}
}

// TestTestCleansUpAfterAnInterrupt, and says so.
func TestTestCleansUpAfterAnInterrupt(t *testing.T) {
	c := testedCluster(t, wellDone())
	err := interrupted(t, c)
	if err == nil || !strings.Contains(err.Error(), "what it made is deleted") {
		t.Errorf("got %v, want an error that says what is deleted", err)
	}
	if left := leftBehind(t, c); len(left) > 0 {
		t.Errorf("it leaves %q", left)
	}
}

func TestTestPlansOnly(t *testing.T) {
	c := testedCluster(t, wellDone())
	stdout, stderr, code := ask(t, c, "test", "--class", "vf.kata-vfio.dev", "--dry-run")
	if code != 0 || !strings.Contains(stdout, "worker-1: would be tested, 2 devices of vf.kata-vfio.dev free") {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
	for _, a := range c.Actions() {
		if a.GetVerb() == "create" || a.GetVerb() == "delete" {
			t.Errorf("it does %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

// TestTestWithoutRightsOrDevices ends with the exit codes of the other commands.
func TestTestWithoutRightsOrDevices(t *testing.T) {
	for line, want := range map[string]int{
		"test --image i --class none.example.com": exitNotFound, "test --class vf.kata-vfio.dev --image i --node nowhere": exitNotFound, "test --image i --timeout 0s": 2, "test": 2,
	} {
		if _, stderr, code := ask(t, testedCluster(t, wellDone()), strings.Fields(line)...); code != want {
			t.Errorf("%s: exit code %d, want %d: %s", line, code, want, stderr)
		}
	}
	c := testedCluster(t, wellDone())
	c.PrependReactor("create", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(resourceapi.Resource("resourceclaims"), "x", fmt.Errorf(`User "eve" cannot create resource "resourceclaims" in API group "resource.k8s.io"`))
	})
	begin := time.Now()
	if _, stderr, code := ask(t, c, "test", "--class", "vf.kata-vfio.dev", "--image", "i"); code != exitForbidden || time.Since(begin) > time.Minute {
		t.Errorf("without the right to make claims: exit code %d, want %d: %s", code, exitForbidden, stderr)
	}
}

func TestOnlyReleasesHaveAnImage(t *testing.T) {
	for version, want := range map[string]bool{"v1.2.3": true, "(devel)": false, "v0.0.0-20261128000000-abcdef": false, "v1.2.3+dirty": false, "": false} {
		if got := isRelease(version); got != want {
			t.Errorf("%q: got %v, want %v", version, got, want)
		}
	}
}

// TestLastEventIsTheLast: Events of events.k8s.io, as the plugin and the scheduler write them, have no lastTimestamp.
func TestLastEventIsTheLast(t *testing.T) {
	start := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	after := func(minutes int) metav1.Time { return metav1.NewTime(start.Add(time.Duration(minutes) * time.Minute)) }
	micro := func(minutes int) metav1.MicroTime { return metav1.NewMicroTime(after(minutes).Time) }
	event := func(name string, e corev1.Event) *corev1.Event {
		e.ObjectMeta = metav1.ObjectMeta{Namespace: "team-a", Name: name, CreationTimestamp: after(0)}
		e.Reason, e.Message = name, "text"
		e.InvolvedObject = corev1.ObjectReference{Kind: "Pod", Namespace: "team-a", Name: "p"}
		return &e
	}
	older := event("Older", corev1.Event{FirstTimestamp: after(1), LastTimestamp: after(5)})
	newer := event("Newer", corev1.Event{EventTime: micro(6)})
	series := event("Series", corev1.Event{EventTime: micro(2), Series: &corev1.EventSeries{Count: 3, LastObservedTime: micro(9)}})
	for want, events := range map[string][]runtime.Object{
		"Older: text": {older}, "Newer: text": {newer, older}, "Series: text": {newer, series, older}, "there is no Event of pod p": nil,
	} {
		client, _, err := sessionOf(client(events)).connect()
		if err != nil {
			t.Fatal(err)
		}
		r := &testRun{client: client, objects: testObjects{namespace: "team-a"}}
		if got := r.lastEvent(t.Context(), "p"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestTestCompilesSelectorsOnce: to read a device and to evaluate them for it allocates about 80 times, to compile them 1200 times.
func TestTestCompilesSelectorsOnce(t *testing.T) {
	class := testClass()
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "many"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: "kata-vfio.dev", NodeName: new("worker-1"), Pool: resourceapi.ResourcePool{Name: "worker-1/kata-vfio.dev", ResourceSliceCount: 1},
		},
	}
	vf := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: new("vf")}}
	allocations := func(devices int) float64 {
		slice.Spec.Devices = nil
		for i := range devices {
			slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprintf("vf-%d", i), Attributes: vf})
		}
		c := client([]runtime.Object{class, slice})
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		return testing.AllocsPerRun(1, func() {
			found, err := (&podTest{class: class.Name}).targets(cmd, sessionOf(c), kubetest.New(c))
			if err != nil || found.nodes[0].Free != devices {
				t.Fatalf("got %+v, %v; want %d devices", found, err, devices)
			}
		})
	}
	if got := (allocations(101) - allocations(1)) / 100; got > 400 {
		t.Errorf("each device costs %.0f allocations, want 400 or less", got)
	}
}

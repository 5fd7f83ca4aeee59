package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kata-vfio/kata-vfio/pkg/kube/kubetest"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

const program = "kubectl kata-vfio "

// follow runs a step's commands of this program, and compares what they print with the document. Other programs are not here: their
// lines of the output begin with one of the words.
func follow(t *testing.T, cluster *fake.Clientset, step docs.Step, others ...string) {
	t.Helper()
	var got, shown strings.Builder
	for line := range strings.Lines(step.Command) {
		args, ours := strings.CutPrefix(line, program)
		if !ours {
			continue
		}
		got.WriteString(askIn(t, cluster, strings.Fields(args)))
	}
	for line := range strings.Lines(step.Output) {
		if !slices.ContainsFunc(others, func(word string) bool { return strings.HasPrefix(line, word) }) {
			shown.WriteString(line)
		}
	}
	if err := docs.Match(shown.String(), got.String()); err != nil {
		t.Errorf("%s%v", step.Command, err)
	}
}

// askIn runs a command line in the namespace that it names, or else in team-a.
func askIn(t *testing.T, cluster *fake.Clientset, args []string) string {
	t.Helper()
	namespace := "team-a"
	if i := slices.Index(args, "-n"); i >= 0 && i+1 < len(args) {
		namespace = args[i+1]
	}
	s := &session{now: at, connect: func() (changer, string, error) { return kubetest.New(cluster), namespace, nil }}
	var stdout, stderr bytes.Buffer
	if err := execute(t.Context(), s, args, &stdout, &stderr); err != nil {
		t.Errorf("%s: %v: %s", args, err, &stderr)
	}
	return stdout.String()
}

// stepsOf are the document's steps that run this program. The test fails if there are not so many.
func stepsOf(t *testing.T, path, heading string, want int) []docs.Step {
	t.Helper()
	steps := slices.DeleteFunc(docs.Steps(t, path, heading), func(s docs.Step) bool { return !strings.Contains(s.Command, program) })
	if len(steps) != want {
		t.Fatalf("%s: %q runs %s in %d steps, want %d", path, heading, program, len(steps), want)
	}
	return steps
}

// The first commands of a tenant's developer, on the sample.
func TestREADMEShowsWhatCommandsPrint(t *testing.T) {
	const readme = "cmd/kubectl-kata_vfio/README.md"
	for _, heading := range []string{"Find out why a pod does not start", "See claims"} {
		for _, step := range stepsOf(t, readme, heading, 1) {
			follow(t, sample(t), step)
		}
	}
}

// What a tenant does before the first pod: the classes of the sample, and a pod without its RuntimeClass.
func TestREADMEShowsWhatTenantsSee(t *testing.T) {
	const readme = "cmd/kubectl-kata_vfio/README.md"
	follow(t, publishing(t), stepsOf(t, readme, "See what you may ask for", 1)[0])
	step := stepsOf(t, readme, "Check manifests before you apply them", 1)[0]
	t.Chdir(filepath.Dir(badPod(t)))
	stdout, _, code := ask(t, client(nil), "lint", "-f", "pod.yaml")
	if err := docs.Match(step.Output, stdout); err != nil || code != exitFindings {
		t.Errorf("exit code %d, want %d: %v", code, exitFindings, err)
	}
}

// The root README shows a part of the sample.
func TestREADMEShowsTheTopology(t *testing.T) {
	section := docs.Section(t, "README.md", "What you see")
	_, shown, _ := strings.Cut(section, "```text\n")
	shown, _, _ = strings.Cut(shown, "```")
	stdout, stderr, code := ask(t, sample(t), "topology", "worker-1")
	if err := docs.Match(shown, stdout); err != nil || code != 0 {
		t.Errorf("exit code %d: %s%v", code, stderr, err)
	}
}

// The guide's node, before and after its tenant's pods.
func TestGuideShowsItsNode(t *testing.T) {
	const guide = "deploy/guides/hgx.md"
	idle, busy := client(guideSlices()), client(append(guideSlices(), guidePods()...))
	follow(t, idle, stepsOf(t, guide, "7. Install the chart", 1)[0])
	follow(t, busy, stepsOf(t, guide, "9. Start a pod with a VF", 1)[0], "net1 ")
	follow(t, busy, stepsOf(t, guide, "10. Audit", 1)[0])
}

// guideSlices are what the plugin publishes of the guide's node: eight GPUs, and eight VFs of one NIC.
func guideSlices() []runtime.Object {
	gpus, vfs := newSlice("worker-1/kata-vfio.dev"), newSlice("worker-1/kata-vfio.dev/pf-0000-1a-00-0")
	for _, bus := range []string{"18", "19", "3a", "3b", "9a", "9b", "ba", "bb"} {
		root, numa := map[byte]string{'1': "15", '3': "37", '9': "97", 'b': "b7"}[bus[0]], map[bool]int64{true: 1}[bus[0] > '3']
		gpus.Spec.Devices = append(gpus.Spec.Devices, newDevice("gpu", "0000:"+bus+":00.0", root, numa))
	}
	for i := range 8 {
		vfs.Spec.Devices = append(vfs.Spec.Devices, newDevice("vf", fmt.Sprintf("0000:1a:%02x.%d", (i+1)/8, (i+1)%8), "15", 0))
	}
	return []runtime.Object{gpus, vfs}
}

func newSlice(pool string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(pool, "/", "-")},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: "kata-vfio.dev", NodeName: new("worker-1"), Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1},
		},
	}
}

func newDevice(kind, address, root string, numa int64) resourceapi.Device {
	d := resourceapi.Device{
		Name: kind + "-" + strings.NewReplacer(":", "-", ".", "-").Replace(address),
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"resource.kubernetes.io/numaNode": {IntValue: &numa}, "isolated": {BoolValue: new(true)},
		},
	}
	for name, value := range map[resourceapi.QualifiedName]string{
		"type": kind, "resource.kubernetes.io/pciBusID": address, "resource.kubernetes.io/pcieRoot": "pci0000:" + root, "driver": "vfio-pci",
	} {
		d.Attributes[name] = resourceapi.DeviceAttribute{StringValue: &value}
	}
	return d
}

// guidePods are the guide's pods with their claims, as the plugin leaves them.
func guidePods() []runtime.Object {
	const gpu, vf = "gpu-gpu-x7k2p", "vf-net1"
	return []runtime.Object{
		newPod("gpu", gpu), newClaim(gpu, "gpu", "worker-1/kata-vfio.dev", "gpu-0000-18-00-0", "Ready", "Isolated", "Reset"),
		newPod("vf-endpoint", vf), newClaim(vf, "vf-endpoint", "worker-1/kata-vfio.dev/pf-0000-1a-00-0", "vf-0000-1a-00-1", "Ready", "Isolated", "Reset", "LinkUp"),
	}
}

func newPod(name, claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(at().Add(-time.Hour))},
		Spec: corev1.PodSpec{
			RuntimeClassName: new("kata-gpu"), NodeName: "worker-1", Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "device"}}}}},
			ResourceClaims: []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &claim}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func newClaim(name, pod, pool, device string, conditions ...string) *resourceapi.ResourceClaim {
	status := resourceapi.AllocatedDeviceStatus{Driver: "kata-vfio.dev", Pool: pool, Device: device}
	for _, kind := range conditions {
		status.Conditions = append(status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Prepared", LastTransitionTime: metav1.NewTime(at())})
	}
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(at().Add(-time.Hour))},
		Status: resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
				{Request: "device", Driver: status.Driver, Pool: pool, Device: device},
			}}},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: types.UID(pod)}},
			Devices:     []resourceapi.AllocatedDeviceStatus{status},
		},
	}
}

package fleet_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func waitingFor(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func unschedulable(message string) []corev1.PodCondition {
	return []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message, LastTransitionTime: minute(3)}}
}

// TestPodThatDoesNotRunHasSomethingToDo: whatever keeps a pod from running is shown, and something is to be done about it.
func TestPodThatDoesNotRunHasSomethingToDo(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		event  *corev1.Event
		want   string // a part of what is to be done
	}{
		"an image that can't be pulled": {change: func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: waitingFor("ImagePullBackOff", "back-off")}}
		}, want: "correct the image's name"},
		"an init container that fails": {change: func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "net", State: waitingFor("CrashLoopBackOff", "back-off")}}
		}, want: "kubectl logs POD --previous"},
		"a container without memory": {change: func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}}}}
		}, want: "raise the container's memory limit"},
		"a container that failed before": {change: func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 2}}}}
		}, want: "kubectl logs POD -c main --previous"},
		"a reason that nobody knows": {change: func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: waitingFor("OfTomorrow", "x")}}
		}, want: "read what `container main waits: OfTomorrow` says"},
		"no CDI in the guest": {event: new(event("Pod", "p", "e1", "Failed", "failed to inject devices after CDI timeout of 100 seconds", minute(5))), want: "the guest image has no CDI specification"},
		"no plugin":           {event: new(event("Pod", "p", "e1", "FailedCreatePodSandBox", `dial unix "/run/kata-vfio/pod-resources.sock": connect: connection refused`, minute(5))), want: "the plugin does not run on the node"},
		"QEMU ended":          {event: new(event("Pod", "p", "e1", "FailedCreatePodSandBox", "exiting QMP loop, command canceled", minute(5))), want: "QEMU ended"},
		"no agent, Go":        {event: new(event("Pod", "p", "e1", "FailedCreatePodSandBox", "timed out connecting to vsock 3:1024", minute(5))), want: "45 s (Go runtime)"},
		"no agent, Rust":      {event: new(event("Pod", "p", "e1", "FailedCreatePodSandBox", "vsock: failed to connect to Vsock { vsock_cid: 3 } within 10s", minute(5))), want: "10 s (Rust)"},
		"no volume":           {event: new(event("Pod", "p", "e1", "FailedMount", "no such volume", minute(5))), want: "correct the volume"},
		"no handler":          {event: new(event("Pod", "p", "e1", "FailedCreatePodSandBox", `no runtime for "kata-gpu" is configured`, minute(5))), want: "lacks the RuntimeClass's handler"},
		"an event that nobody knows": {
			event: new(event("Pod", "p", "e1", "Failed", "something else", minute(5))), want: "read what `event Failed` says",
		},
		"too little memory": {change: func(p *corev1.Pod) {
			p.Spec.Overhead = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("10Gi")}
			p.Status.Conditions = unschedulable("0/3 nodes are available: 3 Insufficient memory, 1 node had untolerated taint.")
		}, want: "RuntimeClass kata-gpu adds 10Gi for the VM"},
		"a class that does not exist": {change: func(p *corev1.Pod) {
			p.Status.Conditions = unschedulable("request gpu: device class gpu.kata-vfio.io does not exist")
		}, want: "there is no DeviceClass gpu.kata-vfio.io. Those of kata-vfio are gpu.kata-vfio.dev, vf.kata-vfio.dev"},
		"a gate": {change: func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated, Message: "waiting for ResourceClaim controller", LastTransitionTime: minute(3)}}
		}, want: "removes the pod's gate"},
		"a claim that no container names": {change: func(p *corev1.Pod) { p.Spec.Containers = using("other") }, want: "`resources: {claims: [{name: a}]}`"},
		"no claim":                        {change: func(p *corev1.Pod) { p.Spec.ResourceClaims = nil }, want: "spec.resourceClaims"},
	} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "p", UID: "uid"}, Spec: corev1.PodSpec{
			RuntimeClassName: new("kata-gpu"), Containers: using("a"), ResourceClaims: []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: new("c")}},
		}}
		s := listed{Claims: claims(asks("gpu.kata-vfio.dev")), Classes: []resourceapi.DeviceClass{
			{ObjectMeta: metav1.ObjectMeta{Name: "gpu.kata-vfio.dev"}}, {ObjectMeta: metav1.ObjectMeta{Name: "vf.kata-vfio.dev"}}, {ObjectMeta: metav1.ObjectMeta{Name: "gpu.example.com"}},
		}}
		if tt.change != nil {
			tt.change(&pod)
		}
		if tt.event != nil {
			tt.event.Type = corev1.EventTypeWarning
			s.Events = []corev1.Event{*tt.event}
		}
		s.Pods = []corev1.Pod{pod}
		x, err := s.state().ExplainPod("t1", "p", texts(t))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if todo := strings.Join(x.Todo, "\n"); !strings.Contains(todo, tt.want) {
			t.Errorf("%s: to do is %q, want %q", name, todo, tt.want)
		}
	}
}

// TestPodThatStartsHasNothingToDo: what comes before each pod's start is no trouble.
func TestPodThatStartsHasNothingToDo(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "p", UID: "uid"}, Spec: corev1.PodSpec{
		Containers: using("a"), ResourceClaims: []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: new("c")}},
	}, Status: corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{{Name: "net", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}}},
		ContainerStatuses:     []corev1.ContainerStatus{{Name: "main", State: waitingFor("ContainerCreating", "")}},
	}}
	s := listed{Claims: claims(says(holds("n1", gpu), "Ready", "Isolated", "Reset")), Pods: []corev1.Pod{pod}}
	x, err := s.state().ExplainPod("t1", "p", texts(t))
	if err != nil || len(x.Todo) > 0 {
		t.Errorf("to do is %q, %v; want nothing", x.Todo, err)
	}
}

// TestAdviceNamesWhoCanDoIt: a tenant can't change a node's settings.
func TestAdviceNamesWhoCanDoIt(t *testing.T) {
	s := listed{Claims: claims(refused("NoIOMMUMode"))}
	x, err := s.state().ExplainClaim("t1", "c", texts(t))
	if err != nil || len(x.Todo) != 1 || !strings.HasPrefix(x.Todo[0], "the cluster's admin: remove enable_unsafe_noiommu_mode") {
		t.Errorf("to do is %q, %v; want that the admin removes the mode", x.Todo, err)
	}
}

// TestMissingConditionIsNoWaiver: a claim whose status lacks Isolated and Reset is not said to waive them.
func TestMissingConditionIsNoWaiver(t *testing.T) {
	for want, conditions := range map[string][]string{
		"does not say how well it is isolated":      {"Ready"},
		"its DeviceClass waives isolation or reset": {"Ready", "!Isolated=Waived", "Reset"},
	} {
		s := listed{Claims: claims(says(holds("n1", gpu), conditions...))}
		x, err := s.state().ExplainClaim("t1", "c", texts(t))
		if err != nil || !strings.Contains(x.Now, want) {
			t.Errorf("%v: it %s, %v; want %q", conditions, x.Now, err, want)
		}
	}
}

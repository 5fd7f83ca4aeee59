package fleet_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// minute is a time of the tests' day.
func minute(m int) metav1.Time { return metav1.NewTime(time.Date(2026, 11, 22, 10, m, 0, 0, time.UTC)) }

func event(kind, name, uid, reason, text string, at metav1.Time) corev1.Event {
	return corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "t1", Name: name, UID: "uid"}, Type: corev1.EventTypeWarning,
		Reason: reason, Message: text, LastTimestamp: at, ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: uid},
	}
}

// texts are those of the tests' two rules, and of all codes.
func texts(t *testing.T) fleet.Texts {
	t.Helper()
	codes, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	return fleet.Texts{Rules: rules(), Codes: codes}
}

// refused is a claim with a device that its node refused in minute 5.
func refused(reason string) resourceapi.ResourceClaim {
	c := says(holds("n1", gpu), "!Ready="+reason)
	c.CreationTimestamp = minute(1)
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p"}}
	c.Status.Devices[0].Conditions[0].LastTransitionTime = minute(5)
	c.Status.Devices[0].Conditions[0].Message = "why"
	return c
}

// using is a container that names claims.
func using(claims ...string) []corev1.Container {
	c := corev1.Container{Name: "main"}
	for _, name := range claims {
		c.Resources.Claims = append(c.Resources.Claims, corev1.ResourceClaim{Name: name})
	}
	return []corev1.Container{c}
}

// words are the moments in short.
func words(x *fleet.Explanation) []string {
	var all []string
	for _, m := range x.Moments {
		text := m.What
		if m.Of != x.Subject {
			text += " of " + m.Of
		}
		switch {
		case m.Past:
			text = "(" + text + ")"
		case m.Trouble:
			text = "! " + text
		}
		all = append(all, text)
	}
	return all
}

func wantMoments(t *testing.T, x *fleet.Explanation, err error, now string, todo int, want ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, words(x)); diff != "" {
		t.Errorf("moments (-want +got):\n%s", diff)
	}
	if x.Now != now || len(x.Todo) != todo {
		t.Errorf("it %s, want it %s; to do: %q", x.Now, now, x.Todo)
	}
}

// TestWhyAClaimIsRefused: in order of time, with its pod's events and its device's taints, what another object of the
// name had left out, and the same thing once.
func TestWhyAClaimIsRefused(t *testing.T) {
	poisoned := taint(driver+"/audit", "IOM-003")
	poisoned.TimeAdded = new(minute(3))
	s := listed{
		Slices: []resourceapi.ResourceSlice{slice("n1", tainted(resourceapi.Device{Name: gpu}, poisoned))},
		Claims: claims(refused("FailsAudit")),
		Events: []corev1.Event{
			event("Pod", "p", "e3", "FailsAudit", "why", minute(6)), event("ResourceClaim", "c", "e1", "FailsAudit", "why", minute(6)),
			event("Pod", "p", "e4", "FailedCreatePodSandBox", "no", minute(4)), event("Pod", "other", "e5", "x", "y", minute(4)),
			event("Pod", "c", "e6", "of a pod with the claim's name", "", minute(4)),
		},
	}
	former := event("ResourceClaim", "c", "e2", "NotIsolated", "of the former", minute(2))
	former.InvolvedObject.UID = "another"
	s.Events = append(s.Events, former)
	x, err := s.state().ExplainClaim("t1", "c", texts(t))
	wantMoments(t, x, err, "is refused: FailsAudit", 3, "created", "! taint audit=IOM-003 of device n1/"+gpu,
		"! event FailedCreatePodSandBox of pod t1/p", "! condition Ready=False", "! event FailsAudit", "has")
	if !strings.Contains(strings.Join(x.Todo, "; "), "switch it off") {
		t.Errorf("the check's own fix is not among %q", x.Todo)
	}
}

// TestExplainIgnoresEndedClaims: a claim that was refused, retried and is ready now has no problem.
func TestExplainIgnoresEndedClaims(t *testing.T) {
	c := says(holds("n1", gpu), "Ready", "Isolated", "Reset")
	c.CreationTimestamp = minute(1)
	for i := range c.Status.Devices[0].Conditions {
		c.Status.Devices[0].Conditions[i].LastTransitionTime = minute(5)
	}
	s := listed{Claims: claims(c), Events: []corev1.Event{
		event("ResourceClaim", "c", "e1", "InUse", "before", minute(4)), event("ResourceClaim", "c", "e2", "Quarantined", "after", minute(6)),
	}}
	x, err := s.state().ExplainClaim("t1", "c", texts(t))
	wantMoments(t, x, err, "is ready on node n1", 1, "created", "(event InUse)", "condition Ready", "condition Isolated", "condition Reset", "! event Quarantined", "has")
}

// TestWhyAClaimWaits: what is free, what is kept away, and what the scheduler says of its pod.
func TestWhyAClaimWaits(t *testing.T) {
	kind := func(d resourceapi.Device, kind string) resourceapi.Device {
		d.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: &kind}}
		return d
	}
	waits := asks("gpu.kata-vfio.dev")
	waits.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p"}}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "p", UID: "uid"}, Spec: corev1.PodSpec{
		Containers: using("a"), ResourceClaims: []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: new("c")}},
	}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", LastTransitionTime: minute(3)}}}}
	s := listed{Claims: claims(waits), Pods: []corev1.Pod{pod}, Slices: []resourceapi.ResourceSlice{slice("n1",
		kind(resourceapi.Device{Name: "vf-0000-5e-00-2"}, "vf"), kind(tainted(resourceapi.Device{Name: gpu}, taint(driver+"/dead", "")), "gpu"),
		kind(tainted(resourceapi.Device{Name: "vf-0000-5e-00-3"}, taint(v1alpha1.TaintTenant, "0123456789abcdef")), "vf"))}}
	x, err := s.state().ExplainClaim("t1", "c", texts(t))
	wantMoments(t, x, err, "waits for a device", 1, "! condition PodScheduled=False of pod t1/p", "created", "waits for a device")
	if got := x.Moments[2].Text; got != "free: 0 gpu, 1 vf; kept from claims by taints: 1 gpu; kept for one tenant, which has their exclusive domain: 1 vf" {
		t.Errorf("on offer: %s", got)
	}
	s.Namespace = "t1"
	if x, _ := s.state().ExplainClaim("t1", "c", texts(t)); strings.Contains(x.Moments[2].Text, "free: ") {
		t.Errorf("other namespaces' claims are not seen, and it says %s", x.Moments[2].Text)
	}
	x, err = s.state().ExplainPod("t1", "p", texts(t))
	wantMoments(t, x, err, "is Pending; its claim c waits for a device", 1, "! condition PodScheduled=False", "created", "created of claim t1/c", "waits for a device of claim t1/c")
}

// TestNodeThatSaysNothingIsTrouble, but not at once.
func TestNodeThatSaysNothingIsTrouble(t *testing.T) {
	c := holds("n1", gpu)
	c.CreationTimestamp = minute(1)
	c.Status.Allocation.AllocationTimestamp = new(minute(2))
	s := listed{Claims: claims(c), Now: minute(2).Add(30 * time.Second)}
	const now = "has devices of node n1, which has not said that they are ready"
	x, err := s.state().ExplainClaim("t1", "c", texts(t))
	wantMoments(t, x, err, now, 0, "created", "allocated", "waits for node n1")
	s.Now = minute(4).Time
	x, err = s.state().ExplainClaim("t1", "c", texts(t))
	wantMoments(t, x, err, now, 1, "created", "allocated", "! no word from node n1")
}

// TestWhyADeviceIsKeptAway: by its name and its address, with its claim; other nodes' devices are others.
func TestWhyADeviceIsKeptAway(t *testing.T) {
	s := listed{
		Slices: []resourceapi.ResourceSlice{slice("n1", tainted(fails(gpu, "IOM-003,ACS-001", ""), taint(driver+"/audit", "IOM-003"), taint("example.com/x", "y")))},
		Claims: claims(refused("FailsAudit")),
	}
	for _, name := range []string{gpu, "0000:3b:00.0", "0000:3B:00.0"} {
		x, err := s.state().ExplainDevice("n1", name, texts(t))
		wantMoments(t, x, err, "is claimed t1/c, tainted: audit,example.com/x; isolated: unknown", 4, "created of claim t1/c", "! condition Ready=False of claim t1/c",
			"! taint audit=IOM-003", "! taint example.com/x=y", "! check ACS-001", "has of claim t1/c")
	}
}

// TestTaintWithoutEffectIsNoReason: neither a taint of the slice nor one of a rule with the effect None, Kubernetes' preview, keeps claims
// away, and a drain that is previewed takes no device out of use.
func TestTaintWithoutEffectIsNoReason(t *testing.T) {
	informs := taint(driver+"/link-lost", "")
	informs.Effect = resourceapi.DeviceTaintEffectNone
	s := listed{Slices: []resourceapi.ResourceSlice{slice("n1", tainted(resourceapi.Device{Name: gpu}, informs))}, Claims: claims(asks("gpu.kata-vfio.dev"))}
	drain := resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "preview", Annotations: map[string]string{fleet.AnnotationDrainOf: "n1"}},
		Spec:       resourceapi.DeviceTaintRuleSpec{DeviceSelector: &resourceapi.DeviceTaintSelector{}, Taint: taint(driver+"/drain", "")},
	}
	for effect, want := range map[resourceapi.DeviceTaintEffect]int{resourceapi.DeviceTaintEffectNone: 0, resourceapi.DeviceTaintEffectNoExecute: 1} {
		drain.Spec.Taint.Effect = effect
		s.Rules = []resourceapi.DeviceTaintRule{drain}
		x, err := s.state().ExplainDevice("n1", gpu, texts(t))
		if err != nil || len(x.Moments) != want || len(x.Todo) != want {
			t.Errorf("of the device, with a drain of effect %s: %v, %+v, want %d moments", effect, err, x, want)
		}
		x, err = s.state().ExplainClaim("t1", "c", texts(t))
		if err != nil || strings.Contains(x.Moments[len(x.Moments)-1].Text, "taken out of use by an operator") != (want > 0) {
			t.Errorf("of the claim, with a drain of effect %s: %v, %+v", effect, err, x)
		}
	}
}

// TestExplainSaysThatADomainIsTaken: the condition for which the scheduler takes an allocation back is a trouble if it is true, and says what to do.
func TestExplainSaysThatADomainIsTaken(t *testing.T) {
	c := holds("n1", gpu)
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: driver, Pool: "n1", Device: gpu, Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionDomainTaken, Status: metav1.ConditionTrue, Reason: string(rule.DomainTaken), LastTransitionTime: minute(3)},
		{Type: v1alpha1.ConditionTwinInUse, Status: metav1.ConditionFalse, Reason: "x", LastTransitionTime: minute(3)},
	}}}
	s := listed{Claims: claims(c), Now: minute(3).Time}
	x, err := s.state().ExplainClaim("t1", "c", texts(t))
	if err != nil {
		t.Fatal(err)
	}
	var troubles []string
	for _, m := range x.Moments {
		if m.Trouble && strings.HasPrefix(m.What, "condition ") {
			troubles = append(troubles, m.What+": "+m.Fix)
		}
	}
	if len(troubles) != 1 || !strings.HasPrefix(troubles[0], "condition kata-vfio.dev/DomainTaken=True: wait: the scheduler allocates other devices") {
		t.Errorf("the troubles are %q, want the taken domain with its fix", troubles)
	}
}

// TestExplainNamesMissingObject gives the kind of the missing object.
func TestExplainNamesMissingObject(t *testing.T) {
	s := listed{Claims: claims(refused("x")), Slices: []resourceapi.ResourceSlice{slice("n1", resourceapi.Device{Name: gpu})}}
	_, err1 := s.state().ExplainClaim("t2", "c", texts(t))
	_, err2 := s.state().ExplainPod("t1", "p", texts(t))
	_, err3 := s.state().ExplainDevice("n2", gpu, texts(t))
	for want, err := range map[string]error{"claim t2/c": err1, "pod t1/p": err2, "device " + gpu + " on node n2": err3} {
		if e, ok := errors.AsType[*fleet.NotFoundError](err); !ok || !strings.HasPrefix(e.Name, want) {
			t.Errorf("%v, want that there is no %s", err, want)
		}
	}
}

// TestPodsThatWereNotSeenMayBeThere, and one whose template's claim is not made yet has one.
func TestPodsThatWereNotSeenMayBeThere(t *testing.T) {
	s := listed{Missing: map[fleet.Kind]string{fleet.Pods: "it is not permitted"}}
	_, err := s.state().ExplainPod("t1", "p", texts(t))
	if _, none := errors.AsType[*fleet.NotFoundError](err); err == nil || none || !strings.Contains(err.Error(), "could not be listed: it is not permitted") {
		t.Errorf("%v", err)
	}
	s = listed{Pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "p"}, Spec: corev1.PodSpec{
		ResourceClaims: []corev1.PodResourceClaim{{Name: "a", ResourceClaimTemplateName: new("t")}},
	}}}}
	if x, err := s.state().ExplainPod("t1", "p", texts(t)); err != nil || x.Now != "is Pending; its claims are not made yet" {
		t.Errorf("%v, %+v", err, x)
	}
}

// TestExplainKeepsClaimsApart: one of a pod's claims is ready, and what befell the other before is not over, nor what
// befell the pod.
func TestExplainKeepsClaimsApart(t *testing.T) {
	good := says(holds("n1", gpu), "Ready", "Isolated", "Reset")
	for i := range good.Status.Devices[0].Conditions {
		good.Status.Devices[0].Conditions[i].LastTransitionTime = minute(6)
	}
	waits := asks("gpu.kata-vfio.dev")
	waits.Name, waits.UID = "d", "uid"
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "p", UID: "uid"}, Spec: corev1.PodSpec{
		Containers: using("a", "b"), ResourceClaims: []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: new("c")}, {Name: "b", ResourceClaimName: new("d")}},
	}}
	s := listed{Claims: claims(good, waits), Pods: []corev1.Pod{pod}, Events: []corev1.Event{
		event("ResourceClaim", "c", "e1", "InUse", "before", minute(2)), event("ResourceClaim", "d", "e2", "PFBusy", "before", minute(3)),
		event("Pod", "p", "e3", "FailedCreatePodSandBox", "before", minute(4)),
	}}
	past := func() string {
		t.Helper()
		x, err := s.state().ExplainPod("t1", "p", texts(t))
		if err != nil {
			t.Fatal(err)
		}
		var over []string
		for _, m := range x.Moments {
			if m.Past {
				over = append(over, m.What)
			}
		}
		return strings.Join(over, ", ")
	}
	if got := past(); got != "event InUse" {
		t.Errorf("past is %s", got)
	}
	second := *good.DeepCopy()
	second.Name, second.UID = "d", "uid"
	for i := range second.Status.Devices[0].Conditions {
		second.Status.Devices[0].Conditions[i].LastTransitionTime = minute(5)
	}
	s.Claims = claims(good, second)
	if got := past(); got != "event InUse, event PFBusy, event FailedCreatePodSandBox" {
		t.Errorf("past is %s", got)
	}
}

// TestPodsVMIsThatOfItsNodesReport: its process and the guest's paths are in no object of the API.
func TestPodsVMIsThatOfItsNodesReport(t *testing.T) {
	c := says(holds("n1", gpu), "Ready", "Isolated", "Reset")
	c.CreationTimestamp, c.Status.Devices[0].Conditions = minute(1), c.Status.Devices[0].Conditions[:3]
	for i := range c.Status.Devices[0].Conditions {
		c.Status.Devices[0].Conditions[i].LastTransitionTime = minute(2)
	}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p"}}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "p", CreationTimestamp: minute(1)}, Spec: corev1.PodSpec{Containers: using("a"), ResourceClaims: []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: &c.Name}}}}
	vm := finding.KataSandbox{
		ID: "0123456789abcdef", Namespace: "t1", Pod: "p", Runtime: "go", PID: 4711, Running: true,
		Devices: []finding.KataSandboxDevice{{Address: pci.Address{Bus: 0x3b}, GuestPath: "05/00"}, {Address: pci.Address{Bus: 0x5e, Device: 0x10}, Endpoint: true}},
	}
	report := func(at metav1.Time, vm finding.KataSandbox) *finding.Report {
		return &finding.Report{
			Subject: finding.Subject{Kind: "node", Name: "n1", Time: at.UTC().Format(time.RFC3339)},
			Kata:    &finding.Kata{Sandboxes: []finding.KataSandbox{{ID: "other", Namespace: "t2", Pod: "p"}, vm}},
		}
	}
	s := listed{Now: minute(5).Time, Claims: claims(c), Pods: []corev1.Pod{pod}, Slices: []resourceapi.ResourceSlice{slice("n1", resourceapi.Device{Name: gpu, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"address": {StringValue: new("0000:3b:00.0")}}})}}
	s.Reports = []*finding.Report{report(minute(3), vm)}
	x, err := s.state().ExplainPod("t1", "p", texts(t))
	wantMoments(t, x, err, "is Pending; its claim c is ready on node n1", 0, "created", "created of claim t1/c", "condition Ready of claim t1/c", "condition Isolated of claim t1/c", "condition Reset of claim t1/c", "VM on node n1", "has of claim t1/c")
	const text = "sandbox 0123456789ab of Kata's go runtime; process 4711 runs it; 0000:3b:00.0 is at 05/00 in the guest; 0000:5e:10.0 is a network interface of the guest"
	if got := x.Moments[5].Text; got != text {
		t.Errorf("the VM is %q, want %q", got, text)
	}
	x, err = s.state().ExplainDevice("n1", gpu, texts(t))
	if err != nil || !strings.Contains(strings.Join(words(x), ", "), "VM on node n1 of pod t1/p") {
		t.Errorf("of the device: %v, %q", err, words(x))
	}

	vm.Running = false
	s.Reports = []*finding.Report{report(minute(4), vm), report(minute(3), finding.KataSandbox{})}
	x, err = s.state().ExplainPod("t1", "p", texts(t))
	wantMoments(t, x, err, "is Pending; its claim c is ready on node n1", 1, "created", "created of claim t1/c", "condition Ready of claim t1/c", "condition Isolated of claim t1/c", "condition Reset of claim t1/c", "! VM on node n1", "has of claim t1/c")

	s.Reports = []*finding.Report{report(minute(0), vm)}
	x, err = s.state().ExplainPod("t1", "p", texts(t))
	wantMoments(t, x, err, "is Pending; its claim c is ready on node n1", 0, "created", "created of claim t1/c", "condition Ready of claim t1/c", "condition Isolated of claim t1/c", "condition Reset of claim t1/c", "has of claim t1/c")
}

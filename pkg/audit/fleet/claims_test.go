package fleet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
)

// says adds the node's conditions of the claim's first device: "Ready", "!Ready=InUse", "?Isolated=NotJudged".
func says(c resourceapi.ResourceClaim, conditions ...string) resourceapi.ResourceClaim {
	r := c.Status.Allocation.Devices.Results[0]
	d := resourceapi.AllocatedDeviceStatus{Driver: r.Driver, Pool: r.Pool, Device: r.Device}
	for _, text := range conditions {
		have := metav1.Condition{Type: text, Status: metav1.ConditionTrue, Reason: "Good"}
		switch text[0] {
		case '!':
			have.Type, have.Status = text[1:], metav1.ConditionFalse
		case '?':
			have.Type, have.Status = text[1:], metav1.ConditionUnknown
		}
		if kind, reason, ok := cut(have.Type); ok {
			have.Type, have.Reason = kind, reason
		}
		d.Conditions = append(d.Conditions, have)
	}
	c.Status.Devices = append(c.Status.Devices, d)
	return c
}

func cut(text string) (kind, reason string, ok bool) {
	for i := range text {
		if text[i] == '=' {
			return text[:i], text[i+1:], true
		}
	}
	return text, "", false
}

// asks is a claim that waits for a device of a class.
func asks(class string) resourceapi.ResourceClaim {
	return resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "c"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}}},
		}},
	}
}

// TestStandingOfAClaim: the state that follows from the conditions.
func TestStandingOfAClaim(t *testing.T) {
	deleted := says(holds("n1", gpu), "Ready", "Isolated", "Reset")
	deleted.DeletionTimestamp = new(metav1.Now())
	alternatives := asks("")
	alternatives.Spec.Devices.Requests[0] = resourceapi.DeviceRequest{Name: "r", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "a", DeviceClassName: "vf.kata-vfio.dev"}}}
	parameters := asks("fast-network")
	parameters.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte("{}")}},
	}}}
	otherDriver := holds("n1", gpu)
	otherDriver.Status.Allocation.Devices.Results[0].Driver = "other.example.com"
	otherClass := otherDriver
	otherClass.Spec = asks("gpu.kata-vfio.dev").Spec
	two := says(holds("n1", gpu, pair), "Ready", "Isolated", "Reset")
	for name, tt := range map[string]struct {
		claim      resourceapi.ResourceClaim
		want       string
		conditions []string
	}{
		"waits by our class":                 {asks("gpu.kata-vfio.dev"), "pending", []string{}},
		"waits by one of several classes":    {alternatives, "pending", []string{}},
		"waits with our parameters":          {parameters, "pending", []string{}},
		"waits by a class like ours":         {asks("gpuXkata-vfio.dev"), "", nil},
		"has another driver's device":        {otherDriver, "", nil},
		"got another driver's by our class":  {otherClass, "", nil},
		"nothing is said yet":                {holds("n1", gpu), "allocated", []string{}},
		"the second device is not there yet": {two, "allocated", []string{"Ready", "Isolated", "Reset"}},
		"all is well":                        {says(holds("n1", gpu), "Ready", "Isolated", "Reset"), "ready", []string{"Ready", "Isolated", "Reset"}},
		"the reset is waived":                {says(holds("n1", gpu), "Ready", "Isolated", "!Reset=Waived"), "weakened", []string{"Ready", "Isolated", "!Reset(Waived)"}},
		"nothing is said of isolation":       {says(holds("n1", gpu), "Ready"), "unjudged", []string{"Ready"}},
		"nothing is said of the reset":       {says(holds("n1", gpu), "Ready", "Isolated"), "unjudged", []string{"Ready", "Isolated"}},
		"isolation is waived, no reset said": {says(holds("n1", gpu), "Ready", "!Isolated=Waived"), "weakened", []string{"Ready", "!Isolated(Waived)"}},
		"isolation is not judged":            {says(holds("n1", gpu), "Ready", "?Isolated=NotJudged", "Reset"), "weakened", []string{"Ready", "?Isolated(NotJudged)", "Reset"}},
		"the node refuses":                   {says(holds("n1", gpu), "!Ready=NotIsolated"), "refused NotIsolated", []string{"!Ready(NotIsolated)"}},
		"it is lost to a quarantine":         {says(holds("n1", gpu), "!Ready=Quarantined", "!Reset=Quarantined"), "refused Quarantined", []string{"!Ready(Quarantined)", "!Reset(Quarantined)"}},
		"it is to go":                        {deleted, "deleting", []string{"Ready", "Isolated", "Reset"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := listed{Claims: claims(tt.claim)}
			rows := s.state().ClaimRows()
			if tt.want == "" {
				if len(rows) > 0 {
					t.Errorf("a claim that does not belong to kata-vfio: %+v", rows)
				}
				return
			}
			got := string(rows[0].State)
			if rows[0].Reason != "" {
				got += " " + rows[0].Reason
			}
			if got != tt.want {
				t.Errorf("it is %q, want %q", got, tt.want)
			}
			if diff := cmp.Diff(tt.conditions, rows[0].Conditions()); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestClaimDevices: its pod's VM and node, the network, and the plugin's data; an invalid document is ignored.
func TestClaimDevices(t *testing.T) {
	c := says(holds("n1/pf-0000-5e-00-0", "vf-0000-5e-00-2"), "Ready", "Isolated", "Reset")
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p"}, {APIGroup: "x", Resource: "pods", Name: "q"}}
	c.Status.Devices[0].NetworkData = &resourceapi.NetworkDeviceData{InterfaceName: "net1", IPs: []string{"10.0.0.1/24"}, HardwareAddress: "02:00:00:00:00:01"}
	c.Status.Devices[0].Data = &runtime.RawExtension{Raw: []byte(`{"address":"0000:5e:00.2","functions":["0000:5e:00.2"],"ledger":"a\n1\n"}`)}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "p"}, Spec: corev1.PodSpec{RuntimeClassName: new("kata-gpu")}, Status: corev1.PodStatus{Phase: "Running"}}
	namesake := pod
	namesake.Namespace, namesake.Spec.RuntimeClassName = "t2", new("other")
	s := listed{Claims: claims(c), Pods: []corev1.Pod{namesake, pod}}
	got := s.state().ClaimRows()[0]
	want := []string{"n1", "p", "kata-gpu", "Running", "0000:5e:00.2", "a\n1\n"}
	if diff := cmp.Diff(want, []string{got.Node, got.Pods[0], got.VM, got.PodPhase, got.Devices[0].Functions[0], got.Devices[0].Ledger}); diff != "" || len(got.Pods) != 1 {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"02:00:00:00:00:01", "10.0.0.1/24"}, got.Network()); diff != "" {
		t.Errorf("network (-want +got):\n%s", diff)
	}
	s.Claims[0].Status.Devices[0].Data.Raw = []byte(`{"address":7}`)
	if got := s.state().ClaimRows()[0]; got.Devices[0].Address != "" || got.State != fleet.Ready {
		t.Errorf("of a damaged document: %+v", got)
	}
	s.Claims[0].Status.ReservedFor = nil
	s.Claims[0].OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p"}}
	if got := s.state().ClaimRows()[0]; len(got.Pods) != 1 || got.Pods[0] != "p" {
		t.Errorf("a claim that was made for a pod has the pods %v", got.Pods)
	}
}

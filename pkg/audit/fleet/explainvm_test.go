package fleet_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// vmReport is a node's report with the VM of the pod t1/p, which has the node's GPU.
func vmReport(node, source, at string, running bool) *finding.Report {
	return &finding.Report{
		Subject: finding.Subject{Kind: "node", Name: node, Time: at}, Source: source,
		Kata: &finding.Kata{Sandboxes: []finding.KataSandbox{{
			ID: "0123456789abcdef", Namespace: "t1", Pod: "p", PID: 4711, Running: running, Devices: []finding.KataSandboxDevice{{Address: pci.Address{Bus: 0x3b}}},
		}}},
	}
}

// TestRefusedReportBlamesNoPod: what a report from the future says of a VM does not count, nor what a pod says that wrote reports of several
// nodes. It is told that there is such a report, once.
func TestRefusedReportBlamesNoPod(t *testing.T) {
	own := vmReport("n1", "audit-1", "2026-11-22T10:03:00Z", true)
	for name, tt := range map[string]struct {
		reports []*finding.Report
		refused string
	}{
		"its own": {[]*finding.Report{own}, ""},
		"another's, in time": {[]*finding.Report{
			own, vmReport("n1", "audit-2", "2026-11-22T10:04:00Z", false), vmReport("n2", "audit-2", "2026-11-22T10:02:00Z", true),
		}, "pod audit-2, which wrote reports of several nodes"},
		"another's, in 2099": {[]*finding.Report{
			own, vmReport("n1", "audit-2", "2099-01-01T00:00:00Z", false), vmReport("n1", "audit-2", "2099-01-02T00:00:00Z", false),
		}, "a report from the future"},
		"only from tomorrow": {[]*finding.Report{vmReport("n1", "", "2026-11-23T10:00:00Z", false)}, "a report from the future"},
		"of former pods only": {[]*finding.Report{
			vmReport("n1", "audit-2", "2026-11-22T10:00:00Z", false), vmReport("n2", "audit-2", "2026-11-22T10:00:00Z", false),
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			device := resourceapi.Device{Name: gpu, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"address": {StringValue: new("0000:3b:00.0")}}}
			s := listed{
				Now: minute(5).Time, Reports: tt.reports, Slices: []resourceapi.ResourceSlice{slice("n1", device)},
				Pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "t1", Name: "p", CreationTimestamp: minute(1)}, Spec: corev1.PodSpec{Containers: using()}}},
			}
			x, err := s.state().ExplainPod("t1", "p", texts(t))
			if err != nil {
				t.Fatal(err)
			}
			refusals := map[string]int{}
			for _, m := range x.Moments {
				if m.What == "VM on node n1" && (m.Trouble || !m.At.Equal(time.Date(2026, 11, 22, 10, 3, 0, 0, time.UTC))) {
					t.Errorf("a report that does not count says of the VM: %s", m.Text)
				}
				if m.What == "refused report" {
					refusals[m.Of+" "+m.Text]++
				}
			}
			said := false
			for text, times := range refusals {
				said = said || strings.Contains(text, tt.refused)
				if times != 1 {
					t.Errorf("it is told %d times that %s", times, text)
				}
			}
			if said != (tt.refused != "") {
				t.Errorf("refused are %v, want %q", refusals, tt.refused)
			}
			if x, err := s.state().ExplainDevice("n1", gpu, texts(t)); err != nil || strings.Contains(strings.Join(words(x), ", "), "! VM") {
				t.Errorf("of the device: %v, %q", err, words(x))
			}
		})
	}
}

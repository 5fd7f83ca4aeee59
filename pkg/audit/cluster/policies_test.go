package cluster_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/kube/kubetest"
)

// class is a DeviceClass of ours that is granted to the namespaces.
func class(name, namespaces string) runtime.Object {
	return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{
		Name: name + "." + driver, Annotations: map[string]string{"kata-vfio.dev/namespaces": namespaces},
	}}
}

// TestDeviceClassThatIsNotGrantedIsTried: one that a policy must refuse is looked for, and
// the audit says so where there is none, or where the API server lets it pass.
func TestDeviceClassThatIsNotGrantedIsTried(t *testing.T) {
	const refusal = "ValidatingAdmissionPolicy 'tenant-classes.kata-vfio.dev' denied request"
	for name, tt := range map[string]struct {
		classes []runtime.Object
		refuses bool
		tried   string
		state   finding.State
		says    string
	}{
		"refused":        {[]runtime.Object{class("gpu", "*"), class("other", "t1,t2")}, true, "other." + driver, finding.Pass, ""},
		"let pass":       {[]runtime.Object{class("gpu", "*"), class("audit-probe", "")}, false, "audit-probe." + driver, finding.Fail, "lets pass a claim by DeviceClass audit-probe." + driver},
		"all granted":    {[]runtime.Object{class("gpu", "*"), class("vf", "t1, probe")}, true, "", finding.Unknown, "was not tried: every DeviceClass of kata-vfio is granted to namespace probe"},
		"no class there": {nil, true, "", finding.Unknown, "was not tried"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tt.classes...)
			tried := ""
			client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
				c, ok := action.(clienttesting.CreateAction).GetObject().(*resourceapi.ResourceClaim)
				if !ok || len(c.Spec.Devices.Config) > 0 {
					return true, nil, errors.New(refusal)
				}
				tried = c.Spec.Devices.Requests[0].Exactly.DeviceClassName
				if tt.refuses {
					return true, nil, errors.New(refusal)
				}
				return true, c, nil
			})
			read, err := cluster.Read(t.Context(), kubetest.New(client), cluster.Options{TenantLabel: "kata-vfio.dev/tenant", Namespace: "kata-vfio", ProbeNamespace: "probe"})
			if err != nil {
				t.Fatal(err)
			}
			if tried != tt.tried {
				t.Errorf("tried class %q, want %q", tried, tt.tried)
			}
			s := good()
			s.Probes = append(s.Probes, read.Probes[len(read.Probes)-1])
			i := slices.IndexFunc(judge(s).Findings, func(f finding.Finding) bool { return f.ID == "K8S-001" })
			if f := judge(s).Findings[i]; f.State != tt.state || !strings.Contains(f.Text, tt.says) {
				t.Errorf("K8S-001 is %s: %s; want %s: %s", f.State, f.Text, tt.state, tt.says)
			}
		})
	}
}

// TestDryRunsNameTheScheduler: where tenants' pods with devices need a scheduler's name, the harmless dry run has it, and so do those that a
// policy must refuse for another reason.
func TestDryRunsNameTheScheduler(t *testing.T) {
	const refusal = "ValidatingAdmissionPolicy 'tenant-pods.kata-vfio.dev' denied request"
	for scheduler, refused := range map[string]bool{"kai-scheduler": false, "": true} {
		client := fake.NewClientset()
		client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if p := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod); p.Spec.SchedulerName != "kai-scheduler" {
				return true, nil, errors.New(refusal)
			}
			return true, nil, errors.New("exceeded quota: nothing")
		})
		o := cluster.Options{TenantLabel: "kata-vfio.dev/tenant", Namespace: "kata-vfio", ProbeNamespace: "probe", SchedulerName: scheduler}
		read, err := cluster.Read(t.Context(), kubetest.New(client), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range read.Probes[:4] { // those of pods
			if p.Refused != refused || p.Impossible != "" {
				t.Errorf("scheduler %q: %s: got the answer %q, want one of the scheduler's policy: %t", scheduler, p.About, p.Said, refused)
			}
		}
	}
}

package stage_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/stage"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// TestClaimSelectsItsDeviceAlone evaluates the selector as the scheduler does.
func TestClaimSelectsItsDeviceAlone(t *testing.T) {
	devices := map[string]resourceapi.Device{"gpu": gpu(1, memory), "pair": pair(1, memory), "other": gpu(2, memory), "bare": {Name: "bare"}}
	for want, d := range map[string]resourceapi.Device{"gpu": devices["gpu"], "pair": devices["pair"]} {
		c := &cluster.Cluster{}
		c.Add(slice("a", d))
		r := stage.Claim(sanitizers(), &stage.Waiting{Device: c.Devices()[0], Profile: "memory"}).Spec.Devices.Requests[0].Exactly
		compiled := cel.GetCompiler(cel.Features{}).CompileCELExpression(r.Selectors[0].CEL.Expression, cel.Options{})
		if compiled.Error != nil {
			t.Fatal(compiled.Error)
		}
		for name, other := range devices {
			got, _, err := compiled.DeviceMatches(t.Context(), cel.Device{Driver: v1alpha1.DriverName, Attributes: other.Attributes})
			if err != nil || got != (name == want) {
				t.Errorf("the claim of %s selects %s: %v, %v", want, name, got, err)
			}
		}
		if got, _, err := compiled.DeviceMatches(t.Context(), cel.Device{Driver: "gpu.example.com", Attributes: d.Attributes}); err != nil || got {
			t.Errorf("the claim of %s selects another driver's device: %v, %v", want, got, err)
		}
	}
}

func TestClaim(t *testing.T) {
	r := claimOf(device("a", 1), "memory").Spec.Devices.Requests
	r[0].Exactly.Selectors = nil
	want := []resourceapi.DeviceRequest{{Name: "device", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "sanitize.kata-vfio.dev", AllocationMode: "ExactCount", Count: 1,
		Tolerations: []resourceapi.DeviceToleration{
			{Key: "kata-vfio.dev/sanitizing", Operator: "Exists", Effect: "NoSchedule"}, {Key: "kata-vfio.dev/tenant", Operator: "Exists", Effect: "NoSchedule"},
		},
	}}}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("the requests differ (-want +got):\n%s", diff)
	}
}

// TestPod compares the whole pod: what is not here, such as tolerations, volumes and the node's namespaces, it does not have.
func TestPod(t *testing.T) {
	name := stage.Name(device("a", 1))
	pod := func() corev1.PodSpec {
		return corev1.PodSpec{
			RuntimeClassName: new("kata-gpu"), RestartPolicy: "Never", ActiveDeadlineSeconds: new(int64(600)),
			AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"a"}}}}},
			}}},
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: "RuntimeDefault"}},
			ResourceClaims:  []corev1.PodResourceClaim{{Name: "device", ResourceClaimName: &name}},
			Containers: []corev1.Container{{
				Name: "sanitizer", Image: image, Args: []string{"memory"}, TerminationMessagePolicy: "FallbackToLogsOnError",
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "device"}}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		}
	}
	privileged := pod()
	privileged.RuntimeClassName, privileged.ActiveDeadlineSeconds = new("kata-vfio"), new(int64(7200))
	privileged.SecurityContext.RunAsNonRoot = nil
	privileged.Containers[0].Args, privileged.Containers[0].SecurityContext = []string{"nvme"}, &corev1.SecurityContext{Privileged: new(true)}
	for profile, want := range map[string]corev1.PodSpec{"memory": pod(), "nvme": privileged} {
		got := podOf(t, device("a", 1), profile)
		if diff := cmp.Diff(want, got.Spec); diff != "" {
			t.Errorf("with profile %s, the pod differs (-want +got):\n%s", profile, diff)
		}
		if got.Namespace != namespace || got.Name != name || got.Labels[stage.LabelSanitizer] != profile || got.Labels["app.kubernetes.io/managed-by"] != "kata-vfio-controller" {
			t.Errorf("the pod is %s/%s with labels %v", got.Namespace, got.Name, got.Labels)
		}
	}
	if _, err := stage.Pod(sanitizers(), waitingAt(device("a", 1), "gone")); err == nil {
		t.Error("a profile that does not exist has a pod")
	}
}

func TestResourcesOfAProfile(t *testing.T) {
	s := sanitizers()
	s.Profiles[0].Resources = []byte(`{"limits": {"memory": "1Gi"}}`)
	if err := stage.Check(s); err != nil {
		t.Fatal(err)
	}
	p, err := stage.Pod(s, waitingAt(device("a", 1), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	want := corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}, Claims: []corev1.ResourceClaim{{Name: "device"}}}
	if diff := cmp.Diff(want, p.Spec.Containers[0].Resources); diff != "" {
		t.Errorf("the resources differ (-want +got):\n%s", diff)
	}
	for _, wrong := range []string{`{"limit": {}}`, `{"limits": {"memory": "much"}}`} {
		s.Profiles[1].Resources = []byte(wrong)
		if err := stage.Check(s); err == nil || !strings.Contains(err.Error(), "sanitizer profile nvme") {
			t.Errorf("%s: got error %v", wrong, err)
		}
	}
}

func TestScopes(t *testing.T) {
	theirs := slice("a", gpu(1, memory))
	theirs.Spec.Driver = "gpu.example.com"
	for name, c := range map[string]struct {
		got, want []stage.Scope
	}{
		"a slice":                  {stage.SliceScopes(slice("a", gpu(1, publish.TaintDrain))), []stage.Scope{"node/a"}},
		"a slice with one waiting": {stage.SliceScopes(slice("a", gpu(1), gpu(2, memory))), []stage.Scope{"node/a", "waiting"}},
		"another driver's slice":   {stage.SliceScopes(theirs), nil},
		"a tenant's claim":         {stage.ClaimScopes(cluster.DecodeClaim(tenant(device("a", 1))), sanitizers()), []stage.Scope{"node/a"}},
		"a stage's claim":          {stage.ClaimScopes(cluster.DecodeClaim(given(claimOf(device("a", 1), "memory"), device("a", 1))), sanitizers()), []stage.Scope{"node/a", "stages"}},
		"another driver's claim":   {stage.ClaimScopes(cluster.DecodeClaim(tenant(cluster.ID{Driver: "gpu.example.com", Pool: "a", Name: "x"})), sanitizers()), nil},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s: the scopes differ (-want +got):\n%s", name, diff)
		}
	}
}

package chart

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/stage"
)

const (
	stageClass = "sanitize.kata-vfio.dev"
	stageImage = "registry.example/s@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// stagePolicy is a policy of stages with the values of a release.
func stagePolicy(t *testing.T, name string) policy {
	t.Helper()
	return compiledText(t, strings.NewReplacer(
		"@namespace@", "kata-vfio-sanitizing", "@controller@", "system:serviceaccount:kata-vfio-system:kata-vfio-controller",
		"@class@", stageClass, "@taint@", v1alpha1.TaintSanitizing, "@images@", "['"+stageImage+"']", "@runtimeClasses@", "['kata-gpu']",
	).Replace(read(t, "admission/"+name+".yaml")))
}

// stageOf is what the controller creates for a device.
func stageOf(t *testing.T) (*corev1.Pod, *resourcev1.ResourceClaim) {
	t.Helper()
	s := &v1alpha1.Sanitizers{Namespace: "kata-vfio-sanitizing", DeviceClass: stageClass, Profiles: []v1alpha1.Sanitizer{{Name: "memory", Image: stageImage, Privileged: true}}}
	s.Default()
	w := &stage.Waiting{Profile: "memory", Device: &cluster.Device{ID: cluster.ID{Driver: v1alpha1.DriverName, Pool: "a", Name: "gpu-0000-01-00-0"}, Node: "a", Details: &cluster.Details{}}}
	pod, err := stage.Pod(s, w)
	if err != nil {
		t.Fatal(err)
	}
	return pod, stage.Claim(s, w)
}

func byUser(name string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: groups}
}

func byController() user.Info {
	return byUser("system:serviceaccount:kata-vfio-system:kata-vfio-controller")
}

// TestPolicyForStagesCreation: in the stages' namespace, the controller creates what it makes, and nobody creates anything else.
func TestPolicyForStagesCreation(t *testing.T) {
	p := stagePolicy(t, "stages")
	changed := func(change func(*corev1.PodSpec)) *corev1.Pod {
		pod, _ := stageOf(t)
		change(&pod.Spec)
		return pod
	}
	pod, claim := stageOf(t)
	const ours, images = "only kata-vfio-controller", "run an image and a RuntimeClass"
	for name, c := range map[string]struct {
		object runtime.Object
		by     user.Info
		want   string
	}{
		"the controller's pod":   {pod, byController(), ""},
		"the controller's claim": {claim, byController(), ""},
		"an admin's pod":         {pod, byUser("admin", "system:masters"), ours},
		"a tenant's claim":       {claim, byUser("tenant"), ours},
		"a tenant's template":    {&resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{Spec: claim.Spec}}, byUser("tenant"), ours},
		"another controller":     {pod, byUser("system:serviceaccount:team-a:kata-vfio-controller"), ours},
		"another image":          {changed(func(s *corev1.PodSpec) { s.Containers[0].Image = "evil" }), byController(), images},
		"a second container": {changed(func(s *corev1.PodSpec) {
			s.Containers = append(s.Containers, corev1.Container{Name: "x", Image: "evil"})
		}), byController(), images},
		"an init container":        {changed(func(s *corev1.PodSpec) { s.InitContainers = []corev1.Container{{Name: "x", Image: stageImage}} }), byController(), images},
		"no VM":                    {changed(func(s *corev1.PodSpec) { s.RuntimeClassName = nil }), byController(), images},
		"another RuntimeClass":     {changed(func(s *corev1.PodSpec) { s.RuntimeClassName = new("runc") }), byController(), images},
		"a volume":                 {changed(func(s *corev1.PodSpec) { s.Volumes = []corev1.Volume{{Name: "x"}} }), byController(), images},
		"the node's network":       {changed(func(s *corev1.PodSpec) { s.HostNetwork = true }), byController(), images},
		"the node's processes":     {changed(func(s *corev1.PodSpec) { s.HostPID = true }), byController(), images},
		"the node's shared memory": {changed(func(s *corev1.PodSpec) { s.HostIPC = true }), byController(), images},
	} {
		wantRefusal(t, name, p.refusalsBy(t, c.object, c.by), c.want)
	}
}

// wantRefusal compares the only refusal; there is none for "".
func wantRefusal(t *testing.T, name string, got []string, want string) {
	t.Helper()
	if want == "" && len(got) == 0 || want != "" && len(got) == 1 && strings.Contains(got[0], want) {
		return
	}
	t.Errorf("%s: refused with %q, want %q", name, got, want)
}

// TestPolicyForStagesChanges: nobody but the controller changes a stage, and nobody but the kubelet writes its result.
func TestPolicyForStagesChanges(t *testing.T) {
	p := stagePolicy(t, "stages")
	result := func(pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "sanitizer", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "Clean"}}}}
	}
	const changes, status = "only kata-vfio-controller", "only the kubelet writes containerStatuses"
	for name, c := range map[string]struct {
		change      func(*corev1.Pod)
		subresource string
		by          user.Info
		want        string
	}{
		"the kubelet's result":             {result, "status", byUser("system:node:a", "system:nodes"), ""},
		"a planted result":                 {result, "status", byUser("tenant"), status},
		"an admin's result":                {result, "status", byUser("admin", "system:masters"), status},
		"the controller's result":          {result, "status", byController(), status},
		"the scheduler's condition":        {func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: "PodScheduled"}} }, "status", byUser("system:kube-scheduler"), ""},
		"a phase without a result":         {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "status", byUser("system:serviceaccount:kube-system:pod-garbage-collector"), ""},
		"a CNI plugin's annotation":        {func(p *corev1.Pod) { p.Annotations["cni.projectcalico.org/podIP"] = "10.0.0.1" }, "status", byUser("calico"), ""},
		"a finalizer":                      {func(p *corev1.Pod) { p.Finalizers = []string{"example.com/x"} }, "", byUser("admin"), ""},
		"another image":                    {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil" }, "", byUser("tenant"), changes},
		"an ephemeral container":           {func(p *corev1.Pod) { p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}} }, "ephemeralcontainers", byUser("tenant"), changes},
		"a label":                          {func(p *corev1.Pod) { delete(p.Labels, v1alpha1.LabelManagedBy) }, "", byUser("tenant"), changes},
		"another device":                   {func(p *corev1.Pod) { p.Annotations[stage.AnnotationDevice] = "kata-vfio.dev/b/x" }, "", byUser("tenant"), changes},
		"a label with the status":          {func(p *corev1.Pod) { p.Labels[stage.LabelSanitizer] = "x" }, "status", byUser("tenant"), changes},
		"a toleration of the controller's": {func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "x"}} }, "", byController(), ""},
	} {
		old, _ := stageOf(t)
		pod := old.DeepCopy()
		c.change(pod)
		wantRefusal(t, name, p.refusalsOf(t, pod, old, c.subresource, c.by), c.want)
	}
	_, old := stageOf(t)
	claim := old.DeepCopy()
	claim.Finalizers = []string{"resource.kubernetes.io/delete-protection"}
	wantRefusal(t, "the scheduler's finalizer of a claim", p.refusalsOf(t, claim, old, "", byUser("system:kube-scheduler")), "")
	claim.Labels = map[string]string{}
	wantRefusal(t, "a claim's labels", p.refusalsOf(t, claim, old, "", byUser("tenant")), changes)
}

// TestPolicyForTheStagesClass: outside of the stages' namespace, no claim, template or pod asks for a device that has another
// tenant's data.
func TestPolicyForTheStagesClass(t *testing.T) {
	p := stagePolicy(t, "stage-claims")
	tolerate := func(class string, t resourcev1.DeviceToleration) resourcev1.DeviceRequest {
		return resourcev1.DeviceRequest{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, Tolerations: []resourcev1.DeviceToleration{t}}}
	}
	anything := resourcev1.DeviceToleration{Operator: resourcev1.DeviceTolerationOpExists}
	_, claim := stageOf(t)
	const class, taint = "DeviceClass " + stageClass + " is for sanitizing stages", "still have another tenant's data"
	for name, c := range map[string]struct {
		request resourcev1.DeviceRequest
		want    string
	}{
		"a tenant's class":             {tolerate("gpu.kata-vfio.dev", resourcev1.DeviceToleration{Key: "kata-vfio.dev/audit", Operator: "Exists"}), ""},
		"the stages' class":            {resourcev1.DeviceRequest{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: stageClass}}, class},
		"the class as a second choice": {resourcev1.DeviceRequest{Name: "one", FirstAvailable: []resourcev1.DeviceSubRequest{{DeviceClassName: "gpu.kata-vfio.dev"}, {DeviceClassName: stageClass}}}, class},
		"the taint":                    {tolerate("gpu.kata-vfio.dev", resourcev1.DeviceToleration{Key: v1alpha1.TaintSanitizing, Operator: "Exists"}), taint},
		"the taint, by another class":  {tolerate("mine", resourcev1.DeviceToleration{Key: v1alpha1.TaintSanitizing, Operator: "Equal", Value: "memory"}), taint},
		"the taint as a second choice": {resourcev1.DeviceRequest{Name: "one", FirstAvailable: []resourcev1.DeviceSubRequest{{DeviceClassName: "a"}, {DeviceClassName: "gpu.kata-vfio.dev", Tolerations: []resourcev1.DeviceToleration{anything}}}}, taint},
		"all taints":                   {tolerate("gpu.kata-vfio.dev", anything), taint},
		"all taints of another driver": {tolerate("gpu.example.com", anything), ""},
	} {
		spec := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "zero"}, c.request}}}
		wantRefusal(t, name, p.refusalsBy(t, &resourcev1.ResourceClaim{Spec: spec}, byUser("tenant")), c.want)
		wantRefusal(t, name+", in a template", p.refusalsBy(t, &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{Spec: spec}}, byUser("tenant")), c.want)
	}
	if got := p.refusalsBy(t, &resourcev1.ResourceClaim{Spec: claim.Spec}, byController()); len(got) != 2 {
		t.Errorf("a stage's claim in another namespace is refused with %q, want both refusals", got)
	}
	wantRefusal(t, "a claim without requests", p.refusalsBy(t, &resourcev1.ResourceClaim{}, byUser("tenant")), "")
	pods := stagePolicy(t, "stage-pods")
	for name, want := range map[corev1.ResourceName]string{"deviceclass.resource.kubernetes.io/" + stageClass: class, "deviceclass.resource.kubernetes.io/gpu.kata-vfio.dev": "", "cpu": ""} {
		list := corev1.ResourceList{name: resource.MustParse("1")}
		for _, spec := range []corev1.PodSpec{
			{Containers: []corev1.Container{{}, {Resources: corev1.ResourceRequirements{Limits: list}}}},
			{InitContainers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list}}}},
		} {
			wantRefusal(t, string(name), pods.refusalsBy(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: spec}, byUser("tenant")), want)
		}
	}
}

// TestSchemaHasTheFieldsOfSanitizers: the chart takes what plugin and controller read.
func TestSchemaHasTheFieldsOfSanitizers(t *testing.T) {
	root := struct {
		Defs map[string]struct {
			Properties map[string]json.RawMessage
		} `json:"$defs"`
	}{}
	if err := json.Unmarshal([]byte(read(t, "values.schema.json")), &root); err != nil {
		t.Fatal(err)
	}
	for def, of := range map[string]reflect.Type{"Sanitizer": reflect.TypeFor[v1alpha1.Sanitizer](), "SanitizeRule": reflect.TypeFor[v1alpha1.SanitizeRule]()} {
		var want []string
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "name" { // the key of a profile
				want = append(want, name)
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(root.Defs[def].Properties))); diff != "" {
			t.Errorf("%s: the fields differ (-API +schema):\n%s", def, diff)
		}
	}
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	model "github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller"
	"github.com/kata-vfio/kata-vfio/pkg/controller/stage"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

const (
	stagesNamespace = "kata-vfio-sanitizing"
	stageClass      = "sanitize." + driver
	stageImage      = "registry.example/s@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	// sanitizing are values with a sanitizer.
	sanitizing = "sanitizers: {profiles: {memory: {image: \"" + stageImage + "\", args: [memory], privileged: true, firmware: Require, resources: {limits: {memory: 64Mi}}}}}\n" +
		"nodeConfig: {devices: [{match: {types: [gpu]}, sanitize: {profile: memory, when: BeforeClaim}}]}"
)

// TestSanitizingStages runs the controller with the account, the permissions and the policies that the chart gives it, until a
// stage has begun and ended.
func TestSanitizingStages(t *testing.T) {
	const node = "e2e-sanitizing"
	p := cluster(t)
	systemNamespace(t, p)
	profiles := applyStages(t, p)
	t.Run("TheControllerMayDoNothingElse", func(t *testing.T) { checkStageRules(t, p) })
	addFitNode(t, p, node)
	admin := client(t, p, controlplane.Admin())
	waits := resourcev1.Device{
		Name: "gpu-0000-3b-00-0", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"type": {StringValue: new("gpu")}, "resource.kubernetes.io/pciBusID": {StringValue: new("0000:3b:00.0")},
		},
		Taints: []resourcev1.DeviceTaint{{Key: v1alpha1.TaintSanitizing, Value: "memory", Effect: resourcev1.DeviceTaintEffectNoSchedule}},
	}
	other := waits
	other.Name, other.Taints = "gpu-0000-3c-00-0", nil
	other.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"type": {StringValue: new("gpu")}, "resource.kubernetes.io/pciBusID": {StringValue: new("0000:3c:00.0")}}
	slice := published(t, p, admin.ResourceV1().ResourceSlices(), slice(driver, node, node, waits, other))
	runsStages(t, p, profiles)
	name := stage.Name(model.ID{Driver: driver, Pool: node, Name: waits.Name})
	awaitStage(t, admin, name, node, waits.Name)
	t.Run("NobodyElseChangesThem", func(t *testing.T) { checkStagePolicy(t, p, name, node) })
	t.Run("NobodyElseMayUseTheirClass", func(t *testing.T) { checkStageClass(t, p) })
	endsClean(t, p, name, node)
	if _, err := admin.CoreV1().Pods(stagesNamespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
		t.Errorf("before the decision: %v", err)
	}
	patch := fmt.Sprintf(`[{"op": "test", "path": "/spec/devices/0/name", "value": %q}, {"op": "remove", "path": "/spec/devices/0/taints"}]`, waits.Name)
	if _, err := admin.ResourceV1().ResourceSlices().Patch(t.Context(), slice.Name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the stage is gone", func(ctx context.Context) error {
		_, podErr := admin.CoreV1().Pods(stagesNamespace).Get(ctx, name, metav1.GetOptions{})
		_, claimErr := admin.ResourceV1().ResourceClaims(stagesNamespace).Get(ctx, name, metav1.GetOptions{})
		if !apierrors.IsNotFound(podErr) || !apierrors.IsNotFound(claimErr) {
			return fmt.Errorf("pod: %w, claim: %w", podErr, claimErr)
		}
		return nil
	})
}

// applyStages applies what the chart has for stages, except for the pods of plugin and controller, and returns the document that those
// read.
func applyStages(t *testing.T, p *controlplane.ControlPlane) *v1alpha1.Sanitizers {
	t.Helper()
	got := render(t, sanitizing)
	var texts []string
	for _, o := range got.objects {
		ofStages := strings.HasPrefix(o.GetName(), "stage") || o.GetName() == stagesNamespace || o.GetNamespace() == stagesNamespace || o.GetName() == stageClass
		if ofStages || o.GetKind() == "RuntimeClass" || o.GetName() == controller.Name && slices.Contains([]string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}, o.GetKind()) {
			text, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
	}
	all := strings.Join(texts, "\n---\n")
	if _, err := p.KubectlInput(t.Context(), strings.NewReader(all), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := p.KubectlInput(context.Background(), strings.NewReader(all), "delete", "--wait=false", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	s, err := v1alpha1.DecodeSanitizers([]byte(object[corev1.ConfigMap](t, got, "ConfigMap", "kata-vfio-sanitizers").Data["sanitizers.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkStageRules compares the controller's rights. A rule that is added here needs a reason: those of no namespace are for all tenants.
func checkStageRules(t *testing.T, p *controlplane.ControlPlane) {
	own, err := kubernetes.NewForConfig(asController(t, p))
	if err != nil {
		t.Fatal(err)
	}
	anybody := client(t, p, controlplane.User{Name: "anybody", Groups: []string{"system:serviceaccounts"}})
	for namespace, want := range map[string][]string{
		"default": {
			"[create] [authentication.k8s.io] [tokenreviews] []", "[create] [authorization.k8s.io] [subjectaccessreviews] []",
			"[list watch] [resource.k8s.io] [resourceclaims] []", "[list watch] [resource.k8s.io] [resourceslices] []",
		},
		stagesNamespace: {
			"[create] [authentication.k8s.io] [tokenreviews] []", "[create] [authorization.k8s.io] [subjectaccessreviews] []",
			"[create delete] [resource.k8s.io] [resourceclaims] []", "[list watch create delete] [] [pods] []",
			"[list watch] [resource.k8s.io] [resourceclaims] []", "[list watch] [resource.k8s.io] [resourceslices] []",
		},
	} {
		known := rulesIn(t, anybody, namespace)
		got := slices.DeleteFunc(rulesIn(t, own, namespace), func(rule string) bool { return slices.Contains(known, rule) })
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in namespace %s, the rules differ (-want +got):\n%s", namespace, diff)
		}
	}
}

// runsStages runs the controller as its program does, until the test ends.
func runsStages(t *testing.T, p *controlplane.ControlPlane, s *v1alpha1.Sanitizers) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	d := &controller.Daemon{
		Cluster: asController(t, p), Sanitizers: s, Log: slog.New(slog.DiscardHandler), Namespace: system, Identity: "stages",
		Metrics: serving.Scraping{Listen: "127.0.0.1:0"},
	}
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controller ended: %v", err)
		}
	})
}

// awaitStage waits until the stage's pod is on the node, and its claim has the device in spite of the taint.
func awaitStage(t *testing.T, admin *kubernetes.Clientset, name, node, device string) {
	t.Helper()
	until(t, "the stage has its device", func(ctx context.Context) error {
		c, err := admin.ResourceV1().ResourceClaims(stagesNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c.Status.Allocation == nil || c.Status.Allocation.Devices.Results[0].Device != device {
			return fmt.Errorf("the claim has %+v", c.Status.Allocation)
		}
		pod, err := admin.CoreV1().Pods(stagesNamespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName != node {
			err = fmt.Errorf("the pod is on node %q: %+v", pod.Spec.NodeName, pod.Status.Conditions)
		}
		return err
	})
}

// checkStagePolicy tries, as an admin, whom RBAC permits everything, what only the controller or the kubelet may.
func checkStagePolicy(t *testing.T, p *controlplane.ControlPlane, name, node string) {
	const ours, status = "only kata-vfio-controller", "only the kubelet writes containerStatuses"
	admin := client(t, p, controlplane.Admin())
	pods, claims := admin.CoreV1().Pods(stagesNamespace), admin.ResourceV1().ResourceClaims(stagesNamespace)
	until(t, "the policies are in force", func(ctx context.Context) error {
		if _, err := pods.Create(ctx, pod(t, inVM+containers("containers", "cpu"), ""), dryRunCreate()); err == nil {
			return errors.New("anybody may create pods there")
		}
		return nil
	})
	_, err := pods.Create(t.Context(), pod(t, inVM+containers("containers", "cpu"), ""), dryRunCreate())
	wantForbidden(t, err, ours)
	_, err = claims.Create(t.Context(), claimWith(t, "VFIOConfig", nil), dryRunCreate())
	wantForbidden(t, err, ours)
	_, err = admin.ResourceV1().ResourceClaimTemplates(stagesNamespace).Create(t.Context(), templateOf(claimWith(t, "VFIOConfig", nil)), dryRunCreate())
	wantForbidden(t, err, ours)
	own, err := kubernetes.NewForConfig(asController(t, p))
	if err != nil {
		t.Fatal(err)
	}
	_, err = own.CoreV1().Pods(stagesNamespace).Create(t.Context(), pod(t, inVM+containers("containers", "cpu"), ""), dryRunCreate())
	wantForbidden(t, err, "run an image and a RuntimeClass")
	dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	for patch, want := range map[string]string{
		`{"metadata": {"labels": {"kata-vfio.dev/sanitizer": "other"}}}`:                         ours,
		`{"metadata": {"annotations": {"kata-vfio.dev/device": "kata-vfio.dev/a/b"}}}`:           ours,
		`{"spec": {"activeDeadlineSeconds": 1}}`:                                                 ours,
		`{"spec": {"containers": [{"name": "sanitizer", "image": "registry.example/other:1"}]}}`: ours,
		`{"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": "[]"}}}`:             "",
	} {
		_, err := pods.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), dry)
		wantForbidden(t, err, want)
	}
	_, err = pods.Patch(t.Context(), name, types.StrategicMergePatchType, result(node), dry, "status")
	wantForbidden(t, err, status)
}

// result is the status of a pod that ended clean.
func result(node string) []byte {
	return []byte(`{"status": {"phase": "Succeeded", "containerStatuses": [{"name": "sanitizer", "image": "` + stageImage + `", "imageID": "", "ready": false, "restartCount": 0,
		"state": {"terminated": {"exitCode": 0, "message": "` + node + `", "startedAt": "2026-11-28T08:00:00Z", "finishedAt": "2026-11-28T08:01:00Z"}}}]}}`)
}

// checkStageClass tries what claims outside of the stages' namespace may not ask for.
func checkStageClass(t *testing.T, p *controlplane.ControlPlane) {
	const class, taint = "DeviceClass " + stageClass + " is for sanitizing stages", "still have another tenant's data"
	ns := namespace(t, p)
	admin := client(t, p, controlplane.Admin())
	for name, c := range map[string]struct {
		class, key, want string
	}{
		"the class":                   {stageClass, "", class},
		"the taint":                   {"gpu." + driver, v1alpha1.TaintSanitizing, taint},
		"all taints":                  {"gpu." + driver, "*", taint},
		"another taint":               {"gpu." + driver, driver + "/audit", ""},
		"all taints of other drivers": {"gpu.example.com", "*", ""},
	} {
		t.Run(name, func(t *testing.T) {
			exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: c.class}
			if c.key != "" {
				exactly.Tolerations = []resourcev1.DeviceToleration{{Key: strings.TrimPrefix(c.key, "*"), Operator: resourcev1.DeviceTolerationOpExists}}
			}
			claim := &resourcev1.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "attack"},
				Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "one", Exactly: exactly}}}},
			}
			_, err := admin.ResourceV1().ResourceClaims(ns).Create(t.Context(), claim, dryRunCreate())
			wantForbidden(t, err, c.want)
			_, err = admin.ResourceV1().ResourceClaimTemplates(ns).Create(t.Context(), templateOf(claim), dryRunCreate())
			wantForbidden(t, err, c.want)
		})
	}
	_, err := admin.CoreV1().Pods(ns).Create(t.Context(), pod(t, inVM+containers("containers", "deviceclass.resource.kubernetes.io/"+stageClass), ""), dryRunCreate())
	wantForbidden(t, err, class)
}

// endsClean ends the stage's pod as its kubelet does.
func endsClean(t *testing.T, p *controlplane.ControlPlane, name, node string) {
	t.Helper()
	kubelet := client(t, p, controlplane.NodeIdentity(node))
	if _, err := kubelet.CoreV1().Pods(stagesNamespace).Patch(t.Context(), name, types.StrategicMergePatchType, result(node), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusteraudit "github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// conformingPod has a GPU and a VF of the node of this test. Its exporter is in the guest.
const conformingPod = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: conforming-gpu}
spec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpu.kata-vfio.dev, selectors: [{cel: {expression: "device.attributes['kata-vfio.dev'].?rule.orValue('') == 'conforming'"}}]}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: conforming-vf}
spec: {devices: {requests: [{name: one, exactly: {deviceClassName: vf.kata-vfio.dev, selectors: [{cel: {expression: "device.attributes['kata-vfio.dev'].?rule.orValue('') == 'conforming'"}}]}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: conforming}
spec:
  runtimeClassName: kata-gpu
  resourceClaims: [{name: gpu, resourceClaimName: conforming-gpu}, {name: vf, resourceClaimName: conforming-vf}]
  containers:
  - {name: exporter, image: example.com/none:1, ports: [{name: metrics, containerPort: 9400}], resources: {claims: [{name: gpu}, {name: vf}]}}
`

// conformingDevices are the GPU, with the versions of its node, and the VF, by their pools.
func conformingDevices(node string) map[string]resourcev1.Device {
	of := resourcev1.DeviceAttribute{StringValue: new("conforming")}
	return map[string]resourcev1.Device{
		node + "/kata-vfio.dev": {Name: "gpu-0000-4b-00-0", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"type": {StringValue: new("gpu")}, "driver": {StringValue: new("vfio-pci")}, "isolated": {BoolValue: new(true)}, "rule": of,
			"pluginVersion": {VersionValue: new("0.1.0")}, "kataVersion": {VersionValue: new("4.1.0")},
		}},
		node + "/kata-vfio.dev/pf-0000-4e-00-0": {Name: "vf-0000-4e-00-1", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"type": {StringValue: new("vf")}, "pfInterface": {StringValue: new("ens4f0")}, "isolated": {BoolValue: new(true)}, "rule": of,
		}},
	}
}

// TestConformanceOfTheInstalledChart: what the evidence says of each requirement, before and after a pod runs with its devices, and that its
// commands are kubectl's.
func TestConformanceOfTheInstalledChart(t *testing.T) {
	const node = "e2e-conformance"
	p := conforming(t)
	admin := client(t, p, controlplane.Admin())
	ns := tenantNamespace(t, p)
	enforceBaseline(t, p)
	addFitNode(t, p, node)
	for pool, d := range conformingDevices(node) {
		published(t, p, pluginOn(t, p, node).ResourceV1().ResourceSlices(), slice(driver, node, pool, d))
	}
	apply(t, p, ns, conformingPod)
	for _, name := range []string{"conforming-gpu", "conforming-vf"} {
		allocated(t, admin, ns, name)
	}
	s := &shownTo{p, buildPlugin(t), controlplane.Admin()}
	want := map[string]fleet.Result{
		"driver_runtime_management": fleet.NotShown, // the plugin's pods have no kubelet that runs them
		"gpu_sharing":               fleet.NotShown, "virtualized_accelerator": fleet.NotShown,
		"ai_inference": fleet.NotOurs, "advanced_inference_ingress": fleet.NotOurs, "disaggregated_inference": fleet.NotOurs,
		"high_performance_networking": fleet.NotShown, "gang_scheduling": fleet.NotShown, "cluster_autoscaling": fleet.NotShown,
		"pod_autoscaling": fleet.NotShown, "accelerator_metrics": fleet.NotShown, "ai_service_metrics": fleet.NotOurs,
		"secure_accelerator_access": fleet.NotShown, "workload_sandboxing": fleet.NotShown, "robust_controller": fleet.NotOurs, "dra_support": fleet.Shown,
	}
	shown := []string{"high_performance_networking", "cluster_autoscaling", "accelerator_metrics", "secure_accelerator_access"}
	if binaries.Older() {
		delete(want, "workload_sandboxing") // from the profile of 1.37 on
	} else {
		shown = append(shown, "workload_sandboxing")
	}
	s.concludes(t, "conformance", want)
	startConforming(t, p, ns, node)
	for _, id := range shown {
		want[id] = fleet.Shown
	}
	r := s.concludes(t, "conformance --cluster-report "+clusterReport(t, p), want)
	t.Run("its commands are kubectl's", func(t *testing.T) { s.repeats(t, r) })
}

// conforming is a control plane of its own with the chart: tenants of other tests do what the audit of the cluster finds.
func conforming(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	// The cleanups of objects in it need it after the test's own context.
	p, err := controlplane.Start(context.Background(), controlplane.Config{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	systemNamespace(t, p)
	if err := install(t, p); err != nil {
		t.Fatal(err)
	}
	awaitPolicies(t, p)
	return p
}

// enforceBaseline sets the Pod Security Standard of all tenants' namespaces.
func enforceBaseline(t *testing.T, p *controlplane.ControlPlane) {
	t.Helper()
	namespaces := client(t, p, controlplane.Admin()).CoreV1().Namespaces()
	all, err := namespaces.List(t.Context(), metav1.ListOptions{LabelSelector: "kata-vfio.dev/tenant"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		all.Items[i].Labels["pod-security.kubernetes.io/enforce"] = "baseline"
		if _, err := namespaces.Update(t.Context(), &all.Items[i], metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// startConforming has the plugin and the kubelet say that the pod runs with its devices, and an autoscaler that it made room.
func startConforming(t *testing.T, p *controlplane.ControlPlane, ns, node string) {
	t.Helper()
	plugin, admin := pluginOn(t, p, node), client(t, p, controlplane.Admin()).CoreV1()
	for pool, d := range conformingDevices(node) {
		status := resourcev1.AllocatedDeviceStatus{Driver: driver, Pool: pool, Device: d.Name}
		for _, kind := range []string{"Ready", "Isolated", "Reset"} {
			status.Conditions = append(status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()})
		}
		claim := "conforming-" + strings.SplitN(d.Name, "-", 2)[0]
		if err := patchStatus(t.Context(), plugin, ns, claim, map[string]any{"devices": []any{status}}, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	pod, err := admin.Pods(ns).Get(t.Context(), "conforming", metav1.GetOptions{})
	if err == nil {
		pod.Status.Phase = corev1.PodRunning
		_, err = admin.Pods(ns).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.Events(ns).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "conforming-"}, Reason: "TriggeredScaleUp", Type: corev1.EventTypeNormal,
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: ns, Name: "conforming"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// clusterReport has the chart's account audit the cluster, and writes the report to a file.
func clusterReport(t *testing.T, p *controlplane.ControlPlane) string {
	t.Helper()
	config, err := p.KubeconfigFile(controlplane.Admin(), "")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := helm(t, "upgrade", release, chart, "--namespace", system, "--kubeconfig", config, "--set", "audit.enabled=true"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var report *finding.Report
	until(t, "the policies refuse what the audit tries", func(ctx context.Context) error {
		state, err := clusteraudit.Read(ctx, auditClient(t, p), clusteraudit.Options{
			TenantLabel: "kata-vfio.dev/tenant", Namespace: system, RuntimeClasses: []string{"kata-gpu"}, ProbeNamespace: "kata-vfio-audit-probe",
		})
		if err != nil {
			return err
		}
		profile, _ := finding.ProfileNamed(finding.MultiTenant)
		now := time.Now().UTC()
		report = clusteraudit.Run(state, clusterChecks(t), finding.Options{Profile: profile, Today: now.Format(time.DateOnly)})
		report.Subject = finding.Subject{Kind: "cluster", Name: "e2e", Time: now.Format(time.RFC3339)}
		for _, f := range report.Findings {
			if f.ID == "K8S-001" && f.State != finding.Pass {
				return errors.New(f.Text)
			}
		}
		return nil
	})
	text, err := json.Marshal(report)
	file := filepath.Join(t.TempDir(), "cluster.json")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// concludes runs the command, and compares the result for each requirement.
func (s *shownTo) concludes(t *testing.T, line string, want map[string]fleet.Result) *fleet.ConformanceReport {
	t.Helper()
	stdout, stderr, code := s.ask(t, "kata-vfio "+line+" -o json")
	t.Logf("$ kubectl kata-vfio %s -o json\n%s%s", line, stdout, stderr)
	r := &fleet.ConformanceReport{}
	if err := json.Unmarshal([]byte(stdout), r); err != nil || code != 3 {
		t.Fatalf("exit code %d, want 3, since a MUST is not shown: %v", code, err)
	}
	got, reasons := map[string]fleet.Result{}, ""
	for i := range r.Requirements {
		q := &r.Requirements[i]
		got[q.ID] = q.Result
		reasons += fmt.Sprintf("%s: %s\n", q.ID, q.Reason)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s%s", line, diff, reasons)
	}
	return r
}

// repeats runs those of the evidence's commands that read what a cluster without extensions has.
func (s *shownTo) repeats(t *testing.T, r *fleet.ConformanceReport) {
	ran := 0
	for i := range r.Requirements {
		q := &r.Requirements[i]
		for _, c := range q.Commands {
			args, ok := strings.CutPrefix(c.Command, "kubectl ")
			reads := strings.HasPrefix(args, "get ") || strings.HasPrefix(args, "api-resources ") || strings.HasPrefix(args, "kata-vfio ")
			if !ok || !reads || q.Result == fleet.NotOurs || strings.Contains(args, "kueue") || strings.Contains(args, "--watch") || strings.Contains(args, "NAMESPACE/") {
				continue
			}
			ran++
			stdout, stderr, code := s.ask(t, strings.ReplaceAll(args, "'", "")) // the quotes are the shell's
			if code != 0 || len(bytes.TrimSpace([]byte(stdout))) == 0 && !strings.Contains(args, "--ignore-not-found") && !strings.Contains(stderr, "No resources found") {
				t.Errorf("%s: exit code %d: %s%s", c.Command, code, stdout, stderr)
			}
		}
	}
	if ran < 10 {
		t.Errorf("%d commands ran: their form has changed", ran)
	}
}

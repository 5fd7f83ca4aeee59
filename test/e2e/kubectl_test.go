//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// shownPod claims a GPU of the node of this test.
const shownPod = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: train-gpu}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.kata-vfio.dev, selectors: [{cel: {expression: "device.attributes['kata-vfio.dev'].?rule.orValue('') == 'shown'"}}]}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  runtimeClassName: kata-gpu
  resourceClaims: [{name: gpu, resourceClaimName: train-gpu}]
  containers: [{name: main, image: example.com/none:1, resources: {claims: [{name: gpu}]}}]
`

// shownDevices are a GPU that is well, and one for which a check fails.
func shownDevices() []resourcev1.Device {
	gpu := func(address string) map[resourcev1.QualifiedName]resourcev1.DeviceAttribute {
		return map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"type": {StringValue: new("gpu")}, "isolated": {BoolValue: new(true)}, "rule": {StringValue: new("shown")},
			"resource.kubernetes.io/pciBusID": {StringValue: &address}, "resource.kubernetes.io/pcieRoot": {StringValue: new("pci0000:3a")},
		}
	}
	bad := resourcev1.Device{
		Name: "gpu-0000-3c-00-0", Attributes: gpu("0000:3c:00.0"),
		Taints: []resourcev1.DeviceTaint{{Key: "kata-vfio.dev/audit", Value: "IOM-003", Effect: resourcev1.DeviceTaintEffectNoSchedule}},
	}
	bad.Attributes["auditFailed"] = resourcev1.DeviceAttribute{StringValue: new("IOM-003")}
	return []resourcev1.Device{{Name: "gpu-0000-3b-00-0", Attributes: gpu("0000:3b:00.0")}, bad}
}

// shownTo is somebody who asks by `kubectl kata-vfio`.
type shownTo struct {
	plane   *controlplane.ControlPlane
	plugins string
	user    controlplane.User
}

// buildPlugin makes the plugin and its completion, as kubectl finds them, in a directory.
func buildPlugin(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "kubectl-kata_vfio")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../cmd/kubectl-kata_vfio").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	script, err := exec.CommandContext(t.Context(), program, "completion").Output()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "kubectl_complete-kata_vfio"), script, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// ask runs kubectl and returns what it wrote and its exit code.
func (s *shownTo) ask(t *testing.T, line string) (stdout, stderr string, code int) {
	t.Helper()
	cmd, err := s.plane.KubectlAs(t.Context(), s.user, s.plugins, strings.Split(line, " ")...)
	if err != nil {
		t.Fatal(err)
	}
	var out, warn bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &warn
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return out.String(), warn.String(), code
}

// bindNamed gives a user one more role everywhere.
func bindNamed(t *testing.T, p *controlplane.ControlPlane, name, role, user string) {
	t.Helper()
	admin := client(t, p, controlplane.Admin()).RbacV1()
	_, err := admin.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		_ = admin.ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

// bind gives a user a role, in a namespace or everywhere.
func bind(t *testing.T, p *controlplane.ControlPlane, role, user, namespace string) {
	t.Helper()
	admin := client(t, p, controlplane.Admin()).RbacV1()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}
	named := metav1.ObjectMeta{Name: "e2e-" + user}
	var err error
	if namespace != "" {
		_, err = admin.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: named, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
	} else {
		_, err = admin.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: named, RoleRef: ref, Subjects: subjects}, metav1.CreateOptions{})
		t.Cleanup(func() {
			// The test's own context is over by now.
			_ = admin.ClusterRoleBindings().Delete(context.Background(), named.Name, metav1.DeleteOptions{})
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestKubectlShowsTheFleet: by kubectl, of a real API server, to an operator who has the chart's role and to a tenant who has
// the role view in its namespace, and sees its own.
func TestKubectlShowsTheFleet(t *testing.T) {
	const node = "e2e-kubectl"
	p := installed(t)
	ns := tenantNamespace(t, p)
	addFitNode(t, p, node)
	published(t, p, pluginOn(t, p, node).ResourceV1().ResourceSlices(), slice(driver, node, node, shownDevices()...))
	plugins := buildPlugin(t)
	operator, tenant := &shownTo{p, plugins, controlplane.User{Name: "olga"}}, &shownTo{p, plugins, controlplane.User{Name: "tim"}}
	bind(t, p, "kata-vfio-view", operator.user.Name, "")
	bind(t, p, "view", tenant.user.Name, ns)
	apply(t, p, ns, shownPod)
	until(t, "the operator sees who has the GPU", func(context.Context) error {
		stdout, stderr, code := operator.ask(t, "kata-vfio devices --node "+node)
		if code != 0 || !strings.Contains(stdout, "claimed "+ns+"/train-gpu") {
			return fmt.Errorf("exit code %d: %s%s", code, stdout, stderr)
		}
		return nil
	})
	for _, c := range []struct {
		to   *shownTo
		line string
		code int
		want string
	}{
		{operator, "devices --node " + node + " -o wide", 0, "tainted: audit"},
		{operator, "devices --node " + node + " -o json", 0, `"auditFailed": [` + "\n"},
		{operator, "topology " + node, 0, "● gpu-0000-3b-00-0"},
		{operator, "audit " + node, 3, "IOM-003"},
		{operator, "claims -A", 0, "allocated"},
		{operator, "explain " + node + "/0000:3c:00.0", 0, "check IOM-003 fails; expected: "},
		{operator, "status", 3, "node " + node + ": the plugin is not ready"},
		{tenant, "status", 4, "kata-vfio-view"},
		{operator, "devices --node nowhere", 5, "there is no device of node nowhere"},
		{tenant, "claims -n " + ns, 0, "gpu-0000-3b-00-0"},
		{tenant, "explain train -n " + ns, 0, "event Scheduled"},
		{tenant, "explain train-gpu -n " + ns, 0, "has not said that they are ready"},
		{tenant, "claims -A", 4, "you may not list resourceclaims"},
		{tenant, "devices", 4, "kata-vfio-view"},
		{tenant, "explain nothing -n " + ns, 5, "there is no claim"},
	} {
		stdout, stderr, code := c.to.ask(t, "kata-vfio "+c.line)
		t.Logf("%s$ kubectl kata-vfio %s\n%s%s", c.to.user.Name, c.line, stdout, stderr)
		if code != c.code || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("%s: %s: exit code %d, want %d and %q", c.to.user.Name, c.line, code, c.code, c.want)
		}
	}
	t.Run("completes nodes", func(t *testing.T) {
		if stdout, stderr, _ := operator.ask(t, "__complete kata-vfio devices --node "); !strings.HasPrefix(stdout, node+"\n") {
			t.Errorf("%s%s", stdout, stderr)
		}
	})
	t.Run("fits screens", func(t *testing.T) {
		operator.fitsScreens(t, map[string]string{
			"status": "Needs attention", "devices": "gpu-0000-3b-00-0", "devices --node " + node + " -o wide": "gpu-0000-3c-00-0",
			"topology " + node: "gpu-0000-3b-00-0", "audit " + node: "IOM-003", "claims -A": "train-gpu", "explain train -n " + ns: "Scheduled",
			"quarantine": "no device is quarantined",
		})
	})
	t.Run("goes on", func(t *testing.T) { tenant.watches(t, ns) })
	t.Run("drains", func(t *testing.T) { operator.drains(t, ns) })
}

// drainRole is that of cmd/kubectl-kata_vfio/README.md.
const drainRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: kata-vfio-drain}
rules:
- {apiGroups: [resource.k8s.io], resources: [devicetaintrules], verbs: [list, create, delete]}
`

// drains keeps the scheduler from a node's only GPU until it ends the drain. Without the role it may not.
func (s *shownTo) drains(t *testing.T, ns string) {
	const node = "e2e-drained"
	addFitNode(t, s.plane, node)
	keepReady(t, s.plane, node)
	gpu := shownDevices()[0]
	gpu.Attributes["rule"] = resourcev1.DeviceAttribute{StringValue: new("drained")}
	published(t, s.plane, pluginOn(t, s.plane, node).ResourceV1().ResourceSlices(), slice(driver, node, node, gpu))
	wants := func(line string, code int, want string) {
		t.Helper()
		stdout, stderr, got := s.ask(t, "kata-vfio "+line)
		t.Logf("$ kubectl kata-vfio %s\n%s%s", line, stdout, stderr)
		if got != code || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%s: exit code %d, want %d and %q", line, got, code, want)
		}
	}
	wants("drain "+node, 4, "README.md has the roles")
	apply(t, s.plane, ns, drainRole)
	bindNamed(t, s.plane, "e2e-drain", "kata-vfio-drain", s.user.Name)
	if binaries.Older() {
		wants("drain "+node, 1, "Kubernetes 1.37")
		return
	}
	wants("drain "+node+" --reason firmware --wait", 0, "no claim has one")
	wants("status", 3, "drain of "+node+" since")
	wants("status", 3, "device "+node+"/gpu-0000-3b-00-0: tainted: drain") // as the scheduler takes it
	drained := strings.NewReplacer("train", "waits", "shown", "drained").Replace(shownPod)
	apply(t, s.plane, ns, drained)
	admin := client(t, s.plane, controlplane.Admin())
	until(t, "the scheduler finds no device for the pod", func(ctx context.Context) error {
		pod, err := admin.CoreV1().Pods(ns).Get(ctx, "waits", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "cannot allocate all claims") {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", pod.Status.Conditions)
	})
	wants("undrain "+node, 0, "deleted DeviceTaintRule kata-vfio-drain-")
	until(t, "the pod gets the GPU after the drain", func(ctx context.Context) error {
		claim, err := admin.ResourceV1().ResourceClaims(ns).Get(ctx, "waits-gpu", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if claim.Status.Allocation == nil {
			return errors.New("it is not allocated")
		}
		return nil
	})
	wants("undrain "+node, 5, "there is no drain of "+node)
}

// watches follows a tenant's claims: a new one is told, and an interrupt is a good end.
func (s *shownTo) watches(t *testing.T, ns string) {
	cmd, err := s.plane.KubectlAs(t.Context(), s.user, s.plugins, "kata-vfio", "claims", "-n", ns, "--watch")
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for _, want := range []string{"CLAIM", "train-gpu", "late"} {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
			t.Fatalf("it writes %q, want a line of %s: %v", lines.Text(), want, lines.Err())
		}
		if want == "train-gpu" {
			apply(t, s.plane, ns, strings.ReplaceAll(strings.Split(shownPod, "---")[0], "train-gpu", "late"))
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
}

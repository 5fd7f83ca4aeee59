//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
)

const bootstrapName = "kata-vfio-bootstrap"

// Nobody gets a privileged pod who has not asked for it.
func TestBootstrapIsForThoseWhoAskForIt(t *testing.T) {
	if got := render(t, "{}").text; strings.Contains(got, bootstrapName) {
		t.Error("the chart has bootstrap by default")
	}
	set := object[appsv1.DaemonSet](t, render(t, "bootstrap: {enabled: true}"), "DaemonSet", bootstrapName)
	pod := set.Spec.Template.Spec
	if !pod.HostPID || !*pod.Containers[0].SecurityContext.Privileged || *pod.AutomountServiceAccountToken {
		t.Errorf("it can't enter the node, or has a token: %+v", pod)
	}
	if pod.PriorityClassName != "system-node-critical" || len(pod.Tolerations) == 0 {
		t.Errorf("it has the priority %q and tolerates %v, and the plugin waits for what it does", pod.PriorityClassName, pod.Tolerations)
	}
	if pod.NodeSelector["kata-vfio.dev/node"] != "true" {
		t.Errorf("it runs on %v", pod.NodeSelector)
	}
	named := render(t, "bootstrap: {enabled: true, nodeSelector: {pool: gpu}}")
	if got := object[appsv1.DaemonSet](t, named, "DaemonSet", bootstrapName).Spec.Template.Spec.NodeSelector; len(got) != 1 || got["pool"] != "gpu" {
		t.Errorf("with a node selector of its own it runs on %v", got)
	}
}

// A change of the blueprint reaches the nodes, since the pods are made again.
func TestBootstrapFollowsItsBlueprint(t *testing.T) {
	seen := map[string]string{}
	for _, values := range []string{"{}", "{kernel: {iommu: Passthrough}}", "{name: pool, containers: {runtime: CRI-O}}"} {
		got := render(t, "bootstrap: {enabled: true, blueprint: "+values+"}")
		text := object[corev1.ConfigMap](t, got, "ConfigMap", bootstrapName).Data["blueprint.yaml"]
		if _, err := blueprint.Parse([]byte(text)); err != nil {
			t.Errorf("%s: %v\n%s", values, err, text)
		}
		sum := object[appsv1.DaemonSet](t, got, "DaemonSet", bootstrapName).Spec.Template.Annotations["kata-vfio.dev/blueprint"]
		if other, ok := seen[sum]; ok {
			t.Errorf("%s has the sum of %s", values, other)
		}
		seen[sum] = values
	}
}

// nicClass has the RuntimeClass for pods with NICs only, and all that must agree with it.
const nicClass = "runtimeClass: {nic: {enabled: true}}\nallowedRuntimeClasses: [kata-gpu, kata-vfio]\nnodeConfig: {allowedHandlers: [kata-gpu, kata-vfio]}\n"

// Bootstrap installs the handler that the RuntimeClass for NICs names, and no other.
func TestBootstrapInstallsTheHandlerOfTheRuntimeClassForNICs(t *testing.T) {
	otherName := strings.NewReplacer("nic: {", "nic: {handler: small, ", "allowedHandlers: [kata-gpu, kata-vfio]", "allowedHandlers: [kata-gpu, small]").Replace(nicClass)
	for values, want := range map[string]bool{
		"bootstrap: {enabled: true}": false,
		"bootstrap: {enabled: true, blueprint: {containers: {nicHandler: true}}}":                                true,
		nicClass + "bootstrap: {enabled: true}":                                                                  true,
		nicClass + "bootstrap: {enabled: true, blueprint: {name: pool, containers: {runtime: CRI-O, kata: rs}}}": true,
		nicClass + "bootstrap: {enabled: true, blueprint: {containers: {runtime: None}}}":                        false,
		otherName + hotPlug + "plugin: {extraArgs: [--hot-plug]}":                                                false,
	} {
		text := object[corev1.ConfigMap](t, render(t, values), "ConfigMap", bootstrapName).Data["blueprint.yaml"]
		got, err := blueprint.Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v\n%s", values, err, text)
			continue
		}
		if got.Containers.NICHandler != want || strings.Contains(values, "CRI-O") && (got.Containers.Kata != "rs" || got.Name != "pool") {
			t.Errorf("%s: nicHandler is %t, want %t:\n%s", values, got.Containers.NICHandler, want, text)
		}
	}
}

// The command lines that the chart writes are the program's own.
func TestBootstrapKnowsEveryFlag(t *testing.T) {
	path := filepath.Join(t.TempDir(), bootstrapName)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/kata-vfio/kata-vfio/cmd/"+bootstrapName)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := object[appsv1.DaemonSet](t, render(t, "bootstrap: {enabled: true, apply: Always, every: 1h}"), "DaemonSet", bootstrapName).Spec.Template.Spec.Containers[0]
	for _, args := range [][]string{c.Args, c.ReadinessProbe.Exec.Command[1:]} {
		if out, err := exec.CommandContext(t.Context(), path, append(args, "--help")...).CombinedOutput(); err != nil {
			t.Errorf("bootstrap does not take %q: %v: %s", args, err, out)
		}
	}
}

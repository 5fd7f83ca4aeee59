//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// mixedPod has an init container that ends, and two containers of which the second has the claim.
const mixedPod = `
---
apiVersion: v1
kind: Pod
metadata: {name: mixed}
spec:
  runtimeClassName: kata-gpu
  automountServiceAccountToken: false
  dnsPolicy: Default
  resourceClaims: [` + gpuOfTemplate + `]
  initContainers:
  - {name: init, image: "` + node.ShowImage + `", imagePullPolicy: Never, command: [/container, look]}
  containers:
  - {name: without, image: "` + node.ShowImage + `", imagePullPolicy: Never}
  - {name: with, image: "` + node.ShowImage + `", imagePullPolicy: Never, resources: {claims: [{name: gpu}]}}
`

// containersShareTheVM: a pod's VM has the device from its start, whichever of its containers has the claim; a command
// that is executed in a container and an ephemeral container see the same VM.
func containersShareTheVM(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, templates+mixedPod); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "mixed"); err != nil {
		return err
	}
	for _, container := range []string{"init", "without", "with"} {
		report, err := s.reportOf(ctx, "mixed", container)
		if err == nil {
			err = hasDisplay(report)
		}
		if err != nil {
			return fmt.Errorf("container %s: %w", container, err)
		}
	}
	return errors.Join(s.execLooks(ctx, "mixed", "without"), s.execLooks(ctx, "mixed", "with"), s.ephemeralLooks(ctx, "mixed"), s.deletePods(ctx, "mixed"))
}

// hasDisplay checks that a VM has the GPU stand-in, and that its driver works.
func hasDisplay(report *protocol.Report) error {
	displays := slices.DeleteFunc(slices.Clone(report.Functions), func(f protocol.Function) bool { return !isDisplay(f) })
	if len(displays) != 1 || displays[0].Driver != "bochs-drm" || len(report.Displays) != 1 {
		return fmt.Errorf("want one display that works, the VM sees %+v", *report)
	}
	return nil
}

// execLooks executes a command in a container that looks at its VM.
func (s *site) execLooks(ctx context.Context, pod, container string) error {
	out, err := s.plane.Kubectl(ctx, "exec", "--namespace", tenant, pod, "--container", container, "--", "/container", "look")
	if err != nil {
		return fmt.Errorf("exec in %s: %w", container, err)
	}
	report := &protocol.Report{}
	if err := json.Unmarshal(bytes.TrimSpace(out), report); err != nil {
		return fmt.Errorf("exec in %s: %w: %s", container, err, out)
	}
	return hasDisplay(report)
}

// ephemeralLooks adds an ephemeral container that looks at its VM.
func (s *site) ephemeralLooks(ctx context.Context, name string) error {
	pods := s.client.CoreV1().Pods(tenant)
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debugger", Image: node.ShowImage, ImagePullPolicy: corev1.PullNever, Command: []string{"/container", "look"},
	}}}
	if _, err := pods.UpdateEphemeralContainers(ctx, name, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("add an ephemeral container: %w", err)
	}
	report, err := s.reportOf(ctx, name, "debugger")
	if err != nil {
		return fmt.Errorf("in an ephemeral container: %w\n%s", err, s.events(ctx, tenant))
	}
	return hasDisplay(report)
}

// setOfOne is a StatefulSet of one pod with the GPU.
const setOfOne = `
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set}
spec:
  serviceName: set
  selector: {matchLabels: {app: set}}
  template:
    metadata: {labels: {app: set}}
    spec:
      runtimeClassName: kata-gpu
      automountServiceAccountToken: false
      dnsPolicy: Default
      terminationGracePeriodSeconds: 1
      resourceClaims: [` + gpuOfTemplate + `]
      containers:
      - {name: main, image: "` + node.ShowImage + `", imagePullPolicy: Never, resources: {claims: [{name: gpu}]}}
`

// statefulSetRecreatesItsPod deletes a StatefulSet's pod: another one of its name gets the device.
func statefulSetRecreatesItsPod(ctx context.Context, s *site) error {
	const pod = "set-0"
	if err := s.apply(ctx, tenant, templates+setOfOne); err != nil {
		return err
	}
	err := s.awaitPod(ctx, pod, "")
	if err == nil {
		err = s.podIsRecreated(ctx, pod)
	}
	_, deleteErr := s.plane.Kubectl(context.WithoutCancel(ctx), "delete", "statefulset", "set", "--namespace", tenant)
	return errors.Join(err, deleteErr, s.awaitGone(ctx, tenant))
}

func (s *site) podIsRecreated(ctx context.Context, pod string) error {
	before, err := s.sandboxes(ctx)
	if err != nil {
		return err
	}
	old, err := s.client.CoreV1().Pods(tenant).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := s.client.CoreV1().Pods(tenant).Delete(ctx, pod, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := s.awaitPod(ctx, pod, string(old.UID)); err != nil {
		return err
	}
	return s.awaitNewVM(ctx, pod, before)
}

// awaitPod waits for a pod of a name that is not the one with a UID, and until it runs.
func (s *site) awaitPod(ctx context.Context, name, not string) error {
	err := s.until(ctx, "there is a pod "+name, nodeLimit, func(ctx context.Context) error {
		got, err := s.client.CoreV1().Pods(tenant).Get(ctx, name, metav1.GetOptions{})
		if err == nil && string(got.UID) == not {
			err = errors.New("it is the one before")
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.awaitRunning(ctx, vmPodLimit, name)
}

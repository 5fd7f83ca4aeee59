//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// modprobeFile is one of those that bootstrap makes.
	modprobeFile = "/etc/modprobe.d/50-kata-vfio.conf"
	// bootstrapPods selects the pods of the chart's bootstrap.
	bootstrapPods = "app.kubernetes.io/component=bootstrap"
	// ownFiles are those of the node, with their sums; what daemons write meanwhile is not in /etc, except for the runtime's own.
	ownFiles = "cd / && find etc -xdev -type f | sort | xargs sha256sum"
)

// bootstrapsNode: the chart's bootstrap makes the node fit, from a pod; its pod is ready while the node is, and a tenant's pod gets its device; what somebody changes is in
// the plugin's metrics, and mended where that is asked for; and all is taken back from the pod, too.
func bootstrapsNode(ctx context.Context, s *site) error {
	before, err := s.output(ctx, ownFiles)
	if err != nil {
		return err
	}
	kept := s.keptFit(ctx)
	err = errors.Join(kept, s.takeBootBack(context.WithoutCancel(ctx)), s.node.InstallPlugin(context.WithoutCancel(ctx), chart))
	if err != nil {
		return err
	}
	after, err := s.output(ctx, ownFiles)
	if err == nil && after != before {
		err = fmt.Errorf("after the way back the node has\n%s\nbefore it had\n%s", after, before)
	}
	return err
}

// bootstrapValues are for a node whose runtime is set up by others, and say soon what was changed.
const bootstrapValues = `
bootstrap: {every: 10s, blueprint: {name: lab, containers: {runtime: None}}}
`

// installBootstrap installs the chart with bootstrap, for a node whose runtime is set up by others.
func (s *site) installBootstrap(ctx context.Context, apply string) error {
	return s.node.InstallPlugin(ctx, chart, "bootstrap.enabled=true", "bootstrap.every=10s", "bootstrap.apply="+apply,
		"bootstrap.blueprint.name=lab", "bootstrap.blueprint.containers.runtime=None")
}

func (s *site) keptFit(ctx context.Context) error {
	values, err := s.node.PluginValues()
	if err != nil {
		return err
	}
	if err := s.installsAsDocumented(ctx, values+bootstrapValues); err != nil {
		return err
	}
	if _, err := s.checkVM(ctx, "gpu"); err != nil {
		return err
	}
	if err := errors.Join(s.deleteFirstPod(ctx), s.node.AwaitPlugin(ctx), s.awaitBootstrap(ctx, true), s.awaitOutcome(ctx, "fit")); err != nil {
		return err
	}
	if _, err := s.output(ctx, "echo options vfio_pci disable_denylist=Y >"+modprobeFile); err != nil {
		return err
	}
	if err := errors.Join(s.awaitOutcome(ctx, "changes needed"), s.wantDrift(ctx), s.driftIsShown(ctx, modprobeFile)); err != nil {
		return err
	}
	if err := s.installBootstrap(ctx, "Always"); err != nil {
		return err
	}
	if err := errors.Join(s.awaitBootstrap(ctx, true), s.awaitOutcome(ctx, "fit")); err != nil {
		return err
	}
	if text, err := s.output(ctx, "cat "+modprobeFile); err != nil || strings.Contains(text, "=Y") {
		return fmt.Errorf("%s is %q: %w", modprobeFile, text, err)
	}
	return nil
}

// awaitBootstrap waits until the DaemonSet's only pod, of its latest template, is ready or not.
func (s *site) awaitBootstrap(ctx context.Context, ready bool) error {
	return s.until(ctx, fmt.Sprintf("bootstrap's pod is ready: %t", ready), nodeLimit, func(ctx context.Context) error {
		set, err := s.client.AppsV1().DaemonSets(system).Get(ctx, bootstrapName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		at := set.Status
		if at.ObservedGeneration != set.Generation || at.UpdatedNumberScheduled != 1 || (at.NumberReady == 1) != ready {
			log, logErr := s.output(ctx, "tail -n 40 /var/log/pods/"+system+"_"+bootstrapName+"*/*/*.log")
			return fmt.Errorf("the DaemonSet is %+v; its log is (%w)\n%s", at, logErr, log)
		}
		return nil
	})
}

// awaitOutcome waits until the plugin serves what bootstrap has found.
func (s *site) awaitOutcome(ctx context.Context, want string) error {
	line := fmt.Sprintf(`kata_vfio_bootstrap_outcome{blueprint="lab",outcome=%q} 1`, want)
	return s.until(ctx, "the plugin's metrics say "+want, nodeLimit, func(ctx context.Context) error {
		text, err := s.metrics(ctx, "kata_vfio_bootstrap")
		if err == nil && !strings.Contains(text, line) {
			err = fmt.Errorf("they are\n%s", text)
		}
		return err
	})
}

// wantDrift checks that the file that was changed is named.
func (s *site) wantDrift(ctx context.Context) error {
	text, err := s.metrics(ctx, "kata_vfio_bootstrap_drift")
	if err == nil && !strings.Contains(text, fmt.Sprintf(`path=%q,what="changed"}`, modprobeFile)) {
		err = fmt.Errorf("%s is not among what has drifted:\n%s", modprobeFile, text)
	}
	return err
}

// takeBootBack reverts from the pod, while that only looks.
func (s *site) takeBootBack(ctx context.Context) error {
	if err := s.installBootstrap(ctx, "Never"); err != nil {
		return err
	}
	if err := s.until(ctx, "bootstrap only looks", nodeLimit, s.onlyLooks); err != nil {
		return err
	}
	out, err := s.plane.Kubectl(ctx, "exec", "--namespace", system, "daemonset/"+bootstrapName, "--", bootstrapName, "revert", "--enter-node")
	if err != nil {
		return fmt.Errorf("revert: %w: %s", err, out)
	}
	s.log("kubectl exec daemonset/%s -- %s revert --enter-node\n%s", bootstrapName, bootstrapName, out)
	return s.awaitBootstrap(ctx, false)
}

func (s *site) onlyLooks(ctx context.Context) error {
	pods, err := s.client.CoreV1().Pods(system).List(ctx, metav1.ListOptions{LabelSelector: bootstrapPods})
	if err != nil || len(pods.Items) != 1 {
		return errors.Join(err, fmt.Errorf("it has %d pods", len(pods.Items)))
	}
	if c := pods.Items[0].Spec.Containers[0]; !strings.Contains(strings.Join(c.Args, " "), "--apply=Never") {
		return fmt.Errorf("its pod runs %q", c.Args)
	}
	return s.awaitBootstrap(ctx, true)
}

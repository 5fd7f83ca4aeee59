//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// uninstalls uninstalls the chart as its README says, after having done it too early: with a pod that has a device, which
// keeps it, and is only rid of it when the chart is there again. The last installation is for the cases that follow.
func uninstalls(ctx context.Context, s *site) error {
	err := s.uninstallTooEarly(ctx)
	if err == nil {
		err = errors.Join(s.wantIdle(ctx), s.node.UninstallPlugin(ctx))
	}
	if err == nil {
		err = errors.Join(s.wantNothingInTheCluster(ctx), s.wantNothingOnTheNode(ctx))
	}
	return errors.Join(err, s.node.InstallPlugin(ctx, chart))
}

// uninstallTooEarly ends with the chart installed and no pod.
func (s *site) uninstallTooEarly(ctx context.Context) error {
	if err := s.apply(ctx, tenant, templates+vmPod("keeps", gpuOfTemplate)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "keeps"); err != nil {
		return err
	}
	before, err := s.tenancy(ctx, "keeps")
	if err != nil {
		return err
	}
	if err := s.node.UninstallPlugin(ctx); err != nil {
		return err
	}
	if err := s.wantTenancy(ctx, "keeps", before); err != nil {
		return fmt.Errorf("without the plugin: %w", err)
	}
	if err := s.client.CoreV1().Pods(tenant).Delete(ctx, "keeps", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}); err != nil {
		return err
	}
	if err := errors.Join(s.awaitStopped(ctx, "keeps"), s.wantBound(ctx, before.functions[0])); err != nil {
		return err
	}
	return errors.Join(s.node.InstallPlugin(ctx, chart), s.awaitGone(ctx, tenant))
}

// awaitStopped waits until a pod's containers have ended, and the pod has not.
func (s *site) awaitStopped(ctx context.Context, pod string) error {
	return s.until(ctx, "the containers of pod "+pod+" have ended", nodeLimit, func(ctx context.Context) error {
		got, err := s.client.CoreV1().Pods(tenant).Get(ctx, pod, metav1.GetOptions{})
		if err == nil && got.Status.ContainerStatuses[0].State.Terminated == nil && got.Status.Phase == corev1.PodRunning {
			err = fmt.Errorf("they are %+v", got.Status.ContainerStatuses[0].State)
		}
		return err
	})
}

// wantBound checks that a function is where its pod has it.
func (s *site) wantBound(ctx context.Context, function string) error {
	now, err := s.driversNow(ctx)
	if err == nil && !strings.Contains(now, function+" vfio-pci") {
		err = fmt.Errorf("%s is not on vfio-pci:\n%s", function, now)
	}
	return err
}

// wantIdle asks the plugin itself, as the README says, whether it may go.
func (s *site) wantIdle(ctx context.Context) error {
	const idle = "No claim has a device of this node."
	return s.until(ctx, "the plugin has given all back", nodeLimit, func(ctx context.Context) error {
		out, err := s.plane.Kubectl(ctx, "exec", "--namespace", system, "daemonset/"+plugin, "-c", "plugin", "--", plugin, "status")
		if err == nil && !strings.Contains(string(out), idle) {
			err = fmt.Errorf("it says %s", out)
		}
		return err
	})
}

// wantNothingInTheCluster waits until no object of the chart's or of the plugin's is there. The kubelet removes the slices half a
// minute after the plugin has gone.
func (s *site) wantNothingInTheCluster(ctx context.Context) error {
	return s.until(ctx, "the cluster has nothing of the chart", nodeLimit, func(ctx context.Context) error {
		left, err := s.plane.Kubectl(ctx, "get", "--all-namespaces", "--selector", "app.kubernetes.io/name=kata-vfio", "--output", "name",
			"daemonsets,controllerrevisions,pods,services,serviceaccounts,configmaps,networkpolicies,clusterroles,clusterrolebindings,"+
				"deviceclasses,runtimeclasses,validatingadmissionpolicies,validatingadmissionpolicybindings,"+
				"mutatingadmissionpolicies,mutatingadmissionpolicybindings")
		if err != nil {
			return err
		}
		slices, err := s.published(ctx)
		if err == nil && (len(slices) > 0 || strings.TrimSpace(string(left)) != "") {
			err = fmt.Errorf("%d devices are published, and there are\n%s", len(slices), left)
		}
		return err
	})
}

// wantNothingOnTheNode checks that the kubelet and the runtimes find nothing of the plugin's, and that each function has its
// driver. What stays is /var/lib/kata-vfio, and in /run what refuses.
func (s *site) wantNothingOnTheNode(ctx context.Context) error {
	left, err := s.output(ctx, "cd /; find var/lib/kubelet/plugins/kata-vfio.dev var/lib/kubelet/plugins_registry run/cdi ! -type d; "+
		"ls var/lib/kata-vfio/journal | grep json; pgrep kata-vfio; true")
	if err == nil && left != "" {
		err = fmt.Errorf("left on the node: %s", left)
	}
	now, driversErr := s.driversNow(ctx)
	if driversErr == nil && now != s.drivers {
		driversErr = fmt.Errorf("the drivers are\n%s\nwant\n%s", now, s.drivers)
	}
	return errors.Join(err, driversErr)
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// phase is a point of a pod's life with a device.
type phase struct {
	name string
	// await is a command in the machine that ends when the point is reached. $1 is a file that is there from then on, or
	// was until then.
	await string
	// ending: the pod is told to end before.
	ending bool
}

// appears and goes wait for files without starting a process, which would be late.
const (
	appears = `until [ -e "$1" ]; do set -- %s; done`
	goes    = `while [ -e "$1" ]; do set -- %s; done`
)

func phases() []phase {
	return []phase{
		{name: "preparing", await: fmt.Sprintf(appears, "/var/lib/kata-vfio/journal/*.json")},
		{name: "prepared", await: fmt.Sprintf(appears, "/var/run/cdi/kata-vfio.dev-vfio_*")},
		{name: "in its sandbox", await: fmt.Sprintf(appears, "/run/vm/*/report.json")},
		{name: "ending", await: "true", ending: true},
		{name: "without its sandbox", await: `set -- /run/vm/*/report.json; ` + fmt.Sprintf(goes, "/run/vm/*/report.json"), ending: true},
	}
}

// crashesAtEachPhase kills each daemon at each point of a pod's life. The pod must run in the end, or be gone, and leave
// nothing.
func crashesAtEachPhase(ctx context.Context, s *site) error {
	var errs []error
	nothing := func(context.Context) error { return nil }
	for _, victim := range []struct {
		name         string
		crash, renew func(context.Context) error
	}{
		{"plugin", s.crashPlugin, s.renewPlugin}, {"kubelet", s.node.CrashKubelet, nothing}, {"containerd", s.node.CrashContainerd, nothing},
	} {
		for _, p := range phases() {
			if err := s.crashAt(ctx, p, victim.crash); err != nil {
				errs = append(errs, fmt.Errorf("%s killed while the pod is %s: %w", victim.name, p.name, err))
			}
			if err := errors.Join(s.clear(ctx), victim.renew(ctx)); err != nil {
				return errors.Join(append(errs, fmt.Errorf("after the %s was killed while the pod is %s: %w", victim.name, p.name, err))...)
			}
			s.log("%s killed while the pod is %s: %v", victim.name, p.name, errors.Join(errs...))
		}
	}
	return errors.Join(errs...)
}

// crashPlugin kills the plugin and waits until the kubelet has started it again, which it does at once the first time
// and later after a while that doubles.
func (s *site) crashPlugin(ctx context.Context) error {
	before, err := s.output(ctx, pluginProcesses)
	if err != nil {
		return err
	}
	if err := s.killPlugin(ctx); err != nil {
		return err
	}
	return errors.Join(s.awaitOtherPlugin(ctx, before), s.node.AwaitPlugin(ctx))
}

// pluginCommand matches the command line of the plugin that serves claims, not that of a probe, nor of the shell that looks for it.
const pluginCommand = "'kata-vfio-plugin [r]un'"

const pluginProcesses = "pgrep -f " + pluginCommand + " || true"

// awaitOtherPlugin waits until the plugin is another process than before.
func (s *site) awaitOtherPlugin(ctx context.Context, before string) error {
	return s.until(ctx, "the plugin is started again", vmPodLimit, func(ctx context.Context) error {
		now, err := s.output(ctx, pluginProcesses)
		if err == nil && (now == "" || now == before) {
			err = fmt.Errorf("its processes are %q, before %q", now, before)
		}
		return err
	})
}

// renewPlugin has the DaemonSet make another pod, for which the kubelet does not wait the longer the more often it was
// killed.
func (s *site) renewPlugin(ctx context.Context) error {
	before, err := s.output(ctx, pluginProcesses)
	if err != nil {
		return err
	}
	if _, err := s.plane.Kubectl(ctx, "delete", "pods", "--all", "--namespace", system); err != nil {
		return err
	}
	return errors.Join(s.awaitOtherPlugin(ctx, before), s.node.AwaitPlugin(ctx))
}

func (s *site) crashAt(ctx context.Context, p phase, crash func(context.Context) error) error {
	if err := s.apply(ctx, tenant, templates+vmPod("victim", gpuOfTemplate)); err != nil {
		return err
	}
	if p.ending {
		if err := s.awaitRunning(ctx, vmPodLimit, "victim"); err != nil {
			return err
		}
		err := s.client.CoreV1().Pods(tenant).Delete(ctx, "victim", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
		if err != nil {
			return err
		}
	}
	if _, err := s.output(ctx, "timeout 300 sh -c '"+p.await+"'"); err != nil {
		return err
	}
	if err := crash(ctx); err != nil {
		return err
	}
	if p.ending {
		return s.awaitGone(ctx, tenant)
	}
	return errors.Join(s.awaitRunning(ctx, vmPodLimit, "victim"), s.deletePods(ctx, "victim"))
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/kata"
)

// sandboxes are the IDs of the sandboxes with a VM, one on a line.
func (s *site) sandboxes(ctx context.Context) (string, error) {
	return s.output(ctx, "ls /run/vm /run/vc/vm /run/kata 2>/dev/null | grep '^[0-9a-f]\\{64\\}$' || true")
}

// killPlugin kills the plugin as the kernel does when memory is short.
func (s *site) killPlugin(ctx context.Context) error {
	_, err := s.output(ctx, "pkill -KILL -f "+pluginCommand)
	return err
}

func deletedWhileStarting(ctx context.Context, s *site) error { return s.deletedInBoot(ctx, 1) }

// forceDeletedWhileStarting: the API server forgets the pod at once, while the node boots its VM.
func forceDeletedWhileStarting(ctx context.Context, s *site) error { return s.deletedInBoot(ctx, 0) }

func (s *site) deletedInBoot(ctx context.Context, grace int64) error {
	if err := s.apply(ctx, tenant, templates+vmPod("early", gpuOfTemplate)); err != nil {
		return err
	}
	err := s.until(ctx, "the VM is on its way", vmPodLimit, func(ctx context.Context) error {
		_, err := s.output(ctx, "pgrep qemu-system")
		return err
	})
	if err != nil {
		return err
	}
	if err := s.client.CoreV1().Pods(tenant).Delete(ctx, "early", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		return err
	}
	return s.awaitGone(ctx, tenant)
}

// forceDeletedAndRecreated does what an impatient person does to a StatefulSet's pod: the old VM still has the device
// when the next pod of the name, which is another pod, is to get it.
func forceDeletedAndRecreated(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, directClaim+vmPod("again", gpuDirect)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "again"); err != nil {
		return err
	}
	before, err := s.sandboxes(ctx)
	if err != nil {
		return err
	}
	if err := s.client.CoreV1().Pods(tenant).Delete(ctx, "again", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		return err
	}
	if err := s.apply(ctx, tenant, vmPod("again", gpuDirect)); err != nil {
		return err
	}
	return errors.Join(s.awaitNewVM(ctx, "again", before), s.deletePods(ctx, "again"))
}

// awaitNewVM waits until a pod runs in a sandbox that is not the one before, with a VM that has its devices.
func (s *site) awaitNewVM(ctx context.Context, pod, before string) error {
	err := s.until(ctx, "there is another VM", vmPodLimit, func(ctx context.Context) error {
		now, err := s.sandboxes(ctx)
		if err == nil && (now == "" || strings.Contains(now, before)) {
			err = fmt.Errorf("the sandboxes are %q", now)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.events(ctx, tenant))
	}
	if err := s.awaitRunning(ctx, vmPodLimit, pod); err != nil {
		return err
	}
	_, err = s.checkVM(ctx, pod)
	return err
}

// sandboxDies kills what holds the sandbox's namespaces: the kubelet makes another sandbox for the same pod, whose VM
// gets the device after a reset.
func sandboxDies(ctx context.Context, s *site) error {
	if s.kata != nil {
		return s.diesAndComesBack(ctx, "pkill -KILL qemu-system") // which Kata's shim notices: the sandbox's own process is in the VM
	}
	return s.diesAndComesBack(ctx, "ctr -n k8s.io tasks kill -s SIGKILL $(ls /run/vm)")
}

// diesAndComesBack kills something of a pod's only VM by a shell script, and waits for another one.
func (s *site) diesAndComesBack(ctx context.Context, kill string) error {
	if err := s.apply(ctx, tenant, templates+vmPod("crash", gpuOfTemplate)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "crash"); err != nil {
		return err
	}
	before, err := s.sandboxes(ctx)
	if err != nil {
		return err
	}
	if _, err := s.output(ctx, kill); err != nil {
		return err
	}
	return errors.Join(s.awaitNewVM(ctx, "crash", before), s.deletePods(ctx, "crash"))
}

func pluginKilledWhilePodStarts(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, templates+vmPod("patient", gpuOfTemplate)); err != nil {
		return err
	}
	err := s.until(ctx, "the claim is being prepared", vmPodLimit, func(ctx context.Context) error {
		_, err := s.output(ctx, "ls /var/lib/kata-vfio/journal/*.json")
		return err
	})
	if err != nil {
		return err
	}
	if err := s.killPlugin(ctx); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "patient"); err != nil {
		return err
	}
	_, err = s.checkVM(ctx, "patient")
	return errors.Join(err, s.deletePods(ctx, "patient"), s.node.AwaitPlugin(ctx))
}

// sandboxBegins is a shell script that kills the plugin when another pod has a network namespace than those that were there: its claim is prepared
// then, and its runtime does not run yet. $0 is how many were there.
const sandboxBegins = `until [ $# -gt "$0" ]; do set -- /var/run/netns/*; done; pkill -KILL kata-vfio-plugi`

// noVMWithoutPlugin kills the plugin after it has prepared a claim and before the runtime asks for the devices: the runtime refuses the sandbox and
// boots no VM, and the pod runs once the plugin is back. That takes long enough: the kubelet waits 20 seconds before it starts a plugin for
// the third time.
func noVMWithoutPlugin(ctx context.Context, s *site) error {
	if err := errors.Join(s.crashPlugin(ctx), s.crashPlugin(ctx)); err != nil {
		return err
	}
	before, err := s.output(ctx, "ls /var/run/netns | wc -l")
	if err != nil {
		return err
	}
	if err := s.apply(ctx, tenant, templates+vmPod("refused", gpuOfTemplate)); err != nil {
		return err
	}
	if _, err := s.output(ctx, "timeout 300 sh -c '"+sandboxBegins+"' "+before); err != nil {
		return err
	}
	if err := s.awaitEvent(ctx, tenant, "refused", "FailedCreatePodSandBox", s.refusal()); err != nil {
		return err
	}
	if vm, err := s.output(ctx, "pgrep -a qemu-system || true"); err != nil || vm != "" {
		return fmt.Errorf("a VM boots without the plugin: %s (%w)", vm, err)
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "refused"); err != nil {
		return err
	}
	_, err = s.checkVM(ctx, "refused")
	return errors.Join(err, s.deletePods(ctx, "refused"), s.renewPlugin(ctx))
}

// refusal is what a runtime says of a sandbox when nobody serves the socket.
func (s *site) refusal() string {
	if s.kata != nil && s.kata.Runtime == kata.Go {
		return "GetPodResources failed"
	}
	return "onnection refused"
}

// rollingUpdate starts and ends pods while one instance of the plugin takes over from another.
func rollingUpdate(ctx context.Context, s *site) error {
	if err := errors.Join(s.node.UseVMs(ctx, false), s.apply(ctx, tenant, templates+vmPod("before", gpuOfTemplate))); err != nil {
		return err
	}
	if err := errors.Join(s.awaitRunning(ctx, vmPodLimit, "before"), s.node.UseVMs(ctx, true)); err != nil {
		return err
	}
	if _, err := s.plane.Kubectl(ctx, "rollout", "restart", "daemonset/"+plugin, "--namespace", system); err != nil {
		return err
	}
	if err := s.apply(ctx, tenant, vmPod("during", vfOfTemplate)); err != nil {
		return err
	}
	if err := s.client.CoreV1().Pods(tenant).Delete(ctx, "before", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "during"); err != nil {
		return err
	}
	// With a plugin all the time nothing has to be tried twice.
	if events := s.events(ctx, tenant); strings.Contains(events, " Failed") {
		return fmt.Errorf("there was a gap:\n%s", events)
	}
	_, err := s.checkVM(ctx, "during")
	return errors.Join(err, s.deletePods(ctx, "during"), s.node.AwaitPlugin(ctx))
}

// pluginAway starts a pod while the node has no plugin: nothing is given, and the pod runs once the plugin is back.
func pluginAway(ctx context.Context, s *site) error {
	if err := s.schedulePlugin(ctx, `{"kata-vfio.dev/away": "true"}`); err != nil {
		return err
	}
	if err := s.awaitGone(ctx, system); err != nil {
		return err
	}
	err := s.apply(ctx, tenant, templates+vmPod("waits", gpuOfTemplate))
	if err == nil {
		err = s.awaitEvent(ctx, tenant, "waits", "FailedPrepareDynamicResources", "kata-vfio.dev")
	}
	err = errors.Join(err, s.schedulePlugin(ctx, `{"kata-vfio.dev/away": null}`), s.node.AwaitPlugin(ctx))
	if err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "waits"); err != nil {
		return err
	}
	_, err = s.checkVM(ctx, "waits")
	return errors.Join(err, s.deletePods(ctx, "waits"))
}

// schedulePlugin changes which nodes are to have the plugin.
func (s *site) schedulePlugin(ctx context.Context, nodes string) error {
	patch := `{"spec": {"template": {"spec": {"nodeSelector": ` + nodes + `}}}}`
	_, err := s.client.AppsV1().DaemonSets(system).Patch(ctx, plugin, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// daemonsRestart restarts everything but the VM, the plugin while the API server is away, and starts another pod after.
func daemonsRestart(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, templates+vmPod("stays", gpuOfTemplate)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "stays"); err != nil {
		return err
	}
	before, err := s.sandboxes(ctx)
	if err != nil {
		return err
	}
	err = errors.Join(s.withoutAPI(ctx, s.killPlugin), s.node.RestartContainerd(ctx), s.node.RestartKubelet(ctx), s.node.AwaitPlugin(ctx))
	if err != nil {
		return err
	}
	// A second VM beside the first would show no more than that the pod starts.
	if err := errors.Join(s.node.UseVMs(ctx, false), s.apply(ctx, tenant, vmPod("after", vfOfTemplate))); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "after", "stays"); err != nil {
		return err
	}
	now, err := s.sandboxes(ctx)
	if err == nil && !strings.Contains(now, before) {
		err = fmt.Errorf("the VM is another: %q, then %q", before, now)
	}
	_, checkErr := s.checkVM(ctx, "stays")
	return errors.Join(err, checkErr, s.deletePods(ctx, "after", "stays"))
}

// withoutAPI does something while the node, its pods included, does not reach the API server.
func (s *site) withoutAPI(ctx context.Context, do func(context.Context) error) error {
	server, err := url.Parse(s.plane.Server(controlplane.LabHost))
	if err != nil {
		return err
	}
	rule := " to " + server.Hostname() + " dport " + server.Port() + " ipproto tcp prohibit"
	if _, err := s.output(ctx, "ip rule add priority 1"+rule); err != nil {
		return err
	}
	err = do(ctx)
	if err == nil {
		err = s.until(ctx, "the plugin runs without the API server", nodeLimit, func(ctx context.Context) error {
			_, err := s.output(ctx, "pgrep -f "+pluginCommand)
			return err
		})
	}
	_, ruleErr := s.output(ctx, "ip rule del priority 1"+rule)
	return errors.Join(err, ruleErr)
}

// nodeReboots cuts the node's power: the pod stays bound to the node, and gets a new VM there.
func nodeReboots(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, templates+vmPod("returns", gpuOfTemplate)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "returns"); err != nil {
		return err
	}
	before, err := s.sandboxes(ctx)
	if err != nil {
		return err
	}
	if err := s.node.Reboot(ctx); err != nil {
		return err
	}
	if err := s.node.AwaitPlugin(ctx); err != nil {
		return err
	}
	return errors.Join(s.awaitNewVM(ctx, "returns", before), s.deletePods(ctx, "returns"))
}

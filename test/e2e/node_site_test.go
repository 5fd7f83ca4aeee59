//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/kata"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/internal/starved"
)

const (
	// vmPodLimit is for a pod with a VM to run. Half a minute is usual, and a minute where the kubelet's first try failed;
	// beside other work on this host it takes several.
	vmPodLimit = 5 * time.Minute
	// nodeLimit is for what a node does without a VM; the kubelet tries again only after some fifteen seconds.
	nodeLimit = 5 * time.Minute
	// logBytes is how much of each log an error quotes.
	logBytes = 4000
)

// site is a node with the plugin, and namespaces for pods.
type site struct {
	node   *node.Node
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
	// kata is what runs pods in VMs; nil is the stand-in.
	kata *kata.Install
	// settings are those with which the chart is installed, beside the lab's; unsettled if an installation of others failed.
	settings  []string
	unsettled bool
	// drivers are the functions' drivers while nothing is held.
	drivers string
	// documents are what people are told to run, and reading is a directory for who does.
	documents documents
	reading   string
	// logs is where the logs of each case are kept; empty keeps none.
	logs string
	log  func(format string, args ...any)
}

// The site's namespaces: of a tenant, and one that the policies do not look at.
const (
	tenant  = "team-a"
	trusted = "trusted"
)

// explain adds to an error what the node's logs end with, and the machine's loss if that is the cause.
func (s *site) explain(err error) error {
	var text strings.Builder
	for _, service := range []string{"kubelet", "containerd", vendorDriver, node.FabricManager} {
		log, readErr := os.ReadFile(s.node.LogFile(service))
		if errors.Is(readErr, fs.ErrNotExist) {
			continue // it was never started
		}
		if readErr != nil {
			log = []byte(readErr.Error())
		}
		fmt.Fprintf(&text, "--- %s\n%s\n", service, log[max(0, len(log)-logBytes):])
	}
	ctx, cancel := context.WithTimeout(context.Background(), nodeLimit) // the test's own may be over
	defer cancel()
	logs, logErr := s.output(ctx, "tail -qc 4000 /var/log/pods/"+system+"_*/*/*.log")
	fmt.Fprintf(&text, "--- plugin (%v)\n%s\n", logErr, logs)
	err = errors.Join(err, errors.New(text.String()), s.node.Lost())
	if why := starved.Host(); why != "" {
		err = errors.Join(err, errors.New(why))
	}
	return err
}

// until tries until it works, the limit is over or the node is lost.
func (s *site) until(ctx context.Context, what string, limit time.Duration, try func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		err := try(ctx)
		if err == nil {
			return true, nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // one that the limit cuts off says less than the one before
		}
		return false, s.node.Lost()
	})
	if err != nil {
		return fmt.Errorf("wait until %s: %w: %w", what, err, last)
	}
	return nil
}

// apply applies objects in a namespace.
func (s *site) apply(ctx context.Context, namespace, text string) error {
	_, err := s.plane.KubectlInput(ctx, strings.NewReader(text), "apply", "--namespace", namespace, "-f", "-")
	return err
}

// awaitRunning waits until a tenant's pods run.
func (s *site) awaitRunning(ctx context.Context, limit time.Duration, pods ...string) error {
	for _, pod := range pods {
		if err := s.awaitRunningIn(ctx, tenant, limit, pod); err != nil {
			return err
		}
	}
	return nil
}

// awaitRunningIn waits until a namespace's pod runs.
func (s *site) awaitRunningIn(ctx context.Context, namespace string, limit time.Duration, pod string) error {
	begin := time.Now()
	err := s.until(ctx, "pod "+pod+" runs", limit, func(ctx context.Context) error {
		got, err := s.client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		unready := slices.ContainsFunc(got.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return !c.Ready })
		if got.Status.Phase != corev1.PodRunning || unready {
			return fmt.Errorf("it is %s", got.Status.Phase)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.events(ctx, namespace))
	}
	s.log("pod %s runs after another %.1fs", pod, time.Since(begin).Seconds())
	return nil
}

// deletePods deletes a tenant's pods and waits until they are gone, which is when their claims are given back.
func (s *site) deletePods(ctx context.Context, pods ...string) error {
	return s.deletePodsIn(ctx, tenant, pods...)
}

func (s *site) deletePodsIn(ctx context.Context, namespace string, pods ...string) error {
	for _, pod := range pods {
		err := s.client.CoreV1().Pods(namespace).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
		if err != nil {
			return err
		}
	}
	return s.awaitGone(ctx, namespace)
}

// awaitGone waits until a namespace has no pods.
func (s *site) awaitGone(ctx context.Context, namespace string) error {
	return s.until(ctx, "the pods of "+namespace+" are gone", nodeLimit, func(ctx context.Context) error {
		left, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%s is there", left.Items[0].Name)
		}
		return err
	})
}

// vmState is what a sandbox leaves while it lives: of the stand-in, and of Kata's two runtimes.
const vmState = "/run/vm/* /run/vc/sbs/* /run/vc/vm/* /run/kata/*"

// removeShared shows and removes the directories that Kata has shared with VMs. Kata 4.1.0 leaves them behind when its shim is killed, and its
// Rust runtime did once after a physical endpoint: no device is in them, and the kubelet removes what it has mounted there.
const removeShared = `cd /run/kata-containers/shared/sandboxes 2>/dev/null || exit 0
grep "$PWD" /proc/mounts | cut -d' ' -f2
find . -mindepth 1 | head -n 30
for d in *; do
	[ -d "$d" ] || continue
	umount --lazy --recursive "$d"/* 2>/dev/null
	rm -r --one-file-system "$d"
done`

// clear deletes what is left of a case and waits until nothing is held: every function has its driver, and there is no
// VM and no claim's CDI spec.
func (s *site) clear(ctx context.Context) error {
	for _, namespace := range []string{tenant, trusted} {
		for _, kind := range []string{"pods", "resourceclaims", "resourceclaimtemplates"} {
			_, err := s.plane.Kubectl(ctx, "delete", kind, "--all", "--namespace", namespace, "--wait=false", "--grace-period=1")
			if err != nil {
				return err
			}
		}
		if err := s.awaitGone(ctx, namespace); err != nil {
			return err
		}
		// The next case looks at its own.
		if _, err := s.plane.Kubectl(ctx, "delete", "events", "--all", "--namespace", namespace); err != nil {
			return err
		}
	}
	err := s.until(ctx, "nothing is held", nodeLimit, func(ctx context.Context) error {
		left, err := s.output(ctx, "ls -d "+vmState+" 2>/dev/null; pgrep -a 'qemu-system|virtiofsd'; ls /var/run/cdi | grep kata-vfio.dev-vfio; true")
		if err != nil {
			return err
		}
		drivers, err := s.driversNow(ctx)
		if err == nil && (left != "" || drivers != s.drivers) {
			err = fmt.Errorf("left in the machine: %q; the drivers are\n%s\nwant\n%s", left, drivers, s.drivers)
		}
		return err
	})
	shared, sharedErr := s.output(ctx, removeShared)
	if shared != "" {
		s.log("Kata leaves in /run/kata-containers/shared/sandboxes:\n%s", shared)
	}
	return errors.Join(err, sharedErr)
}

// driversNow lists the PCI functions that have a driver, with the driver.
func (s *site) driversNow(ctx context.Context) (string, error) {
	return s.output(ctx, `find /sys/bus/pci/devices/*/driver -printf '%h %l\n' | sed 's#[^ ]*/##g'`)
}

// events are a namespace's, one on a line.
func (s *site) events(ctx context.Context, namespace string) string {
	list, err := s.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	for _, e := range list.Items {
		fmt.Fprintf(&text, "%s/%s %s: %s\n", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
	return text.String()
}

// awaitEvent waits for an event on a pod with a reason and a text.
func (s *site) awaitEvent(ctx context.Context, namespace, pod, reason, text string) error {
	return s.until(ctx, fmt.Sprintf("pod %s has the event %s", pod, reason), vmPodLimit, func(ctx context.Context) error {
		events := s.events(ctx, namespace)
		for line := range strings.SplitSeq(events, "\n") {
			if strings.HasPrefix(line, "Pod/"+pod+" "+reason+":") && strings.Contains(line, text) {
				s.log("%s", line)
				return nil
			}
		}
		return fmt.Errorf("want the text %q; the events are\n%s", text, events)
	})
}

// checkMetrics checks that the plugin is connected to the runtime, and logs where the time went.
func (s *site) checkMetrics(ctx context.Context) error {
	text, err := s.metrics(ctx, "kata_vfio_(nri_connected|(phase|request)_seconds_(sum|count))")
	if err != nil {
		return err
	}
	s.log("the plugin's metrics:\n%s", text)
	if !strings.Contains(text, "kata_vfio_nri_connected 1") {
		return errors.New("the plugin is not connected to the runtime's NRI")
	}
	return nil
}

// output is what a shell command in the machine prints, without the spaces around it.
func (s *site) output(ctx context.Context, script string) (string, error) {
	out, err := s.node.Command(ctx, "sh", "-c", script).Output()
	if err != nil {
		err = fmt.Errorf("in the machine: %s: %w", script, err)
	}
	return strings.TrimSpace(string(out)), err
}

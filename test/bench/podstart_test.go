//go:build e2e

package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// oneGPU is a template for claims of a GPU stand-in that is alone in its group.
const oneGPU = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.kata-vfio.dev, selectors: [
  {cel: {expression: "device.attributes['resource.kubernetes.io'].?pciBusID.orValue('') == '` + topology.GPU0 + `'"}}]}}]}}}
`

// BenchmarkPodStart sets the start of a pod with a claim against that of the same pod without, on a node in the lab
// machine. Neither has a VM: it takes most of the time, and the same. From what the claim adds it takes the kernel's own
// time for the device's two drivers, and says how much slower the machine is than this host.
func BenchmarkPodStart(b *testing.B) {
	s := newStarter(b, node.Config{})
	kernel := s.kernel(b)
	var without, with time.Duration
	runs := 0
	for b.Loop() {
		without += s.start(b, fmt.Sprintf("without-%d", runs), false)
		with += s.start(b, fmt.Sprintf("with-%d", runs), true)
		runs++
	}
	n := time.Duration(runs)
	added := (with - without) / n
	b.ReportMetric(0, "ns/op")
	report := func(d time.Duration, unit string) { b.ReportMetric(float64(d.Milliseconds()), unit) }
	report(without/n, "ms-without")
	report(with/n, "ms-with")
	report(kernel, "ms-kernel")
	report(added-kernel, "ms-added")
	factor := s.factor(b)
	b.ReportMetric(factor, "lab-factor")
	b.ReportMetric(float64((added-kernel).Milliseconds())/factor, "ms-added/factor")
}

// starter starts pods on a node with the plugin.
type starter struct {
	node   *node.Node
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
	// reports is whether pods run in VMs, which they print a report of; printed is the last pod's, after the line's time.
	reports bool
	printed []byte
}

func newStarter(b *testing.B, config node.Config) *starter {
	b.Helper()
	plane, err := controlplane.Start(b.Context(), controlplane.Config{Progress: os.Stderr})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(plane.Stop)
	config.Plane, config.Progress = plane, os.Stderr
	n, err := node.Start(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(n.Stop)
	if err := n.InstallPlugin(b.Context(), "../../deploy/helm/kata-vfio"); err != nil {
		b.Fatal(err)
	}
	if err := n.UseVMs(b.Context(), false); err != nil {
		b.Fatal(err)
	}
	access, err := plane.RESTConfig(controlplane.Admin())
	if err != nil {
		b.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := plane.KubectlInput(b.Context(), strings.NewReader(oneGPU), "apply", "-f", "-"); err != nil {
		b.Fatal(err)
	}
	return &starter{node: n, plane: plane, client: client}
}

// start makes a pod, returns the time until the API server has it as running, and waits until it is gone again.
func (s *starter) start(b *testing.B, name string, claim bool) time.Duration {
	b.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		RuntimeClassName: new(className), AutomountServiceAccountToken: new(false), DNSPolicy: corev1.DNSDefault,
		Containers: []corev1.Container{{Name: "main", Image: node.ShowImage, ImagePullPolicy: corev1.PullNever}},
	}}
	if claim {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpu")}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}
	pods := s.client.CoreV1().Pods(namespace)
	begin := time.Now()
	if _, err := pods.Create(b.Context(), pod, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	poll(b, func(ctx context.Context) (bool, error) {
		got, err := pods.Get(ctx, name, metav1.GetOptions{})
		return err == nil && got.Status.Phase == corev1.PodRunning, err
	})
	took := time.Since(begin)
	if s.reports {
		s.print(b, name)
	}
	if err := pods.Delete(b.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))}); err != nil {
		b.Fatal(err)
	}
	poll(b, func(ctx context.Context) (bool, error) {
		left, err := pods.List(ctx, metav1.ListOptions{})
		return err == nil && len(left.Items) == 0, err
	})
	return took
}

func poll(b *testing.B, done func(context.Context) (bool, error)) {
	b.Helper()
	if err := wait.PollUntilContextTimeout(b.Context(), 20*time.Millisecond, 6*time.Minute, true, done); err != nil {
		b.Fatal(err)
	}
}

// rebind gives a function to vfio-pci as the plugin does, without any look at the outcome, prints the microseconds that
// took, and gives it back.
const rebind = `cd /sys/bus/pci/devices/$0 || exit
was=$(basename "$(readlink driver)")
begin=$EPOCHREALTIME
echo vfio-pci >driver_override
echo "$0" >driver/unbind
echo "$0" >/sys/bus/pci/drivers_probe
end=$EPOCHREALTIME
echo $((${end/./} - ${begin/./}))
echo >driver_override
echo "$0" >driver/unbind
echo "$0" >/sys/bus/pci/drivers_probe
[ "$was" = "$(basename "$(readlink driver)")" ]`

// kernel is the kernel's own time for a device's way to its VFIO driver.
func (s *starter) kernel(b *testing.B) time.Duration {
	b.Helper()
	const times = 3
	var sum int
	for range times {
		out, err := s.node.Command(b.Context(), "bash", "-c", rebind, topology.GPU0).Output()
		if err != nil {
			b.Fatal(err)
		}
		microseconds, err := strconv.Atoi(strings.TrimSpace(string(out)))
		if err != nil {
			b.Fatal(err)
		}
		sum += microseconds
	}
	return time.Duration(sum/times) * time.Microsecond
}

// count is work for a processor alone.
const count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"

// factor is how much longer the machine takes to count than this host.
func (s *starter) factor(b *testing.B) float64 {
	b.Helper()
	begin := time.Now()
	if err := exec.CommandContext(b.Context(), "sh", "-c", count).Run(); err != nil {
		b.Fatal(err)
	}
	host := time.Since(begin)
	begin = time.Now()
	if err := s.node.Command(b.Context(), "sh", "-c", count).Run(); err != nil {
		b.Fatal(err)
	}
	return float64(time.Since(begin)) / float64(host)
}

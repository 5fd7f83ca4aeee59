//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// templates are for a claim of the GPU stand-in that is alone in its group, and for one of any VF.
const templates = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.kata-vfio.dev, selectors: [` + isGPU0 + `]}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: vf}
spec: {spec: {devices: {requests: [{name: vf, exactly: {deviceClassName: vf.kata-vfio.dev}}]}}}
`

// directClaim is one for that GPU that outlives its pods.
const directClaim = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: direct}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.kata-vfio.dev, selectors: [` + isGPU0 + `]}}]}}
`

const isGPU0 = `{cel: {expression: "device.attributes['resource.kubernetes.io'].?pciBusID.orValue('') == '` + topology.GPU0 + `'"}}`

// Entries of a pod's resourceClaims.
const (
	gpuOfTemplate = "{name: gpu, resourceClaimTemplateName: gpu}"
	vfOfTemplate  = "{name: vf, resourceClaimTemplateName: vf}"
	gpuDirect     = "{name: gpu, resourceClaimName: direct}"
)

// vmPod is a pod in a VM that prints what the VM sees, with the claims of both its container and its VM.
func vmPod(name string, claims ...string) string {
	var uses []string
	for _, c := range claims {
		one, _, _ := strings.Cut(c, ",")
		uses = append(uses, one+"}")
	}
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  runtimeClassName: kata-gpu
  automountServiceAccountToken: false
  dnsPolicy: Default
  resourceClaims: [%s]
  containers:
  - {name: main, image: %q, imagePullPolicy: Never, resources: {claims: [%s]}}
`, name, strings.Join(claims, ", "), node.ShowImage, strings.Join(uses, ", "))
}

func publishesGPU(ctx context.Context, s *site) error {
	return s.until(ctx, "the GPU is in a ResourceSlice", nodeLimit, func(ctx context.Context) error {
		devices, err := s.published(ctx)
		if err != nil {
			return err
		}
		for _, d := range devices {
			if id := d.Attributes["resource.kubernetes.io/pciBusID"].StringValue; id != nil && *id == topology.GPU0 {
				return nil
			}
		}
		return fmt.Errorf("%d devices, and it is none of them", len(devices))
	})
}

// published are the devices of the node's ResourceSlices.
func (s *site) published(ctx context.Context) ([]resourcev1.Device, error) {
	list, err := s.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{
		FieldSelector: "spec.driver=kata-vfio.dev,spec.nodeName=" + s.node.Name(),
	})
	if err != nil {
		return nil, err
	}
	var devices []resourcev1.Device
	for _, slice := range list.Items {
		devices = append(devices, slice.Spec.Devices...)
	}
	return devices, nil
}

// podHasGPU looks at everything that a pod with a device shows: its VM, its claim, the node.
func podHasGPU(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, templates+vmPod("one", gpuOfTemplate)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "one"); err != nil {
		return err
	}
	report, err := s.checkVM(ctx, "one")
	if err != nil {
		return err
	}
	display := slices.IndexFunc(report.Functions, func(f protocol.Function) bool {
		return f.Vendor == "1234" && f.Device == "1111" && f.Class == "038000" && f.Driver == "bochs-drm"
	})
	if display < 0 || len(report.Displays) != 1 || report.Displays[0].Address != report.Functions[display].Address {
		return fmt.Errorf("the VM has no working display: %+v", report)
	}
	if err := errors.Join(s.checkMetrics(ctx), s.checkMetadata(ctx, "one", topology.GPU0)); err != nil {
		return err
	}
	if now, err := s.driversNow(ctx); err != nil || !strings.Contains(now, topology.GPU0+" vfio-pci") {
		return fmt.Errorf("the drivers while the pod runs are (%w)\n%s", err, now)
	}
	return errors.Join(s.logVMsCost(ctx), s.deletePods(ctx, "one"))
}

// plainPodHasVM: a pod of the RuntimeClass has a VM without any claim, and the VM has none of the node's devices.
func plainPodHasVM(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, vmPod("plain")); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "plain"); err != nil {
		return err
	}
	report, err := s.report(ctx, "plain")
	if err == nil && (report.Uptime == 0 || slices.ContainsFunc(report.Functions, isDisplay) || len(report.Interfaces) > 0) {
		err = fmt.Errorf("want a VM without a device, it sees %+v", *report)
	}
	drivers, driversErr := s.driversNow(ctx)
	if drivers != s.drivers {
		err = errors.Join(err, fmt.Errorf("the drivers while the pod runs are\n%s", drivers))
	}
	return errors.Join(err, driversErr, s.deletePods(ctx, "plain"))
}

// gpuWithCompanion claims the GPU stand-in whose card has an audio function, by the default parameters.
const gpuWithCompanion = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: direct}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.kata-vfio.dev, selectors: [` +
	`{cel: {expression: "device.attributes['resource.kubernetes.io'].?pciBusID.orValue('') == '` + topology.GPU1 + `'"}}]}}]}}
`

// companionStaysOut: the VM has a GPU that works and not its companion, which nobody else on the node has either.
func companionStaysOut(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, gpuWithCompanion+vmPod("alone", gpuDirect)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "alone"); err != nil {
		return err
	}
	report, err := s.checkVM(ctx, "alone")
	if err == nil {
		err = hasDisplay(report)
	}
	if err == nil && slices.ContainsFunc(report.Functions, isAudio) {
		err = fmt.Errorf("want no audio function, the VM sees %+v", report.Functions)
	}
	now, driversErr := s.driversNow(ctx)
	if driversErr == nil && !strings.Contains(now, topology.GPU1Audio+" vfio-pci") {
		err = errors.Join(err, fmt.Errorf("want vfio-pci for %s, the drivers while the pod runs are\n%s", topology.GPU1Audio, now))
	}
	return errors.Join(err, driversErr, s.deletePods(ctx, "alone"))
}

func isAudio(f protocol.Function) bool { return strings.HasPrefix(f.Class, "0403") }

// logVMsCost logs what real Kata's only VM is charged with: guest, VMM, shim and file system daemon.
func (s *site) logVMsCost(ctx context.Context) error {
	if s.kata == nil {
		return nil
	}
	used, err := s.output(ctx, "for p in $(pgrep 'qemu-system|virtiofsd|containerd-shim'); do "+
		"echo $p $(cat /proc/$p/comm /proc/$p/cgroup) $(grep -E 'RssAnon|RssFile|RssShmem' /proc/$p/status); done")
	s.log("the processes of VMs, and of other shims, have in memory:\n%s", used)
	return err
}

func podHasTwoClaims(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, templates+vmPod("two", gpuOfTemplate, vfOfTemplate)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "two"); err != nil {
		return err
	}
	report, err := s.checkVM(ctx, "two")
	if err == nil && (len(report.Displays) != 1 || len(report.Interfaces) != 1 || report.Interfaces[0].Driver != "igbvf") {
		err = fmt.Errorf("want a display and a network interface that work, the VM sees %+v", report)
	}
	return errors.Join(err, s.deletePods(ctx, "two"))
}

// checkVM checks that a pod's VM, by the pod's log, has what the status of the pod's claims tells, and returns what it
// sees.
func (s *site) checkVM(ctx context.Context, pod string) (*protocol.Report, error) {
	report, err := s.report(ctx, pod)
	if err != nil {
		return nil, err
	}
	held, err := s.held(ctx, pod)
	if err != nil {
		return nil, err
	}
	seen := map[string]int{}
	for _, f := range report.Functions {
		seen["0x"+f.Vendor+" 0x"+f.Device]++
	}
	for _, address := range held {
		at := "/sys/bus/pci/devices/" + address
		identity, err := s.output(ctx, "echo $(cat "+at+"/vendor "+at+"/device)")
		if err != nil {
			return nil, err
		}
		if seen[identity]--; seen[identity] < 0 {
			return nil, fmt.Errorf("the VM of %s lacks %s (%s): it sees %+v", pod, address, identity, report.Functions)
		}
	}
	s.log("the VM of %s has %v and sees %+v", pod, held, *report)
	return report, nil
}

// report is what a pod with one container has printed.
func (s *site) report(ctx context.Context, pod string) (*protocol.Report, error) {
	return s.reportOf(ctx, pod, "")
}

// readReport is what a container of a pod has printed.
func (s *site) reportOf(ctx context.Context, pod, container string) (*protocol.Report, error) {
	report := &protocol.Report{}
	err := s.until(ctx, "the log has the VM's report", nodeLimit, func(ctx context.Context) error {
		text, err := s.client.CoreV1().Pods(tenant).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, report)
	})
	// Every VM of Kata has one for the pod's own network.
	report.Interfaces = slices.DeleteFunc(report.Interfaces, func(i protocol.Interface) bool { return i.Driver == "virtio_net" })
	return report, err
}

// held are the functions that a pod's claims have, by the claims' status. Every device must be ready and isolated.
func (s *site) held(ctx context.Context, pod string) ([]string, error) {
	got, err := s.client.CoreV1().Pods(tenant).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range got.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			names = append(names, *c.ResourceClaimName)
		}
	}
	for _, status := range got.Status.ResourceClaimStatuses {
		names = append(names, *status.ResourceClaimName)
	}
	if extended := got.Status.ExtendedResourceClaimStatus; extended != nil {
		names = append(names, extended.ResourceClaimName)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("pod %s has no claims: %+v", pod, got.Status)
	}
	var held []string
	for _, name := range names {
		functions, err := s.functions(ctx, name)
		if err != nil {
			return nil, err
		}
		held = append(held, functions...)
	}
	return held, nil
}

// functions waits for a claim's status, which follows a moment after its devices, and returns what it has.
func (s *site) functions(ctx context.Context, claim string) ([]string, error) {
	var all []string
	err := s.until(ctx, "the claim says that its devices are ready", nodeLimit, func(ctx context.Context) error {
		got, err := s.client.ResourceV1().ResourceClaims(tenant).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got.Status.Allocation == nil || len(got.Status.Devices) != len(got.Status.Allocation.Devices.Results) {
			return fmt.Errorf("the claim's status is %+v", got.Status)
		}
		all = nil
		for _, d := range got.Status.Devices {
			functions, err := readyFunctions(d)
			if err != nil {
				return err
			}
			all = append(all, functions...)
		}
		return nil
	})
	return all, err
}

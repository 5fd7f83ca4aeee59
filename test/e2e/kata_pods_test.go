//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// driverless is a claim of a GPU for which the lab's guests have no driver.
const driverless = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: direct}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.kata-vfio.dev, selectors: [` +
	`{cel: {expression: "device.attributes['resource.kubernetes.io'].?pciBusID.orValue('') == '` + topology.GPU2 + `'"}}]}}]}}
`

// guestLacksTheDriver: the VM of a guest without a driver has the device all the same, and the pod runs.
func guestLacksTheDriver(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, driverless+vmPod("driverless", gpuDirect)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "driverless"); err != nil {
		return err
	}
	report, err := s.checkVM(ctx, "driverless")
	if err == nil && !slices.ContainsFunc(report.Functions, func(f protocol.Function) bool { return f.Vendor == "1002" && f.Driver == "" }) {
		err = fmt.Errorf("want a GPU without a driver, the VM sees %+v", report.Functions)
	}
	return errors.Join(err, s.deletePods(ctx, "driverless"))
}

// guestWritesNoCDI: by what the Rust runtime asks of the guest for the GPU's vendor, the agent waits for a CDI specification, and the container fails
// where there is none. The VM has the device, which comes back.
func guestWritesNoCDI(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, driverless+vmPod("driverless", gpuDirect)); err != nil {
		return err
	}
	err := s.awaitEvent(ctx, tenant, "driverless", "Failed", "failed to inject devices after CDI timeout")
	return errors.Join(err, s.deletePods(ctx, "driverless"))
}

// onePort is a Kata with one root port for devices, and manyFunctions are more than that.
const (
	onePort       = "[hypervisor.qemu]\npcie_root_port = 1\n"
	manyFunctions = 3
)

// moreDevicesThanPorts gives one VM more functions than the configuration has root ports: Kata makes more of them.
func moreDevicesThanPorts(ctx context.Context, s *site) error {
	claim := fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: direct}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: vf.kata-vfio.dev, allocationMode: ExactCount, count: %d}}]}}
`, manyFunctions)
	return s.withKataConfig(ctx, onePort, func(ctx context.Context, s *site) error {
		if err := s.apply(ctx, tenant, claim+vmPod("many", gpuDirect)); err != nil {
			return err
		}
		if err := s.awaitRunning(ctx, vmPodLimit, "many"); err != nil {
			return err
		}
		report, err := s.checkVM(ctx, "many")
		if err == nil && len(report.Interfaces) != manyFunctions {
			err = fmt.Errorf("want %d network interfaces, the VM sees %+v", manyFunctions, report.Interfaces)
		}
		return errors.Join(err, s.deletePods(ctx, "many"))
	})
}

// withCompanions asks for a GPU and for the audio function that shares its IOMMU group.
const withCompanions = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: direct}
spec:
  devices:
    requests: [{name: gpu, exactly: {deviceClassName: gpu.kata-vfio.dev, selectors: [` +
	`{cel: {expression: "device.attributes['resource.kubernetes.io'].?pciBusID.orValue('') == '` + topology.GPU1 + `'"}}]}}]
    config:
    - opaque: {driver: kata-vfio.dev, parameters: {apiVersion: resource.kata-vfio.dev/v1alpha1, kind: VFIOConfig, companions: Give}}
`

// companionsAreRefused: no VM boots for what Kata can't plug into it. Without iommufd the parameter itself is refused.
func companionsAreRefused(ctx context.Context, s *site) error {
	reason, err := s.output(ctx, "if [ -e /dev/iommu ]; then echo SeveralOfIOMMUGroup; else echo BackendUnavailable; fi")
	if err != nil {
		return err
	}
	if err := s.apply(ctx, tenant, withCompanions+vmPod("both", gpuDirect)); err != nil {
		return err
	}
	err = s.awaitEvent(ctx, tenant, "both", reason, "companions: Give")
	return errors.Join(err, s.neverStarted(ctx, attack{name: "both", namespace: tenant}), s.deletePods(ctx, "both"))
}

// killShim is the shell command that kills Kata's shim and nothing else.
const killShim = "pkill -KILL -f '[c]ontainerd-shim-kata-v2'"

// shimDies: containerd has the Go runtime end the VM of a shim that was killed, in the time that our fragment gives, and the pod's next VM gets the
// device.
func shimDies(ctx context.Context, s *site) error { return s.diesAndComesBack(ctx, killShim) }

// shimLeavesItsVM: the Rust runtime leaves the VM of a shim that was killed running. Its device goes to nobody, and the claim's event says which process
// to end; then the pod's next VM gets it.
func shimLeavesItsVM(ctx context.Context, s *site) error {
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
	vmm, err := s.output(ctx, "pgrep qemu-system && "+killShim)
	if err != nil {
		return err
	}
	err = s.until(ctx, "an event names the VM's process", vmPodLimit, func(ctx context.Context) error {
		if events := s.events(ctx, tenant); !strings.Contains(events, "whose shim no longer runs") || !strings.Contains(events, "`kill -9 "+vmm+"`") {
			return fmt.Errorf("want process %s, the events are\n%s", vmm, events)
		}
		_, err := s.output(ctx, "test -d /proc/"+vmm)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := s.output(ctx, "kill -9 "+vmm); err != nil {
		return err
	}
	return errors.Join(s.awaitNewVM(ctx, "crash", before), s.deletePods(ctx, "crash"))
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// mixedClaim is for all that a VM may have at once: a GPU, a VF, and two VFs that are interfaces of the pod.
const mixedClaim = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: direct}
spec:
  devices:
    requests:
    - {name: gpu, exactly: {deviceClassName: gpu.kata-vfio.dev, selectors: [` + isGPU0 + `]}}
    - {name: vf, exactly: {deviceClassName: vf.kata-vfio.dev}}
    - {name: net1, exactly: {deviceClassName: vf.kata-vfio.dev}}
    - {name: net2, exactly: {deviceClassName: vf.kata-vfio.dev}}
    config:
    - requests: [net1]
      opaque: {driver: kata-vfio.dev, parameters: {apiVersion: resource.kata-vfio.dev/v1alpha1, kind: VFConfig,
        attachment: PhysicalEndpoint, network: {interface: net1, addresses: [` + endpointAddress + `/24]}}}
    - requests: [net2]
      opaque: {driver: kata-vfio.dev, parameters: {apiVersion: resource.kata-vfio.dev/v1alpha1, kind: VFConfig,
        attachment: PhysicalEndpoint, network: {interface: net2, addresses: [` + otherAddress + `/24]}}}
`

const otherAddress = "203.0.113.10"

// vmHasAllKinds: a VM has devices of both kinds, and two endpoints. Of two, Kata leaves one behind without its driver when the pod
// ends; the plugin takes both back.
func vmHasAllKinds(ctx context.Context, s *site) error {
	_, err := s.output(ctx, "for pf in "+topology.PF0+" "+topology.PF1+"; do ip link set $(ls /sys/bus/pci/devices/$pf/net) up; done")
	if err != nil {
		return err
	}
	if err := s.apply(ctx, tenant, mixedClaim+vmPod("everything", gpuDirect)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "everything"); err != nil {
		return err
	}
	report, err := s.checkVM(ctx, "everything")
	if err == nil && (len(report.Displays) != 1 || len(report.Interfaces) != 3) {
		err = fmt.Errorf("want a display and three interfaces, the VM sees %+v", *report)
	}
	for _, address := range []string{endpointAddress + "/24", otherAddress + "/24"} {
		if err == nil && !slices.ContainsFunc(report.Interfaces, func(i protocol.Interface) bool { return slices.Contains(i.Addresses, address) }) {
			err = fmt.Errorf("want an interface with %s, the VM sees %+v", address, report.Interfaces)
		}
	}
	return errors.Join(err, s.deletePods(ctx, "everything"))
}

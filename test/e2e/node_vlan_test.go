//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// inVLAN is a tenant's class of VFs in a VLAN, and a claim of one of the first PF's by it, as an interface of the pod.
const inVLAN = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: vlan-100.example.com, annotations: {kata-vfio.dev/namespaces: ` + tenant + `}}
spec:
  selectors: [{cel: {expression: "device.driver == 'kata-vfio.dev' && device.attributes['kata-vfio.dev'].?type.orValue('') == 'vf'"}}]
  config: [{opaque: {driver: kata-vfio.dev, parameters: {apiVersion: resource.kata-vfio.dev/v1alpha1, kind: VFConfig, vlan: 100}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: direct}
spec:
  devices:
    requests:
    - name: vf
      exactly:
        deviceClassName: vlan-100.example.com
        selectors: [{cel: {expression: "device.attributes['resource.kubernetes.io'].?pciBusID.orValue('').startsWith('0000:21:1')"}}]
    config:
    - opaque:
        driver: kata-vfio.dev
        parameters:
          apiVersion: resource.kata-vfio.dev/v1alpha1
          kind: VFConfig
          attachment: PhysicalEndpoint
          network: {interface: net1, addresses: [` + endpointAddress + `/24]}
`

// The neighbor is at the other end of the first PF's wire: the second PF, with an interface in the VLAN.
const (
	neighbor = "neighbor"
	otherPF  = "$(ls /sys/bus/pci/devices/" + topology.PF1 + "/net | grep -v " + neighbor + ")"
)

// vfReachesItsVLAN: the VM reaches a neighbor in its VLAN by untagged frames, and nobody outside of it.
func vfReachesItsVLAN(ctx context.Context, s *site) error {
	_, err := s.output(ctx, "for pf in "+topology.PF0+" "+topology.PF1+"; do ip link set $(ls /sys/bus/pci/devices/$pf/net) up; done; "+
		"ip link add link "+otherPF+" name "+neighbor+" type vlan id 100; ip link set "+neighbor+" up; ip address replace "+nodeAddress+"/24 dev "+neighbor)
	if err != nil {
		return err
	}
	err = s.talksInVLAN(ctx)
	_, undoErr := s.output(context.WithoutCancel(ctx), "ip link del "+neighbor+"; ip address flush dev "+otherPF)
	_, deleteErr := s.plane.Kubectl(context.WithoutCancel(ctx), "delete", "deviceclass", "vlan-100.example.com", "--ignore-not-found")
	return errors.Join(err, undoErr, deleteErr)
}

func (s *site) talksInVLAN(ctx context.Context) error {
	if err := s.apply(ctx, tenant, inVLAN+vmPod("tagged", gpuDirect)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "tagged"); err != nil {
		return err
	}
	report, err := s.checkVM(ctx, "tagged")
	if err != nil {
		return err
	}
	if len(report.Interfaces) != 1 || !slices.Contains(report.Interfaces[0].Addresses, endpointAddress+"/24") {
		return fmt.Errorf("want an interface with %s, the VM sees %+v", endpointAddress, report.Interfaces)
	}
	if out, err := s.output(ctx, "ping -c 3 -W 10 "+endpointAddress); err != nil {
		return fmt.Errorf("ping the VM in its VLAN: %w: %s", err, out)
	}
	out, err := s.output(ctx, "ip address flush dev "+neighbor+"; ip address replace "+nodeAddress+"/24 dev "+otherPF+"; ping -c 2 -W 3 "+endpointAddress)
	if err == nil {
		return fmt.Errorf("the VM answers outside of its VLAN: %s", out)
	}
	return s.deletePods(ctx, "tagged")
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// endpointAddress is the tenant's, nodeAddress the other end's on the PF.
const (
	endpointAddress = "10.9.8.30"
	nodeAddress     = "10.9.8.20"
)

// endpointTemplate is for a VF of PF0 that Kata takes from the pod's network namespace.
const endpointTemplate = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: vf}
spec:
  spec:
    devices:
      requests:
      - name: vf
        exactly:
          deviceClassName: vf.kata-vfio.dev
          selectors: [{cel: {expression: "device.attributes['kata-vfio.dev'].?pf.orValue('') == '` + topology.PF0 + `'"}}]
      config:
      - requests: [vf]
        opaque:
          driver: kata-vfio.dev
          parameters:
            apiVersion: resource.kata-vfio.dev/v1alpha1
            kind: VFConfig
            attachment: PhysicalEndpoint
            network: {interface: net1, addresses: [` + endpointAddress + `/24]}
`

// podHasPhysicalEndpoint: a VF reaches the pod's VM by the pod's network namespace, with its address.
func podHasPhysicalEndpoint(ctx context.Context, s *site) error {
	pf, err := s.output(ctx, "ls /sys/bus/pci/devices/"+topology.PF0+"/net")
	if err != nil {
		return err
	}
	pf = strings.TrimSpace(pf)
	if _, err := s.output(ctx, "ip link set "+pf+" up; ip address replace "+nodeAddress+"/24 dev "+pf); err != nil {
		return err
	}
	err = s.podReached(ctx)
	_, flushErr := s.output(context.WithoutCancel(ctx), "ip address flush dev "+pf)
	return errors.Join(err, flushErr)
}

func (s *site) podReached(ctx context.Context) error {
	if err := s.apply(ctx, tenant, endpointTemplate+vmPod("endpoint", vfOfTemplate)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "endpoint"); err != nil {
		return err
	}
	report, err := s.checkVM(ctx, "endpoint")
	if err != nil {
		return err
	}
	if len(report.Interfaces) != 1 || !slices.Contains(report.Interfaces[0].Addresses, endpointAddress+"/24") {
		return fmt.Errorf("want an interface with %s, the VM sees %+v", endpointAddress, report.Interfaces)
	}
	network, err := s.networkData(ctx)
	if err != nil {
		return err
	}
	if network.HardwareAddress != report.Interfaces[0].MAC || network.InterfaceName != "net1" || !slices.Equal(network.IPs, []string{endpointAddress + "/24"}) {
		return fmt.Errorf("the claim says %+v, the VM sees %+v", network, report.Interfaces)
	}
	if out, err := s.output(ctx, "ping -c 3 -W 10 "+endpointAddress); err != nil {
		return fmt.Errorf("ping the VM: %w: %s", err, out)
	}
	return s.deletePods(ctx, "endpoint")
}

// networkData is that of the tenant's only claim with a device.
func (s *site) networkData(ctx context.Context) (*resourceapi.NetworkDeviceData, error) {
	claims, err := s.client.ResourceV1().ResourceClaims(tenant).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range claims.Items {
		for _, d := range claims.Items[i].Status.Devices {
			if d.NetworkData != nil {
				return d.NetworkData, nil
			}
		}
	}
	return nil, fmt.Errorf("none of %d claims has network data", len(claims.Items))
}

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

// networkPod is the example's pod and endpointAddress its address, nodeAddress the other end's on a PF.
const (
	networkPod      = "gpu-and-vf-network"
	endpointAddress = "192.0.2.10"
	nodeAddress     = "192.0.2.1"
)

// podHasPhysicalEndpoint: a VF reaches the pod's VM by the pod's network namespace, with its address, beside a GPU of the same root.
func podHasPhysicalEndpoint(ctx context.Context, s *site) error {
	text, err := example(networkPod)
	if err != nil {
		return err
	}
	if s.kata != nil {
		text = strings.ReplaceAll(text, "cpu: 50m", "cpu: 600m") // the limit holds for its QEMU, too
	}
	// The PFs are on one segment.
	_, err = s.output(ctx, "for pf in "+topology.PF0+" "+topology.PF1+"; do ip link set $(ls /sys/bus/pci/devices/$pf/net) up; done; "+
		"ip address replace "+nodeAddress+"/24 dev $(ls /sys/bus/pci/devices/"+topology.PF0+"/net)")
	if err != nil {
		return err
	}
	err = s.podReached(ctx, text)
	_, flushErr := s.output(context.WithoutCancel(ctx), "ip address flush dev $(ls /sys/bus/pci/devices/"+topology.PF0+"/net)")
	return errors.Join(err, flushErr)
}

func (s *site) podReached(ctx context.Context, text string) error {
	if err := s.apply(ctx, tenant, text); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, networkPod); err != nil {
		return err
	}
	report, err := s.checkVM(ctx, networkPod)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(report.Functions, isDisplay) {
		return fmt.Errorf("want a GPU, the VM sees %+v", report.Functions)
	}
	held, err := s.held(ctx, networkPod)
	if err != nil {
		return err
	}
	if err := s.checkSameRoot(ctx, held); err != nil {
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
	return s.deletePods(ctx, networkPod)
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

package main

import (
	"bytes"
	"context"
	"os"

	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// networkPod is the pod of the example with a GPU and a virtual function, and networkAddress its address.
const (
	networkPod     = "gpu-and-vf-network"
	networkAddress = "192.0.2.10"
)

// network runs a pod that has a GPU and a NIC's virtual function with an address, and reaches it over the network.
func (s *story) network(ctx context.Context) error {
	s.title("A GPU and a NIC's virtual function of one PCIe root in one pod, with an address: " + s.networked)
	text, err := os.ReadFile(s.networked)
	if err != nil {
		return err
	}
	s.say("$ cat %s\n%s", s.networked, bytes.TrimSpace(text))
	if err := s.node.UseVMs(ctx, true); err != nil {
		return err
	}
	if err := s.applyExample(ctx, s.networked, networkPod); err != nil {
		return err
	}
	if err := s.showLog(ctx, networkPod); err != nil {
		return err
	}
	if err := s.show(ctx, "get", "resourceclaims", "--namespace", "team-a", "-o", networkView); err != nil {
		return err
	}
	s.say("(the other end is a PF of the node on the same segment)")
	netdev := "$(ls /sys/bus/pci/devices/" + topology.PF1 + "/net)"
	if err := s.onNode(ctx, 0, "ip link set "+netdev+" up && ip address replace 192.0.2.1/24 dev "+netdev); err != nil {
		return err
	}
	if err := s.onNode(ctx, 0, "ping -c 3 -W 10 "+networkAddress); err != nil {
		return err
	}
	return s.show(ctx, "delete", "pod", networkPod, "--namespace", "team-a", "--grace-period=1")
}

// networkView is what the claim says of the interface.
const networkView = `jsonpath={range .items[*].status.devices[*]}{.device}{"\t"}{.networkData.interfaceName}{"\t"}` +
	`{.networkData.ips}{"\t"}{.networkData.hardwareAddress}{"\n"}{end}`

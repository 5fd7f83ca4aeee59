package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	s.say("(the node's network: its PFs are on one segment, and one of them is the other end)")
	if err := s.onNode(ctx, 0, nodeNetwork); err != nil {
		return err
	}
	if err := errors.Join(s.node.UseVMs(ctx, true), s.applyExample(ctx, s.networked, networkPod)); err != nil {
		return err
	}
	if err := s.isSanitized(ctx); err != nil {
		return err
	}
	if err := s.showLog(ctx, networkPod); err != nil {
		return err
	}
	if err := s.show(ctx, "get", "resourceclaims", "--namespace", "team-a", "-o", networkView); err != nil {
		return err
	}
	return s.onNode(ctx, 0, "ping -c 3 -W 10 "+networkAddress)
}

// isSanitized shows that the pod finds nothing in its GPU's memory, and by whose work.
func (s *story) isSanitized(ctx context.Context) error {
	s.say("(its GPU is the one that team-b had, after the sanitizing stage)")
	if err := s.inMemory(ctx, "team-a", networkPod, zeros, "read"); err != nil {
		return fmt.Errorf("after a sanitizing stage: %w", err)
	}
	history, err := s.history(ctx)
	if err == nil {
		err = s.namesImage(history)
	}
	return err
}

// nodeNetwork sets the node's interfaces up.
const nodeNetwork = "for pf in " + topology.PF0 + " " + topology.PF1 + "; do ip link set $(ls /sys/bus/pci/devices/$pf/net) up; done; " +
	"ip address replace 192.0.2.1/24 dev $(ls /sys/bus/pci/devices/" + topology.PF0 + "/net)"

// networkView is what the claim says of the interface.
const networkView = `jsonpath={range .items[*].status.devices[*]}{.device}{"\t"}{.networkData.interfaceName}{"\t"}` +
	`{.networkData.ips}{"\t"}{.networkData.hardwareAddress}{"\n"}{end}`

package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// Lease is how a VF's addresses are taken from a pool of the node's config and
// given back: all that the pool's CNI IPAM plugin is told. It is told the same
// when they are given back, whatever the node's config says by then.
type Lease struct {
	// Pool is the pool's name.
	Pool string `json:"pool"`
	// Plugin is the name of the plugin's binary.
	Plugin string `json:"plugin"`
	// Config is the CNI network configuration that the plugin reads.
	Config json.RawMessage `json:"config"`
	// Container (CNI_CONTAINERID) and Interface (CNI_IFNAME) are what the plugin
	// knows the lease by.
	Container string `json:"container"`
	Interface string `json:"interface"`
	// Args are for the plugin to show or to check (CNI_ARGS): the first pod.
	Args string `json:"args"`
}

// anyInterface is the interface's name for the plugin where class and claim
// name none: the guest's kernel chooses it later. The container's ID tells the
// devices of a claim apart.
const anyInterface = "vf"

// pooled finds the pool that a VF's addresses come from.
func (c *candidate) pooled() *Refusal {
	if c.claimed.VF == nil || c.claimed.VF.Network == nil || c.claimed.VF.Network.AddressPool == "" {
		return nil
	}
	name := c.claimed.VF.Network.AddressPool
	i := slices.IndexFunc(c.node.AddressPools, func(a v1alpha1.AddressPool) bool { return a.Name == name })
	if i < 0 {
		return &Refusal{
			Code: NoAddressPool,
			Text: fmt.Sprintf("its addresses are to come from pool %s, and this node's config %s", name, poolsOf(c.node.AddressPools)),
			Fix:  "add the pool to addressPools of the node config, or correct network.addressPool in the DeviceClass",
		}
	}
	pool := &c.node.AddressPools[i]
	config, err := pool.NetworkConfig()
	if err != nil {
		return &Refusal{Code: NoAddressPool, Text: err.Error(), Fix: "correct addressPools of the node config"}
	}
	container := c.ref.UID + "-" + c.claimed.Name
	c.lease = &Lease{
		Pool: name, Plugin: pool.Plugin(), Config: config, Container: container,
		Interface: cmp.Or(c.claimed.VF.Network.Interface, anyInterface), Args: leaseArgs(c.ref, container),
	}
	return nil
}

// poolsOf says which pools there are.
func poolsOf(pools []v1alpha1.AddressPool) string {
	if len(pools) == 0 {
		return "has no addressPools"
	}
	names := make([]string, len(pools))
	for i := range pools {
		names[i] = pools[i].Name
	}
	return "has " + strings.Join(names, ", ")
}

// leaseArgs are CNI_ARGS as container runtimes set them. What could be taken for
// further ones is left out; the API server lets no such name through.
func leaseArgs(claim Ref, container string) string {
	args := "IgnoreUnknown=1"
	add := func(key, value string) {
		if value != "" && !strings.ContainsAny(value, ";=") {
			args += ";" + key + "=" + value
		}
	}
	if len(claim.Pods) > 0 {
		add("K8S_POD_NAMESPACE", claim.Namespace)
		add("K8S_POD_NAME", claim.Pods[0].Name)
		add("K8S_POD_UID", claim.Pods[0].UID)
	}
	add("K8S_POD_INFRA_CONTAINER_ID", container)
	return args
}

// LeaseStep returns the step in which addresses of d, which has a lease, are
// taken or returned.
func (d *Device) LeaseStep(op Op) Step {
	return Step{Operation: op, Address: d.Address, Value: d.Lease.Pool}
}

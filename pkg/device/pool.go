package device

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// The names of a node's pools begin with the node's name and the DRA driver's:
//
//	worker-1/kata-vfio.dev                   GPUs, and functions without SR-IOV
//	worker-1/kata-vfio.dev/pf-0000-3b-00-0   a PF and its VFs
//	worker-1/kata-vfio.dev/shared            devices that another DRA driver publishes too
//
// Up to Kubernetes 1.36.3, the scheduler finds counter sets by the name of the pool alone (Kubernetes issue 140434).
// Many drivers name their pool after the node, so kata-vfio's pools also have the name of its driver. The driver's name
// follows the node's: the chart's admission policies, and those of earlier versions, let a plugin write and delete only
// slices whose pool begins with the name of its node.
//
// Earlier versions published in pools without the driver's name: worker-1, worker-1/pf-0000-3b-00-0, worker-1/shared. Claims that were
// allocated from them keep these names. A node's name has no "/", as it is a DNS subdomain.
const (
	driverPool = "/kata-vfio.dev"
	pfPool     = "/pf-"
	sharedPool = "/shared"
)

// maxPoolName is the limit of the API for a pool's name (resource/v1, PoolNameMaxLength), and longestLabel is the longest label of a
// PF: a PCI domain has up to eight digits.
const (
	maxPoolName  = 253
	longestLabel = "00000000-00-00-0"
)

// CheckNodeName refuses a node's name that is too long for the names of its pools. The name is not shortened in them,
// because controller, audit and admission policies read the node from the pool's name. The kubelet registers no node
// whose name is longer than 63 characters, because a label of the node has the name as its value
// (kubernetes.io/hostname).
func CheckNodeName(node string) error {
	if most := maxPoolName - len(driverPool+pfPool+longestLabel); len(node) > most {
		return fmt.Errorf("node name %s has %d characters, and names of ResourceSlice pools have room for %d of it: register the node under a shorter name (kubelet: --hostname-override)",
			node, len(node), most)
	}
	return nil
}

// NodePool returns the name of the pool in which a node publishes its GPUs. The names of the node's other pools begin
// with it. It is empty for an unknown node.
func NodePool(node string) string {
	if node == "" {
		return ""
	}
	return node + driverPool
}

// SharedPool returns the name of the pool in which a node publishes the devices that it shares with another DRA driver.
// They have a pool of their own because the scheduler waits for conditions before it binds a pod with such a device.
func SharedPool(node string) string { return NodePool(node) + sharedPool }

// CurrentPool returns the present name of a pool: with the driver's name for a pool with a former name, unchanged for any
// other.
func CurrentPool(pool string) string {
	if n, ok := parsePool(pool); ok && n.former {
		return n.node + driverPool + n.rest
	}
	return pool
}

// FormerPool is the inverse of [CurrentPool].
func FormerPool(pool string) string {
	if n, ok := parsePool(pool); ok {
		return n.node + n.rest
	}
	return pool
}

// IsFormerPool reports whether earlier versions used the name for a pool.
func IsFormerPool(pool string) bool { return CurrentPool(pool) != pool }

// NodeOfSharedPool returns the node whose shared devices are in the pool, and false for another pool.
func NodeOfSharedPool(pool string) (string, bool) {
	n, ok := parsePool(pool)
	if !ok || n.rest != sharedPool {
		return "", false
	}
	return n.node, true
}

// NodeOfGPUPool returns the node whose GPUs are in the pool, shared ones or others, and false for another pool.
func NodeOfGPUPool(pool string) (string, bool) {
	n, ok := parsePool(pool)
	if !ok || n.pf != nil {
		return "", false
	}
	return n.node, true
}

// IsNodesPool reports whether the pool is one that the node with the name publishes, or that earlier versions published
// there: its own pool, the pool of its shared devices, or the pool of a PF, whether the node has the PF or not.
func IsNodesPool(node, pool string) bool {
	n, ok := parsePool(pool)
	return ok && n.node == node
}

// PFOfPool returns the PF after which a PF's pool is named, and false for another
// pool.
func PFOfPool(pool string) (pci.Address, bool) {
	n, ok := parsePool(pool)
	if !ok || n.pf == nil {
		return pci.Address{}, false
	}
	return *n.pf, true
}

// poolName has the parts of a pool's name.
type poolName struct {
	node string
	// rest is the part after the node's name and the driver's: that of a PF or of shared devices, or empty.
	rest string
	// pf is set in the name of a PF's pool.
	pf *pci.Address
	// former is set for a name without the driver's.
	former bool
}

// parsePool parses the name of a pool, and returns false for one that no node has.
func parsePool(pool string) (poolName, bool) {
	node, rest, found := strings.Cut(pool, "/")
	if node == "" {
		return poolName{}, false
	}
	n := poolName{node: node, former: true}
	if found {
		n.rest = "/" + rest
	}
	if after, ok := strings.CutPrefix(n.rest, driverPool); ok && (after == "" || after[0] == '/') {
		n.rest, n.former = after, false
	}
	if n.rest == "" || n.rest == sharedPool {
		return n, true
	}
	label, ok := strings.CutPrefix(n.rest, pfPool)
	if !ok {
		return poolName{}, false
	}
	pf, err := pci.ParseLabel(label)
	n.pf = &pf
	return n, err == nil
}

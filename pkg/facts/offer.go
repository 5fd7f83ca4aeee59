package facts

import (
	"encoding/json"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/finding"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

const (
	// publishedFile is what the plugin says of what it publishes: see [Published].
	publishedFile = runDir + "/" + PublishedFile
	// NodeConfigFile is the node's own configuration of the plugin.
	NodeConfigFile = "etc/kata-vfio/node.yaml"
)

// Published is what the plugin writes to /run/kata-vfio/published.json whenever
// it publishes: the functions that can be allocated.
type Published struct {
	BootID  string        `json:"bootID"`
	Devices []pci.Address `json:"devices"`
}

// offer is which functions tenants can get.
type offer struct {
	basis finding.Basis
	// named are those that the plugin publishes. The published ones are those, and
	// the functions that a claim or a VFIO driver has.
	named, published map[pci.Address]bool
	// selected are those that the node's config selects, where no plugin has
	// published anything.
	selected map[pci.Address]bool
}

// IsOffered reports whether the plugin says that the function can be allocated,
// and what it says it in.
func (n *Node) IsOffered(a pci.Address) (bool, Fact) { return n.offer.named[a], n.Read(publishedFile) }

// IsPublished reports whether the function can be allocated now: the plugin says
// so, or a VFIO driver has it, or a claim.
func (n *Node) IsPublished(a pci.Address) bool { return n.offer.published[a] }

// IsAvailable reports whether tenants can get the function: it is published, or
// the plugin would publish it once it runs (see [Node.Basis]).
func (n *Node) IsAvailable(a pci.Address) bool {
	return n.offer.published[a] || n.offer.selected[a]
}

// Basis says by what it is known which functions tenants can get.
func (n *Node) Basis() finding.Basis { return n.offer.basis }

// Offer says, in the plugin's own process, which functions can be allocated: it
// judges them before it publishes them. Call it before the node is asked.
func (n *Node) Offer(addrs []pci.Address) {
	n.offer.publish(addrs)
	n.offer.selected = nil
}

func (o *offer) publish(addrs []pci.Address) {
	for _, a := range addrs {
		o.named[a], o.published[a] = true, true
	}
	o.basis = finding.Basis{By: finding.ByPlugin, Functions: len(o.named)}
}

// readOffer reads what the plugin publishes. Where no plugin has said so since
// the node's start, the functions count that it would publish by the node's config.
func (n *Node) readOffer() {
	n.offer = offer{named: map[pci.Address]bool{}, published: map[pci.Address]bool{}}
	for _, f := range n.Functions() {
		if len(n.TenanciesOf(f.Address)) > 0 || isVFIO(f) {
			n.offer.published[f.Address] = true
		}
	}
	var said Published
	if f := n.Read(publishedFile); f.OK() && json.Unmarshal([]byte(f.Value), &said) == nil {
		n.offer.publish(said.Devices)
		return
	}
	n.selectOffer()
}

// selectOffer applies the node's config as publishing does. A config that can't be
// read selects what the default one does, and the basis says why.
func (n *Node) selectOffer() {
	basis := finding.Basis{By: finding.ByDefault}
	var cfg *v1alpha1.NodeConfig
	switch file := n.Read(NodeConfigFile); {
	case file.OK():
		decoded, err := v1alpha1.DecodeNodeConfig([]byte(file.Value))
		if err != nil {
			basis.Problem = file.Path + ": " + err.Error()
			break
		}
		cfg, basis.By = decoded, finding.ByConfig
	case file.Status != Absent:
		basis.Problem = file.Path + ": " + file.Err
	}
	ours := nodeconfig.Select(cfg, n.Snapshot).Ours()
	n.offer.selected = make(map[pci.Address]bool, len(ours))
	for _, f := range ours {
		n.offer.selected[f.Address] = true
	}
	basis.Functions = len(ours)
	n.offer.basis = basis
}

package facts

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const (
	// publishedFile has the list of devices that the plugin publishes: see [Published].
	publishedFile = runDir + "/" + PublishedFile
	// NodeConfigFile is the node's own configuration of the plugin. If the chart's ConfigMap replaces it, no file of the node has the
	// configuration.
	NodeConfigFile = "etc/kata-vfio/node.yaml"
)

// Published is what the plugin writes to /run/kata-vfio/published.json whenever it publishes: the functions that can be allocated,
// and those inputs of the plugin's decision that no other file of the node has.
type Published struct {
	BootID  string        `json:"bootID"`
	Devices []pci.Address `json:"devices"`
	// NodeName is the node's name in the cluster.
	NodeName string `json:"nodeName,omitempty"`
	// Config is the node config that the plugin uses. If it comes from a ConfigMap, no other file of the node has it.
	Config *v1alpha1.NodeConfig `json:"config,omitempty"`
	// Sanitizers are the sanitizing stages that the plugin knows.
	Sanitizers *v1alpha1.Sanitizers `json:"sanitizers,omitempty"`
	// Failing holds the ids of the audit's checks that taint a function, the worst first.
	Failing map[pci.Address][]string `json:"failing,omitempty"`
	// Attempted holds the functions that are tainted because Prepare failed for them, or because a claim that lost them at the API server
	// still has them on the node.
	Attempted map[pci.Address]rule.Code `json:"attempted,omitempty"`
	// NotReady is why the plugin refuses all new claims, so that all devices are tainted; nil if it does not.
	NotReady *plan.NotReady `json:"notReady,omitempty"`
	// HotPlug is set if the plugin expects that devices are plugged into running VMs.
	HotPlug bool `json:"hotPlug,omitempty"`
	// HotPlugWindow is the HotPlugWindow of [plan.Node], which decides whether functions with large BARs are tainted.
	HotPlugWindow uint64 `json:"hotPlugWindow,omitempty"`
}

// offer says which functions tenants can get, and which config decides that.
type offer struct {
	basis  finding.Basis
	config *v1alpha1.NodeConfig // nil for the default one
	// configFile is the file with the config; empty for the default one.
	configFile string
	note       Fact      // the plugin's file
	said       Published // what it says; empty if no plugin said anything
	// spoke is set if a plugin has published since the node's start.
	spoke bool
	// named are the functions that the plugin publishes. published are the named functions, and the functions that a claim has or that
	// are bound to a VFIO driver.
	named, published map[pci.Address]bool
	// selected are the functions that the node config selects, if no plugin has published anything.
	selected map[pci.Address]bool
}

// IsOffered reports whether the plugin publishes the function as allocatable, and the fact of that.
func (n *Node) IsOffered(a pci.Address) (bool, Fact) { return n.offer.named[a], n.Read(publishedFile) }

// IsPublished reports whether a tenant may have or get the function now: the plugin publishes it, it is bound to a VFIO driver, or
// a claim has it.
func (n *Node) IsPublished(a pci.Address) bool { return n.offer.published[a] }

// IsAvailable reports whether tenants can get the function: it is published, or
// the plugin would publish it once it runs (see [Node.Basis]).
func (n *Node) IsAvailable(a pci.Address) bool {
	return n.offer.published[a] || n.offer.selected[a]
}

// PluginSpoke reports whether a plugin has published since the node's start. If so, its file also says which checks fail.
func (n *Node) PluginSpoke() bool { return n.offer.spoke }

// Basis says which sources decide which functions tenants can get.
func (n *Node) Basis() finding.Basis { return n.offer.basis }

// SetPublished sets the functions that can be allocated. The plugin calls it in its own process, because it judges functions before
// it publishes them. Call it before any question about the node.
func (n *Node) SetPublished(addrs []pci.Address) {
	n.offer.publish(addrs)
	n.offer.selected = nil
}

func (o *offer) publish(addrs []pci.Address) {
	for _, a := range addrs {
		o.named[a], o.published[a] = true, true
	}
	o.basis.By, o.basis.Functions = finding.ByPlugin, len(o.named)
}

// readOffer reads what the plugin publishes. If no plugin has published since the node's start, it selects the functions that a
// plugin would publish by the node's config.
func (n *Node) readOffer() {
	n.offer = offer{named: map[pci.Address]bool{}, published: map[pci.Address]bool{}}
	for _, f := range n.Functions() {
		// A process may have these functions open already, whatever the plugin publishes.
		if len(n.TenanciesAt(f.Address)) > 0 || isVFIO(f) {
			n.offer.published[f.Address] = true
		}
	}
	n.offer.basis.By = finding.ByDefault
	n.offer.note = n.Read(publishedFile)
	if n.offer.note.OK() && n.readPublished() {
		n.offer.spoke = true
		return
	}
	n.readConfig()
	ours := nodeconfig.Select(n.offer.config, n.Snapshot).Ours()
	n.offer.selected = make(map[pci.Address]bool, len(ours))
	for _, f := range ours {
		n.offer.selected[f.Address] = true
	}
	n.offer.basis.Functions = len(ours)
}

// readPublished decodes the plugin's file, and reports whether the file is valid and from this boot. If the file has no valid
// config, the node's file of the config is read.
func (n *Node) readPublished() bool {
	f := &n.offer.note
	var said struct {
		Published
		Config json.RawMessage `json:"config"`
	}
	if err := json.Unmarshal([]byte(f.Value), &said); err != nil {
		f.Status, f.Err = Broken, err.Error()
		return false
	}
	// After a reboot an address can be another function's, because a card was added, moved or removed.
	if said.BootID != "" && said.BootID != n.Snapshot.Host.BootID {
		return false
	}
	n.offer.said = said.Published
	if len(said.Config) == 0 || !n.useConfig(f.Path, said.Config) {
		n.readConfig()
	}
	n.offer.publish(said.Devices)
	return true
}

// readConfig reads the node's config. If it can't be read, the default config applies, and the basis says why.
func (n *Node) readConfig() {
	switch file := n.Read(NodeConfigFile); {
	case file.OK():
		if n.useConfig(file.Path, []byte(file.Value)) {
			n.offer.basis.By = finding.ByConfig
		}
	case file.Status != Absent:
		n.offer.basis.Problem = file.Path + ": " + file.Err
	}
}

// useConfig uses a config if it is valid; otherwise the basis says what is wrong.
func (n *Node) useConfig(path string, text []byte) bool {
	decoded, err := v1alpha1.DecodeNodeConfig(text)
	if err != nil {
		n.offer.basis.Problem = path + ": " + err.Error()
		return false
	}
	n.offer.config, n.offer.configFile, n.offer.basis.Problem = decoded, path, ""
	return true
}

// Planned returns the node as the plugin uses it to plan and publish. It is made from the node's config, the journal's records and
// marks, and the facts that only the plugin's file has. The failing checks are those in the plugin's file; package audit/check adds
// them if no plugin has published. Sources that could not be read are left out: unread says which they are and what is unknown
// without them, one sentence each.
func (n *Node) Planned() (node plan.Node, unread []string) {
	cfg := n.offer.config
	node = plan.Node{
		Name: n.offer.said.NodeName, Snapshot: n.Snapshot, Selection: nodeconfig.Select(cfg, n.Snapshot),
		Owners:    journal.Holdings(n.journal, n.Snapshot),
		NotReady:  n.offer.said.NotReady,
		Attempted: n.offer.said.Attempted, HotPlug: n.offer.said.HotPlug, HotPlugWindow: n.offer.said.HotPlugWindow,
	}
	if cfg != nil {
		node.AddressPools = cfg.AddressPools
	}
	if failing := n.offer.said.Failing; len(failing) > 0 {
		node.Failing = func(a pci.Address) []string { return failing[a] }
	}
	if len(n.Damaged) > 0 {
		node.Damaged = n.Damaged[0].Path
	}
	marks, err := journal.ReadMarks(n.fs, journalDir)
	node.NeedsReset, node.Drained = journal.NeedReset(marks.NeedsReset, n.Snapshot), journal.DrainReasons(marks.Drains, n.Snapshot)
	node.FatalErrors = journal.Unaccounted(n.Snapshot, marks.FatalErrors)
	stages := n.sanitizers()
	node.Sanitizing = journal.Sanitizing(journal.SanitizingFacts{
		Snapshot: n.Snapshot, Selection: node.Selection, Profiles: stages, Marks: marks.Unsanitized, Proofs: marks.Sanitized,
	})
	node.Sanitized = journal.SanitizedFunctions(marks.Sanitized, n.Snapshot)
	if stages != nil {
		node.Stages = plan.Stages{Namespace: stages.Namespace, DeviceClass: stages.DeviceClass}
	}
	return node, n.unread(err)
}

// sanitizers returns the sanitizing stages in the plugin's file, or else those in the node's file. It returns nil if there are none
// or if they can't be read. Functions whose rule names a profile are then refused, as the plugin would refuse them.
func (n *Node) sanitizers() *v1alpha1.Sanitizers {
	if n.offer.said.Sanitizers != nil {
		return n.offer.said.Sanitizers
	}
	file := n.Read(v1alpha1.SanitizersFile)
	if !file.OK() {
		return nil
	}
	stages, err := v1alpha1.DecodeSanitizers([]byte(file.Value))
	if err != nil {
		return nil
	}
	return stages
}

// unread says which sources of [Node.Planned] could not be read. marks is the error of reading the journal's marks.
func (n *Node) unread(marks error) []string {
	var all []string
	if p := n.offer.basis.Problem; p != "" {
		all = append(all, fmt.Sprintf("the node's config could not be read, so that functions are selected by the default one: %s", p))
	}
	if f := n.offer.note; !f.Known() {
		all = append(all, fmt.Sprintf("what the plugin publishes could not be read, so that its config and the checks that fail are not known: %s: %s", f.Path, f.Err))
	}
	if f := n.Read("proc/iomem"); !f.Known() && slices.ContainsFunc(n.Snapshot.Functions, mayHaveFrameBuffer) {
		all = append(all, fmt.Sprintf("the map of memory could not be read, so that a frame buffer of the firmware in a GPU's memory may be missed: %s: %s", f.Path, f.Err))
	}
	if f := n.Journal(); !f.Known() {
		// Records and marks are files of this directory: one sentence covers them.
		return append(all, fmt.Sprintf("the journal could not be read, so that claims' devices, quarantine and drains are not known: %s: %s", f.Path, f.Err))
	}
	for _, f := range n.Damaged {
		all = append(all, fmt.Sprintf("a record of the journal could not be read, so that the devices of its claim are not known: %s: %s", f.Path, f.Err))
	}
	if marks != nil {
		all = append(all, fmt.Sprintf("marks of the journal could not be read, so that drains and resets that are due are not known: %s", strings.ReplaceAll(marks.Error(), "\n", "; ")))
	}
	return all
}

func mayHaveFrameBuffer(f device.Function) bool {
	return f.Class.Base() == pci.BaseDisplay && f.VF == nil
}

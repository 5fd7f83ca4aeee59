package publish

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// entry is one device that is to be placed in a pool.
type entry struct {
	name string
	kind device.Type
	addr pci.Address
	pool string
	// f is the function at addr; nil for an allocated device whose function no longer exists.
	f *device.Function
	// vf is the VF of a pair, whose GPU is at addr; nil for other devices.
	vf *part
	// joined are the other GPUs of a partition, whose first GPU is at addr; nil for other devices.
	joined []part
	// withdrawn is the value of [TaintWithdrawn] if the device is published only because a claim may have it; empty if the node offers it.
	withdrawn rule.Code
	// stays is set if a claim may have the device, so that its counters must not change.
	stays bool
	// rank orders devices by how well they are isolated, best first.
	rank int
}

// part is a function of a device; f is nil if it no longer exists.
type part struct {
	addr pci.Address
	f    *device.Function
}

// parts returns the device's functions, the one at addr first.
func (e *entry) parts() []part {
	all := []part{{e.addr, e.f}}
	if e.vf != nil {
		all = append(all, *e.vf)
	}
	return append(all, e.joined...)
}

// entries returns everything to publish. An allocated device keeps the pool and the name under which it was allocated. Two devices never
// have the same function, except for a GPU and its pair, which share a counter, and devices that consume counters of one board. The PF of a
// pair's VF has its counter in another pool. The pair does not need that counter: a PF is offered only while it has no VFs, and then the
// pair does not exist.
func entries(n *Node, l *device.Layout) []*entry {
	held := map[pci.Address]*entry{}
	var all []*entry
	// Allocated devices come first, so that no device on offer gets a function that a claim has.
	for _, a := range n.Allocated {
		if e := allocated(n, a); e != nil && !overlaps(held, e, gpuAndPair) {
			e.stays = true
			hold(held, e)
			all = append(all, e)
		}
	}
	offers := onOffer(n, l)
	for _, e := range lingering(n, append(slices.Clone(all), offers...)) {
		hold(held, e)
		all = append(all, e)
	}
	elsewhere := newElsewhere(n, l, all)
	apart := func(a, b *entry) bool { return gpuAndPair(a, b) || n.countOneBoard(a, b) }
	for _, e := range offers {
		if overlaps(held, e, apart) || n.crosses(l, held, e) || elsewhere.shares(e) {
			e.withdrawn = rule.Moved
		}
		if e.withdrawn == "" || lingers(n, all, e) {
			all = append(all, e)
		}
	}
	for _, e := range all {
		// The scheduler may have allocated a withdrawn device before it saw the taint, so what it consumes does not change.
		e.stays = e.stays || e.withdrawn != ""
		e.rank = rank(n, e)
	}
	return all
}

// onOffer returns what the node would publish if nothing were allocated.
func onOffer(n *Node, l *device.Layout) []*entry {
	var all []*entry
	paired := map[pci.Address]bool{}
	for _, p := range n.Selection.Pairs() {
		// No other device has the VF of a pair, so two claims can't get it. The GPU is also a device of its own, which shares a counter
		// with the pair.
		paired[p.VF.Address] = true
		if !n.Selection.Fabric().IsAlone(p.GPU) {
			continue
		}
		e := single(n, l, p.GPU)
		e.name, e.vf = p.Name(), &part{p.VF.Address, p.VF}
		all = append(all, e)
	}
	for _, f := range n.Selection.Ours() {
		if !paired[f.Address] && n.Selection.Fabric().IsAlone(f) {
			all = append(all, single(n, l, f))
		}
	}
	return append(all, partitions(n, l)...)
}

// single returns the entry of one function.
func single(n *Node, l *device.Layout, f *device.Function) *entry {
	return &entry{name: f.Name(), kind: f.Type, addr: f.Address, pool: n.named(n.Selection.Pool(l, n.Name, f.Address)), f: f}
}

// hold records e as the holder of its functions, except for functions that another device already holds.
func hold(held map[pci.Address]*entry, e *entry) {
	for _, p := range e.parts() {
		if held[p.addr] == nil {
			held[p.addr] = e
		}
	}
}

// overlaps reports whether another device holds a function of e, and no shared counter makes the scheduler keep the two devices apart.
func overlaps(held map[pci.Address]*entry, e *entry, apart func(a, b *entry) bool) bool {
	for _, p := range e.parts() {
		if h := held[p.addr]; h != nil && !apart(h, e) {
			return true
		}
	}
	return false
}

// gpuAndPair reports whether one of a and b is a GPU and the other its pair, in one pool. Both consume the counter of the GPU's unit there.
func gpuAndPair(a, b *entry) bool {
	return a.addr == b.addr && a.pool == b.pool && a.f != nil && b.f != nil && (a.vf == nil) != (b.vf == nil)
}

// allocated returns the entry of an allocated device; nil if this node can't have published a device with that pool and name.
func allocated(n *Node, a Allocated) *entry {
	if !device.IsNodesPool(n.Name, a.Pool) {
		return nil
	}
	parts, err := device.ParseParts(a.Name)
	if err != nil {
		return nil
	}
	e := &entry{name: a.Name, kind: parts[0].Type, addr: parts[0].Address, pool: a.Pool}
	e.f = e.present(n, &parts[0])
	if len(parts) == 1 {
		if e.f != nil {
			e.kind = e.f.Type // the name may contain a type of an earlier version
		}
		e.staysShared(n)
		return e
	}
	var onOffer bool
	if e.kind = device.PartsType(parts); e.kind == device.PartitionType {
		for i := range parts[1:] {
			e.joined = append(e.joined, part{parts[i+1].Address, e.present(n, &parts[i+1])})
		}
		onOffer = slices.ContainsFunc(n.Selection.Fabric().Partitions(), func(p device.Partition) bool { return p.Name() == e.name })
	} else {
		e.kind, e.vf = parts[0].Type, &part{parts[1].Address, e.present(n, &parts[1])}
		onOffer = slices.ContainsFunc(n.Selection.Pairs(), func(p device.Pair) bool { return p.Name() == e.name })
	}
	if e.withdrawn == "" && !onOffer {
		e.withdrawn = rule.NotOurs
	}
	return e
}

// present returns the function of a part of an allocated device; nil if the function no longer exists. It also records why the device would
// be withdrawn because of the function.
func (e *entry) present(n *Node, p *device.Part) *device.Function {
	f, ok := n.Snapshot.Function(p.Address)
	if !ok || !f.HasName(p.Name) {
		e.withdrawn = rule.Gone
		return nil
	}
	switch choice := n.Selection.Choice(p.Address); {
	case e.withdrawn != "":
	case !choice.Ours:
		e.withdrawn = choice.Against()
	}
	return f
}

// leave records why a device is withdrawn that is no longer offered in its pool, if there is no reason yet: Renamed if the pool or the
// device has another name now, else Moved. An allocated device stays unchanged in the pool with the former name: no other claim can get it,
// and its pod is not affected.
func (e *entry) leave(n *Node) {
	switch {
	case e.withdrawn != "":
	case device.IsFormerPool(e.pool) != n.FormerNames, e.f != nil && len(e.parts()) == 1 && e.f.Name() != e.name:
		e.withdrawn = rule.Renamed
	default:
		e.withdrawn = rule.Moved
	}
}

// staysShared records that a device is withdrawn because it became shared, or stopped being shared, since it was allocated.
func (e *entry) staysShared(n *Node) {
	if e.withdrawn == "" && (n.Selection.Choice(e.addr).SharedWith != "") != e.isShared() {
		e.withdrawn = rule.Moved
	}
}

// isShared reports whether the device is published in the pool of GPUs that another driver publishes too.
func (e *entry) isShared() bool {
	_, ok := device.NodeOfSharedPool(e.pool)
	return ok
}

// rank orders devices by the worst reason against the isolation of any of their functions.
func rank(n *Node, e *entry) int {
	worst := 0
	for _, p := range e.parts() {
		worst = max(worst, rankPart(n, p))
	}
	return worst
}

func rankPart(n *Node, p part) int {
	as, ok := n.Assessments[p.addr]
	if !ok || p.f == nil {
		return severityRank("")
	}
	v := as.Isolation
	if v.Isolated {
		return 0
	}
	worst, _ := findWorst(v.Reasons)
	return severityRank(worst.Severity)
}

// severityRank returns 1 for the mildest severity. An unknown severity ranks as the worst.
func severityRank(s rule.Severity) int {
	switch s {
	case rule.Low, rule.Info:
		return 1
	case rule.Medium:
		return 2
	case rule.High:
		return 3
	case rule.Critical, rule.Refusal: // no verdict has the severity Refusal
		return 4
	}
	return 4
}

// findWorst returns the first of the reasons with the worst severity, and false if there are no reasons.
func findWorst(reasons []rule.Verdict) (rule.Verdict, bool) {
	var worst rule.Verdict
	found := false
	for _, r := range reasons {
		if !found || severityRank(r.Severity) > severityRank(worst.Severity) {
			worst, found = r, true
		}
	}
	return worst, found
}

// failing returns the checks that fail for any of the device's functions.
func (n *Node) failing(e *entry) []rule.Failure {
	var all []rule.Failure
	for _, p := range e.parts() {
		all = append(all, n.Health[p.addr].Failing...)
	}
	return rule.WorstFirst(all)
}

// judgment returns the judgment on a function's isolation; the zero one if it was not judged.
func (n *Node) judgment(a pci.Address) isolation.Judgment { return n.Assessments[a].Isolation }

// newDevice returns the entry as a device of the API, without counters.
func newDevice(n *Node, e *entry) resourceapi.Device {
	d := resourceapi.Device{Name: e.name, Attributes: attributes(n, e), Taints: taints(n, e)}
	if e.f != nil && !isBrief(n, e) {
		d.Capacity = capacity(n, e.f)
		n.countGPUs(&d, e)
		fit(&d)
	}
	n.Versions.addTo(&d, e)
	if e.isShared() {
		// With BindsToNode the allocation's node selector names this node alone. The binding condition holds for a pod on this node only.
		d.BindsToNode = new(true)
		// The scheduler allocates the device, and binds the pod only once the condition is true (KEP-5007).
		d.BindingConditions = []string{v1alpha1.ConditionTwinReserved}
		d.BindingFailureConditions = []string{v1alpha1.ConditionTwinInUse}
	}
	if waitsForDomains(n, e) {
		d.BindsToNode = new(true)
		d.BindingConditions = append(d.BindingConditions, v1alpha1.ConditionDomainReserved)
		d.BindingFailureConditions = append(d.BindingFailureConditions, v1alpha1.ConditionDomainTaken)
	}
	return d
}

// fit removes the sizes of BARs, the last BAR first, until the device is within the API server's limit of attributes and capacities. Beyond
// that limit the API server would refuse the whole slice.
func fit(d *resourceapi.Device) {
	for i := bars - 1; i >= 0 && len(d.Attributes)+len(d.Capacity) > resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice; i-- {
		delete(d.Capacity, capacityOfBAR(i))
	}
}

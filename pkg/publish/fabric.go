package publish

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// A board is the GPUs of an NVLink fabric. Its counter set has one counter for each GPU, by the GPU's module. Every device with that GPU
// consumes the counter: the GPU alone, its pair, and each partition with the GPU. So the scheduler never allocates two devices that share a
// GPU, and a device needs only one set, however many GPUs it has.
const (
	boardSet     = "fabric-"
	boardCounter = "gpu-"
)

// Attributes and the capacity of devices with GPUs of a fabric.
const (
	// AttrFabricSize is how many GPUs of the device NVLink joins (int): 1 for a single GPU.
	AttrFabricSize resourceapi.QualifiedName = "fabricSize"
	// AttrFabricLinks is how many NVLinks each GPU has in the device's partition, by the GPU with the fewest (int): 18. It is absent if
	// Fabric Manager lists no links.
	AttrFabricLinks resourceapi.QualifiedName = "fabricLinks"
	// AttrFabricVersion is the version of Fabric Manager and of NVIDIA's driver on the node, "570.172.08". The guest's driver must have the
	// same version.
	AttrFabricVersion resourceapi.QualifiedName = "fabricVersion"
	// CapacityGPUs is how many GPUs the device has, for quotas.
	CapacityGPUs resourceapi.QualifiedName = "gpus"
)

// partitions returns the partitions that are on offer.
func partitions(n *Node, l *device.Layout) []*entry {
	var all []*entry
	for _, p := range n.Selection.Fabric().Partitions() {
		e := single(n, l, p.GPUs[0])
		e.name, e.kind = p.Name(), device.PartitionType
		for _, gpu := range p.GPUs[1:] {
			e.joined = append(e.joined, part{gpu.Address, gpu})
		}
		all = append(all, e)
	}
	return all
}

// position orders the devices of a fabric by the order in which they are best assigned. All other devices come before them.
func (n *Node) position(e *entry) int {
	f := n.Selection.Fabric()
	if e.joined == nil {
		return f.Position(e.addr)
	}
	// singles is larger than the number of a board's GPUs: all partitions come after the single GPUs.
	const singles = 1 << 10
	return singles + slices.IndexFunc(f.Partitions(), func(p device.Partition) bool { return p.Name() == e.name })
}

// partition sets the attributes in which all GPUs of a partition agree, and the attributes of the partition itself.
func (s attributeSet) partition(n *Node, e *entry) {
	shared := attributeSet{}
	isolated, complete := true, true
	var said []rule.Verdict
	for i, p := range e.parts() {
		if p.f == nil {
			complete = false
			continue
		}
		own := attributeSet{}
		own.identity(n, p.f)
		own.topology(n, p.f)
		own.isolation(n, &entry{addr: p.addr, f: p.f})
		v := n.judgment(p.addr)
		isolated, said = isolated && v.Isolated, slices.Concat(said, v.Reasons, v.Notes)
		if i == 0 {
			shared = own
		}
		maps.DeleteFunc(shared, func(name resourceapi.QualifiedName, v resourceapi.DeviceAttribute) bool {
			return !reflect.DeepEqual(own[name], v)
		})
	}
	// A removed GPU may differ from the others in any attribute.
	if complete {
		maps.Copy(s, shared)
	}
	s.flag(AttrIsolated, complete && isolated)
	s.audit(n.failing(e), said)
	s.text(AttrExclusiveDomains, domains(n, e))
	s.fabric(n, e)
}

// fabric sets the attributes of a device with GPUs of a fabric.
func (s attributeSet) fabric(n *Node, e *entry) {
	size := n.fabricSize(e)
	if size == 0 {
		return
	}
	s.number(AttrFabricSize, size)
	f := n.Selection.Fabric()
	if f == nil {
		return
	}
	s.text(AttrFabricVersion, f.Version)
	if links, listed := f.Links(e.gpus()); listed {
		s.number(AttrFabricLinks, links)
	}
}

// gpus returns the addresses of a fabric's GPUs that the device has.
func (e *entry) gpus() []pci.Address {
	all := []pci.Address{e.addr}
	for _, p := range e.joined {
		all = append(all, p.addr)
	}
	return all
}

// fabricSize returns how many GPUs of a fabric the device has.
func (n *Node) fabricSize(e *entry) int {
	f := n.Selection.Fabric()
	switch {
	case e.joined != nil:
		return 1 + len(e.joined)
	case e.f != nil && f != nil && f.Board != nil && f.Has(e.f):
		return 1
	}
	return 0
}

// countGPUs sets the capacities of a device with GPUs of a fabric. The capacities of a partition are those of all its GPUs together.
func (n *Node) countGPUs(d *resourceapi.Device, e *entry) {
	size := n.fabricSize(e)
	if size == 0 {
		return
	}
	if d.Capacity == nil || e.joined != nil {
		d.Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}
	}
	d.Capacity[CapacityGPUs] = resourceapi.DeviceCapacity{Value: *resource.NewQuantity(int64(size), resource.DecimalSI)}
	if e.joined == nil {
		return
	}
	total := uint64(0)
	for _, p := range e.parts() {
		if p.f != nil {
			size, _ := n.memory(p.f)
			total += size
		}
	}
	if total > 0 && total <= 1<<62 {
		d.Capacity[CapacityMemory] = resourceapi.DeviceCapacity{Value: *resource.NewQuantity(int64(total), resource.BinarySI)}
	}
}

// boards adds the counter set of the node's board if members have GPUs of it, and keeps the board sets that staying devices consume.
func (s *sharing) boards(n *Node, l *device.Layout, members []*entry) {
	sets := map[string]map[string]resourceapi.Counter{}
	for _, e := range members {
		for _, use := range n.boardUse(l, e) {
			s.consumption[e] = append(s.consumption[e], use)
			if sets[use.CounterSet] == nil {
				sets[use.CounterSet] = map[string]resourceapi.Counter{}
			}
			n.addCounters(sets[use.CounterSet], use.Counters)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		s.sets = append(s.sets, resourceapi.CounterSet{Name: name, Counters: sets[name]})
	}
}

// addCounters adds the counters that one device consumes to the set of its board. The set has 1 for each GPU, and for the quota counters as
// much as the whole board has.
func (n *Node) addCounters(board, uses map[string]resourceapi.Counter) {
	for name, c := range uses {
		if strings.HasPrefix(name, boardCounter) {
			board[name] = c
		}
	}
	if _, counted := uses[gpusCounter]; !counted {
		return
	}
	all := n.gpuQuota(n.boardGPUs())
	for _, name := range []string{gpusCounter, memoryCounter} {
		for _, from := range []map[string]resourceapi.Counter{uses, all} { // a device that stays may consume more than the board has now
			had, c := board[name], from[name]
			if had.Value.Cmp(c.Value) < 0 {
				board[name] = c
			}
		}
	}
}

// boardGPUs returns the GPUs of the node's board.
func (n *Node) boardGPUs() []*device.Function {
	f := n.Selection.Fabric()
	if f == nil || f.Board == nil {
		return nil
	}
	var gpus []*device.Function
	for _, p := range f.Board.Places() {
		if gpu, ok := n.Snapshot.Function(p.Address); ok {
			gpus = append(gpus, gpu)
		}
	}
	return gpus
}

// gpuQuota returns the counters for quotas of GPUs; nil if the node config wants none.
func (n *Node) gpuQuota(gpus []*device.Function) map[string]resourceapi.Counter {
	if !n.Selection.QuotaCounters() || len(gpus) == 0 {
		return nil
	}
	quota, memory, known := counters(gpusCounter, len(gpus)), uint64(0), true
	for _, f := range gpus {
		size, sure := n.Snapshot.GPUMemory(f)
		memory, known = memory+size, known && sure
	}
	if known {
		quota[memoryCounter] = resourceapi.Counter{Value: *resource.NewQuantity(int64(memory), resource.BinarySI)}
	}
	return quota
}

// boardUse returns what a device consumes of a board. A device that stays consumes what it did before. Any other device consumes the
// counters of its GPUs, and of GPUs whose unit contains another function of the device. boardUse returns nil for a device without such
// GPUs, and for a device that has consumed a unit's set since before there was a board.
func (n *Node) boardUse(l *device.Layout, e *entry) []resourceapi.DeviceCounterConsumption {
	if before, known := n.Consumed[Allocated{Pool: e.pool, Name: e.name}]; e.stays && known {
		return slices.DeleteFunc(slices.Clone(before), func(c resourceapi.DeviceCounterConsumption) bool {
			return !strings.HasPrefix(c.CounterSet, boardSet)
		})
	}
	f := n.Selection.Fabric()
	if f == nil || f.Board == nil || e.isShared() {
		return nil
	}
	uses := map[string]resourceapi.Counter{}
	for _, p := range f.Board.Places() {
		unit := l.Unit(p.Address)
		if slices.ContainsFunc(e.parts(), func(own part) bool { return l.Unit(own.addr) == unit }) {
			maps.Copy(uses, counters(boardCounter+strconv.Itoa(p.Module), 1))
		}
	}
	if len(uses) == 0 {
		return nil
	}
	maps.Copy(uses, n.gpuQuota(n.deviceBoardGPUs(e)))
	return []resourceapi.DeviceCounterConsumption{{CounterSet: boardSet + f.Board.Name(), Counters: uses}}
}

// deviceBoardGPUs returns the GPUs of the board that a device has.
func (n *Node) deviceBoardGPUs(e *entry) []*device.Function {
	return slices.DeleteFunc(n.boardGPUs(), func(f *device.Function) bool {
		return !slices.ContainsFunc(e.parts(), func(p part) bool { return p.addr == f.Address })
	})
}

// onBoard reports whether the device consumes counters of a board.
func (s *sharing) onBoard(e *entry) bool {
	return slices.ContainsFunc(s.consumption[e], func(c resourceapi.DeviceCounterConsumption) bool { return strings.HasPrefix(c.CounterSet, boardSet) })
}

// countOneBoard reports whether two devices of one pool consume counters of the same board, so that the scheduler keeps them apart. Device
// a is already published.
func (n *Node) countOneBoard(a, b *entry) bool {
	set := n.consumedBoard(a)
	return a.name != b.name && a.pool == b.pool && set != "" && set == n.consumedBoard(b)
}

// consumedBoard returns the name of the board's set that a device consumes; empty if it consumes none.
func (n *Node) consumedBoard(e *entry) string {
	if before, known := n.Consumed[Allocated{Pool: e.pool, Name: e.name}]; e.stays && known {
		i := slices.IndexFunc(before, func(c resourceapi.DeviceCounterConsumption) bool { return strings.HasPrefix(c.CounterSet, boardSet) })
		if i < 0 {
			return ""
		}
		return before[i].CounterSet
	}
	if f := n.Selection.Fabric(); f != nil && f.Board != nil && !e.isShared() && len(n.deviceBoardGPUs(e)) > 0 {
		return boardSet + f.Board.Name()
	}
	return ""
}

// crosses reports whether a partition would need the set of a unit, because a device that stays consumes that set and not the board's. Such
// a partition can't be published: it has no room for the sets of all its GPUs' units.
func (n *Node) crosses(l *device.Layout, held map[pci.Address]*entry, e *entry) bool {
	if e.joined == nil {
		return false
	}
	for a, h := range held {
		mate := slices.ContainsFunc(e.parts(), func(p part) bool { return l.Unit(p.addr) == l.Unit(a) })
		if mate && !n.countOneBoard(h, e) {
			return true
		}
	}
	return false
}

package publish_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// Seconds in the tests' cluster. A scheduler acts on slices that are up to watchLag old, and writes an allocation up to bindTime after
// it has decided. Both are less than graceTime together.
const (
	watchLag  = 59
	bindTime  = 25 * 60
	graceTime = 26 * 60
)

// breach switches a rule of the withdrawals off.
type breach string

const (
	noBreach      breach = ""
	dropsAtOnce   breach = "a device that is no longer on offer is dropped at once"
	asksNobody    breach = "it is dropped after a time, whatever claims have"
	asksAtOnce    breach = "claims are listed at once"
	trustsItself  breach = "the time begins before the API server has the taint"
	forgets       breach = "a restart forgets what was published"
	forgetsCounts breach = "a withdrawn device consumes nothing"
)

// offer is what a plugin published, and of which node.
type offer struct {
	pools  map[string]publish.Pool
	slices []*resourceapi.ResourceSlice
	node   *publish.Node
	// earlier is set if the earlier version wrote it after the upgrade.
	earlier bool
}

// booking is a device that the scheduler has given to a claim.
type booking struct {
	device   publish.Allocated
	latest   int64 // when it is written, if it is not yet
	written  bool
	prepared bool
	// mates are devices that have consumed the counter of one unit with it.
	mates map[publish.Allocated]bool
}

// cluster is a node with its plugin, an API server and a scheduler that lags behind.
type cluster struct {
	t      *testing.T
	r      *rand.Rand
	breach breach
	// earlier is set while an earlier version of the plugin runs.
	earlier bool
	// renamed is set if a device has another name since the earlier version.
	renamed renaming
	cache   *cel.Cache
	now     int64
	events  []string

	// present are the functions on the bus, by address, and vfs how many each PF has.
	absent  map[string]bool
	vfs     [2]int
	types   []string
	pairing v1alpha1.Pairing
	quotas  bool
	// still is set while neither hardware nor config changes.
	still bool

	plugin  publish.Withdrawals
	handed  *offer // latest of the plugin, nil once the API server has it
	blocked int64  // until when it can't have it
	server  *offer
	seen    *offer         // by the scheduler
	aged    int64          // since when the scheduler's are old
	writes  map[string]int // of the API server's, by pool
	booked  []*booking
}

func newCluster(t *testing.T, seed uint64, b breach) *cluster {
	c := &cluster{
		t: t, r: rand.New(rand.NewPCG(seed, 140802)), breach: b, cache: cel.NewCache(10, cel.Features{}), absent: map[string]bool{}, writes: map[string]int{},
		vfs: [2]int{4, 2}, types: []string{"gpu", "pf", "vf", "nvme", "other"},
	}
	c.publish()
	c.accept()
	c.look()
	return c
}

// node is the node as it is now. Group and place of a function never change.
func (c *cluster) node() *publish.Node {
	var all []device.Function
	add := func(functions ...device.Function) {
		for _, f := range functions {
			if !c.absent[f.Address.String()] {
				f.Switch = new(addr(c.t, "0000:39:00.0"))
				all = append(all, f)
			}
		}
	}
	add(function(c.t, "0000:01:00.0", gpu3D, 1), function(c.t, "0000:01:00.1", audio, 2)) // companions
	add(function(c.t, "0000:02:00.0", gpu3D, 3), function(c.t, "0000:03:00.0", nvme, 3))  // one group
	add(function(c.t, "0000:04:00.0", gpu3D, 4))
	switch c.renamed.current {
	case "accelerator":
		add(function(c.t, "0000:05:00.0", crypto, 5))
	case "nvme":
		vf := function(c.t, "0000:05:00.0", nvme, 5)
		vf.VF = &device.VF{PF: addr(c.t, "0000:06:00.0")}
		add(vf)
	}
	for i, n := range c.vfs {
		functions := pfWith(c.t, fmt.Sprintf("0000:%02x:00.0", 0x21+i), 4, n, 20*(i+1))
		for _, f := range functions[1:] {
			functions[0].PF.VFs = append(functions[0].PF.VFs, f.Address)
		}
		if !c.absent[functions[0].Address.String()] {
			add(functions...)
		}
	}
	n := nodeOf(all...)
	choose(n, &v1alpha1.NodeConfig{Pairing: c.pairing, QuotaCounters: c.quotas, Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: c.types}}}})
	return n
}

// step lets something happen, and says what.
func (c *cluster) step() string {
	for {
		for _, kind := range []struct {
			often int
			event func() string
		}{
			{2, c.change},
			{1, c.restart},
			{1, c.block},
			{12, c.publish},
			{12, c.accept},
			{8, c.settle},
			{10, c.look},
			{14, c.schedule},
			{3, c.write},
			{1, c.giveUp},
			{3, c.prepare},
			{2, c.unprepare},
			{2, c.deallocate},
			{12, c.pass},
		} {
			if c.r.IntN(100) < kind.often {
				return kind.event()
			}
		}
	}
}

// change changes hardware or config.
func (c *cluster) change() string {
	if c.still {
		return "no change"
	}
	switch c.r.IntN(5) {
	case 4:
		c.quotas = !c.quotas
		return fmt.Sprintf("counters for quotas: %t", c.quotas)
	case 0:
		a := []string{"0000:01:00.0", "0000:01:00.1", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0", "0000:21:00.0"}[c.r.IntN(6)]
		c.absent[a] = !c.absent[a]
		return fmt.Sprintf("%s is absent: %t", a, c.absent[a])
	case 1:
		c.vfs[c.r.IntN(2)] = []int{0, 2, 4}[c.r.IntN(3)]
		return fmt.Sprintf("VFs: %v", c.vfs)
	case 2:
		c.pairing = []v1alpha1.Pairing{v1alpha1.PairingNone, v1alpha1.PairingSwitch}[c.r.IntN(2)]
		return "pairing " + string(c.pairing)
	}
	c.types = slices.DeleteFunc([]string{"gpu", "pf", "vf", "nvme", "other"}, func(string) bool { return c.r.IntN(5) == 0 })
	return fmt.Sprintf("config: %v", c.types)
}

// publish hands what the plugin publishes to the helper, which writes it later.
func (c *cluster) publish() string {
	n := c.node()
	for _, b := range c.booked {
		if b.prepared {
			n.Allocated = append(n.Allocated, b.device)
		}
	}
	c.plugin.Enter(n, c.now+graceTime, false)
	switch c.breach {
	case dropsAtOnce:
		n.Lingering = nil
	case forgetsCounts:
		n.Consumed = nil
	default:
	}
	pools := c.poolsOf(n)
	if c.r.IntN(20) == 0 {
		checkPools(c.t, pools)
	}
	c.plugin.Published(pools)
	c.handed = &offer{pools: pools, slices: resourceSlices(pools), node: n}
	return "publish"
}

// accept lets the API server have the slices.
func (c *cluster) accept() string {
	if c.handed == nil || c.now < c.blocked {
		return ""
	}
	if c.seen == c.server {
		c.aged = c.now
	}
	before := c.server
	c.server, c.handed = c.handed, nil
	c.written(before)
	now := published(c.server.pools)
	for _, b := range c.booked {
		for a, d := range now {
			if a != b.device && shared(d, now[b.device]) {
				b.mates[a] = true
			}
		}
	}
	return "accept"
}

// block lets the helper pause, as it does after errors.
func (c *cluster) block() string {
	c.blocked = c.now + 3600
	return "block"
}

// look lets the scheduler have the slices.
func (c *cluster) look() string {
	c.seen, c.aged = c.server, c.now
	return "look"
}

// schedule lets the scheduler allocate a device for a claim. It knows what it has allocated.
func (c *cluster) schedule() string {
	kinds := []string{"gpu", "gpu", "vf", "pf", "gpu-vf", "gpu-vf", "nvme", "other"}
	if c.still {
		kinds = c.types
	}
	kind := kinds[c.r.IntN(len(kinds))]
	for _, a := range allocateFrom(c.t, c.cache, c.seen.slices, c.devices(), claimFor(kind)) {
		c.unmet(a)
		c.booked = append(c.booked, &booking{device: a, latest: c.now + bindTime, mates: map[publish.Allocated]bool{}})
		return "schedule " + a.Name
	}
	return ""
}

func (c *cluster) devices() []publish.Allocated {
	var all []publish.Allocated
	for _, b := range c.booked {
		all = append(all, b.device)
	}
	return all
}

// unmet fails if a device is given away beside one with which it shares hardware: a function, or a unit of functions that are both
// there or of which the counter has told before.
func (c *cluster) unmet(a publish.Allocated) {
	l := device.NewLayout(c.seen.node.Snapshot)
	for _, b := range c.booked {
		for _, mine := range c.parts(a) {
			for _, its := range c.parts(b.device) {
				if mine == its || b.mates[a] || l.Unit(mine) == l.Unit(its) || pfOf(mine) == its || pfOf(its) == mine {
					c.fail("%v is given away beside %v", a, b.device)
				}
			}
		}
	}
}

// pfOf is the PF of what has a VF's address in this node.
func pfOf(a pci.Address) pci.Address {
	if a.Bus < 0x21 || a.Device < 0x10 {
		return pci.Address{Domain: 1}
	}
	return pci.Address{Bus: a.Bus}
}

func (c *cluster) parts(a publish.Allocated) []pci.Address {
	parts, err := device.ParseParts(a.Name)
	if err != nil {
		c.t.Fatal(err)
	}
	var all []pci.Address
	for _, p := range parts {
		all = append(all, p.Address)
	}
	return all
}

// one returns a random booking of a kind, or nil.
func (c *cluster) one(is func(*booking) bool) *booking {
	some := slices.DeleteFunc(slices.Clone(c.booked), func(b *booking) bool { return !is(b) })
	if len(some) == 0 {
		return nil
	}
	return some[c.r.IntN(len(some))]
}

// write writes an allocation to the API server.
func (c *cluster) write() string {
	b := c.one(func(b *booking) bool { return !b.written })
	if b == nil {
		return ""
	}
	b.written = true
	return "write " + b.device.Name
}

// giveUp lets the scheduler forget an allocation that it has not written.
func (c *cluster) giveUp() string {
	return c.end("give up", func(b *booking) bool { return !b.written })
}

// deallocate ends an allocation.
func (c *cluster) deallocate() string {
	return c.end("deallocate", func(b *booking) bool { return b.written && !b.prepared })
}

func (c *cluster) end(what string, is func(*booking) bool) string {
	b := c.one(is)
	if b == nil {
		return ""
	}
	c.booked = slices.DeleteFunc(c.booked, func(other *booking) bool { return other == b })
	return what + " " + b.device.Name
}

// prepare prepares what the node offers, as Prepare does.
func (c *cluster) prepare() string {
	offered := published(c.poolsOf(c.node()))
	b := c.one(func(b *booking) bool {
		a := b.device
		if !c.earlier {
			a.Pool = device.CurrentPool(a.Pool) // as the plan compares pools
		}
		_, ok := offered[a]
		return ok && b.written && !b.prepared
	})
	if b == nil {
		return ""
	}
	b.prepared = true
	return "prepare " + b.device.Name
}

func (c *cluster) unprepare() string {
	b := c.one(func(b *booking) bool { return b.prepared })
	if b == nil {
		return ""
	}
	b.prepared = false
	return "unprepare " + b.device.Name
}

// settle asks the API server about withdrawn devices, which answers three times of four. Allocations are written meanwhile.
func (c *cluster) settle() string {
	grace := int64(graceTime)
	if c.breach == asksAtOnce {
		grace = 0
	}
	open, listed := c.plugin.Open(c.now), c.listed()
	if c.breach == trustsItself {
		listed = nil
	}
	c.plugin.Seen(open, listed, c.now+grace)
	due := c.plugin.Due(c.now)
	if len(due) == 0 {
		return "settle"
	}
	if c.r.IntN(4) == 0 {
		c.plugin.Postpone(due, c.now+300)
		return "settle, no answer"
	}
	claimed := map[publish.Allocated]bool{}
	for _, b := range c.booked {
		if b.written {
			claimed[b.device] = true
		}
	}
	if c.breach == asksNobody {
		claimed = nil
	}
	c.write()
	return fmt.Sprintf("settle, released %v", c.plugin.Answer(due, claimed, c.now+grace))
}

// written counts the pools that are not as they were.
func (c *cluster) written(before *offer) {
	for name, pool := range c.server.pools {
		if before == nil || !equality.Semantic.DeepEqual(pool, before.pools[name]) {
			c.writes[name]++
		}
	}
}

// listed is what the API server has.
func (c *cluster) listed() map[publish.Allocated]publish.Listed {
	all := map[publish.Allocated]publish.Listed{}
	for name, pool := range c.server.pools {
		for i := range pool.Slices {
			publish.AddListed(all, name, pool.Slices[i].Devices, fmt.Sprint(c.writes[name]))
		}
	}
	return all
}

// restart replaces the plugin. The journal stays.
func (c *cluster) restart() string {
	c.plugin = publish.Withdrawals{}
	if c.breach != forgets {
		c.plugin.Seed(c.listed())
	}
	c.handed = nil
	return "restart"
}

// pass lets time pass, as much as the scheduler's bounds allow.
func (c *cluster) pass() string {
	until := c.now + c.r.Int64N(1200)
	if c.seen != c.server && c.aged+watchLag < until {
		c.look()
	}
	for _, b := range c.booked {
		b.written = b.written || b.latest < until
	}
	c.now = until
	return fmt.Sprintf("second %d", c.now)
}

// kept fails if a device that was given away is not in its slice. What the earlier version writes after the upgrade has no pools with
// current names: it deletes them, which the version under test can't prevent. Its own next write has to have them.
func (c *cluster) kept() {
	now := published(c.server.pools)
	for _, b := range c.booked {
		if c.server.earlier && !device.IsFormerPool(b.device.Pool) {
			continue
		}
		if _, there := now[b.device]; !there {
			c.fail("%v is allocated, and in no slice", b.device)
		}
	}
}

// breached is why a run ended early.
type breached struct{ why string }

func (c *cluster) fail(format string, args ...any) { panic(breached{fmt.Sprintf(format, args...)}) }

// run makes steps until one fails a check, and returns why; empty if none does.
func (c *cluster) run(steps int) (why string) {
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(breached)
			if !ok {
				panic(r)
			}
			why = b.why
		}
	}()
	for range steps {
		if event := c.step(); event != "" {
			c.events = append(c.events, event)
		}
		c.kept()
	}
	return ""
}

// TestAllocatedDevicesNeverLeaveTheirSlice, and nothing is given away twice, while the scheduler lags behind the slices, hardware and
// config change, the API server does not answer and the plugin restarts. Devices that are not allocated do leave.
func TestAllocatedDevicesNeverLeaveTheirSlice(t *testing.T) {
	const runs, steps = 50, 200
	scheduled, released := 0, 0
	for seed := range uint64(runs) {
		c := newCluster(t, seed, noBreach)
		if why := c.run(steps); why != "" {
			t.Fatalf("seed %d: %s, want no breach; after %d events:\n%s", seed, why, len(c.events), strings.Join(c.events, "\n"))
		}
		for _, e := range c.events {
			if strings.HasPrefix(e, "schedule ") {
				scheduled++
			}
			released += strings.Count(e, "worker-1") // in what is released
		}
	}
	t.Logf("%d steps: %d devices allocated, %d withdrawn ones released", runs*steps, scheduled, released)
	if scheduled < runs || released < runs {
		t.Errorf("%d devices were allocated and %d released, want at least %d each", scheduled, released, runs)
	}
}

// TestEachRuleOfWithdrawalsIsNeeded: without it the steps above fail.
func TestEachRuleOfWithdrawalsIsNeeded(t *testing.T) {
	for _, b := range []breach{dropsAtOnce, asksNobody, asksAtOnce, trustsItself, forgets, forgetsCounts} {
		t.Run(string(b), func(t *testing.T) {
			for seed := range uint64(200) {
				c := newCluster(t, seed, b)
				if why := c.run(200); why != "" {
					t.Logf("seed %d, after %d events: %s", seed, len(c.events), why)
					return
				}
			}
			t.Error("nothing failed")
		})
	}
}

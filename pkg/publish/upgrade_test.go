package publish_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// An upgraded cluster is one in which an earlier version of the plugin has published, and the version under test takes over. Until then,
// and after a downgrade, the earlier version knows its own names of pools only.

// poolsOf is what the plugin publishes, of the version that runs. The earlier one had other names for some types.
func (c *cluster) poolsOf(n *publish.Node) map[string]publish.Pool {
	if !c.earlier {
		return publish.Pools(n)
	}
	own := *n
	own.FormerNames = true
	own.Allocated, own.Lingering = c.knownEarlier(n.Allocated), c.knownEarlier(n.Lingering)
	own.Consumed = map[publish.Allocated][]resourceapi.DeviceCounterConsumption{}
	for a, consumed := range n.Consumed {
		own.Consumed[publish.Allocated{Pool: a.Pool, Name: typed(a.Name, c.renamed.former, c.renamed.current)}] = consumed
	}
	pools := publish.Pools(&own)
	for _, p := range pools {
		for _, s := range p.Slices {
			for i := range s.Devices {
				s.Devices[i].Name = typed(s.Devices[i].Name, c.renamed.current, c.renamed.former)
			}
		}
	}
	return pools
}

// knownEarlier returns the devices in pools that the earlier version knows, by the names that this version gives them.
func (c *cluster) knownEarlier(all []publish.Allocated) []publish.Allocated {
	var known []publish.Allocated
	for _, a := range all {
		if device.IsFormerPool(a.Pool) {
			known = append(known, publish.Allocated{Pool: a.Pool, Name: typed(a.Name, c.renamed.former, c.renamed.current)})
		}
	}
	return known
}

// A renaming is the type of the cluster's device at 0000:05:00.0, and that of the earlier version.
type renaming struct{ current, former string }

// typed returns the name of that device with another type, and any other name as it is.
func typed(name, from, to string) string {
	if from != "" && name == from+"-0000-05-00-0" {
		return to + "-0000-05-00-0"
	}
	return name
}

// upgrade replaces the earlier version. While both run, the earlier one may write its slices again.
func (c *cluster) upgrade() string {
	if !c.earlier {
		return ""
	}
	before := c.server
	c.earlier = false
	c.restart()
	c.publish()
	c.accept()
	what := "upgrade"
	if c.r.IntN(2) == 0 {
		c.settle()
		c.look()
		again := *before
		again.earlier = true
		now := c.server
		c.server, c.aged = &again, c.now
		c.written(now)
		what += ", and the earlier version writes once more"
	}
	return what
}

// newUpgrade is a cluster in which the earlier version has published.
func newUpgrade(t *testing.T, seed uint64, b breach) *cluster {
	c := newCluster(t, seed, b)
	c.begin()
	return c
}

// begin has the earlier version publish.
func (c *cluster) begin() {
	c.earlier, c.plugin = true, publish.Withdrawals{}
	c.publish()
	c.accept()
	c.look()
}

// upgradeRuns is how many seeds a test tries. Some faults show once in hundreds, which takes too long for each change: with
// KATA_VFIO_SCHEDULES, which soak sets, there are up to 1,500.
func upgradeRuns(t *testing.T) int {
	t.Helper()
	text, ok := os.LookupEnv("KATA_VFIO_SCHEDULES")
	if !ok {
		return 85
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("KATA_VFIO_SCHEDULES is %q, want a number from 1", text)
	}
	return min(n, 1500)
}

// TestUpgradeGivesNothingAwayTwice: claims have devices from pools with former names, or get them while the plugin is replaced, and the
// scheduler lags behind. No device leaves its slice while a claim has it, and none is on offer in two pools.
func TestUpgradeGivesNothingAwayTwice(t *testing.T) {
	runs := upgradeRuns(t)
	former, current := 0, 0
	for seed := range uint64(runs) {
		c := newUpgrade(t, seed, noBreach)
		why := c.run(40)
		if why == "" {
			c.events = append(c.events, c.upgrade())
			why = c.run(200)
		}
		if why != "" {
			t.Fatalf("seed %d: %s, after %d events:\n%s", seed, why, len(c.events), strings.Join(c.events, "\n"))
		}
		for _, b := range c.booked {
			if device.IsFormerPool(b.device.Pool) {
				former++
			} else {
				current++
			}
		}
	}
	t.Logf("at the end claims have %d devices by former names of pools, and %d by the current ones", former, current)
	if former < runs/4 || current < runs/2 {
		t.Error("that tests nothing")
	}
}

// TestUpgradeKeepsNamesOfFormerTypes: the same for an accelerator and the VF of an NVMe, which had names of other types. Hardware and config
// stay as they are, so that only the upgrade renames it.
func TestUpgradeKeepsNamesOfFormerTypes(t *testing.T) {
	for _, renamed := range []renaming{{"accelerator", "other"}, {"nvme", "vf"}} {
		t.Run(renamed.current, func(t *testing.T) {
			const address = "-0000-05-00-0"
			names := map[string]int{}
			for seed := range uint64(upgradeRuns(t)) {
				for _, b := range upgradeRenaming(t, seed, renamed) {
					names[b.device.Name]++
				}
			}
			former, current := names[renamed.former+address], names[renamed.current+address]
			t.Logf("at the end claims have %d devices by the former name, and %d by the current one", former, current)
			if former < 5 || current < 5 {
				t.Error("that tests nothing")
			}
		})
	}
}

// upgradeRenaming upgrades a cluster with a device that gets another name, and returns what claims have at the end.
func upgradeRenaming(t *testing.T, seed uint64, renamed renaming) []*booking {
	t.Helper()
	c := newCluster(t, seed, noBreach)
	c.still, c.vfs, c.types, c.renamed = true, [2]int{}, []string{renamed.current, "gpu"}, renamed
	c.begin()
	why := c.run(40)
	if why == "" {
		c.events = append(c.events, c.upgrade())
		why = c.run(200)
	}
	if why != "" {
		t.Fatalf("seed %d: %s, after %d events:\n%s", seed, why, len(c.events), strings.Join(c.events, "\n"))
	}
	return c.booked
}

// TestUpgradeNeedsTheRulesOfWithdrawals: without one of them it gives a device away twice, or drops one.
func TestUpgradeNeedsTheRulesOfWithdrawals(t *testing.T) {
	for _, b := range []breach{dropsAtOnce, asksNobody, asksAtOnce, forgets} {
		t.Run(string(b), func(t *testing.T) {
			for seed := range uint64(200) {
				c := newUpgrade(t, seed, b)
				if why := c.run(40); why != "" {
					continue // before the upgrade
				}
				c.upgrade()
				if why := c.run(200); why != "" {
					t.Logf("seed %d: %s", seed, why)
					return
				}
			}
			t.Error("nothing failed")
		})
	}
}

// TestUpgradeEnds: within some time all that no claim has is on offer by the current names. What a claim has follows when it is free.
func TestUpgradeEnds(t *testing.T) {
	c := newUpgrade(t, 1, noBreach)
	offered := slices.Sorted(func(yield func(string) bool) {
		for a := range published(c.server.pools) {
			if !yield(a.Name) {
				return
			}
		}
	})
	held := publish.Allocated{Pool: "worker-1", Name: "gpu-0000-04-00-0"}
	c.booked = append(c.booked, &booking{device: held, written: true, prepared: true, mates: map[publish.Allocated]bool{}})
	c.earlier = false
	c.restart()
	turn := func() map[publish.Allocated]bool {
		for range 20 {
			c.publish()
			c.accept()
			c.look()
			c.settle()
			c.now += 300
		}
		free := map[publish.Allocated]bool{}
		for a, d := range published(c.server.pools) {
			free[a] = !isWithdrawn(d)
		}
		return free
	}
	now := turn()
	if d := published(c.server.pools)[held]; len(d.Taints) != 0 || d.Name == "" {
		t.Errorf("the device that a claim has: %+v", d)
	}
	if pools := slices.Sorted(maps.Keys(c.server.pools)); !slices.Contains(pools, "worker-1") || slices.ContainsFunc(pools, func(p string) bool { return p != "worker-1" && device.IsFormerPool(p) }) {
		t.Errorf("pools %v", pools)
	}
	if now[publish.Allocated{Pool: "worker-1/kata-vfio.dev", Name: held.Name}] {
		t.Error("the device that a claim has is on offer too")
	}
	c.booked = nil
	now = turn()
	var names []string
	for a, free := range now {
		if !free || device.IsFormerPool(a.Pool) {
			t.Errorf("%v is on offer: %t", a, free)
		}
		names = append(names, a.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, offered) {
		t.Errorf("%v is on offer after the upgrade, want %v", names, offered)
	}
}

// TestPoolsWithFormerNames: what becomes of one GPU's entry under each name of its pool.
func TestPoolsWithFormerNames(t *testing.T) {
	const name = "gpu-0000-3b-00-0"
	former, current := publish.Allocated{Pool: "worker-1", Name: name}, publish.Allocated{Pool: "worker-1/kata-vfio.dev", Name: name}
	for what, test := range map[string]struct {
		change func(*publish.Node)
		want   map[publish.Allocated]string // the taint's value, "-" for no taint
	}{
		"a new node":                    {func(*publish.Node) {}, map[publish.Allocated]string{current: "-"}},
		"listed by the former name":     {func(n *publish.Node) { n.Lingering = []publish.Allocated{former} }, map[publish.Allocated]string{former: "Renamed"}},
		"allocated by the former name":  {func(n *publish.Node) { n.Allocated = []publish.Allocated{former} }, map[publish.Allocated]string{former: "-"}},
		"allocated by the current name": {func(n *publish.Node) { n.Allocated = []publish.Allocated{current} }, map[publish.Allocated]string{current: "-"}},
		"allocated by the former name by a scheduler that was late": {func(n *publish.Node) {
			n.Allocated, n.Lingering = []publish.Allocated{former}, []publish.Allocated{current}
		}, map[publish.Allocated]string{former: "-", current: "Moved"}},
		"allocated by the former name, and evicted": {func(n *publish.Node) {
			n.Allocated = []publish.Allocated{former}
			n.Health[addr(t, "0000:3b:00.0")] = publish.Health{Drained: rule.Draining, Evict: true}
		}, map[publish.Allocated]string{former: "Draining"}},
		"former names go on": {func(n *publish.Node) {
			n.FormerNames, n.Lingering = true, []publish.Allocated{former}
		}, map[publish.Allocated]string{former: "-"}},
		"former names go on after a change": {func(n *publish.Node) {
			n.FormerNames, n.Lingering = true, []publish.Allocated{current}
		}, map[publish.Allocated]string{current: "Renamed"}},
	} {
		t.Run(what, func(t *testing.T) {
			n := nodeOf(hopper(t, "0000:3b:00.0", 1))
			test.change(n)
			got := map[publish.Allocated]string{}
			for a, d := range published(publish.Pools(n)) {
				got[a] = "-"
				for _, taint := range d.Taints {
					got[a] = taint.Value
				}
			}
			if !maps.Equal(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
			if slices.ContainsFunc(slices.Collect(maps.Keys(publish.Empty(n))), func(p string) bool { return device.IsFormerPool(p) != n.FormerNames }) {
				t.Errorf("without devices: %s", fmt.Sprint(publish.Empty(n)))
			}
		})
	}
}

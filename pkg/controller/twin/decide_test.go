package twin_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// The GPU of the tables, the time of the decision, and the two sides' claims.
const (
	theirs = "gpu.example.com"
	now    = twin.Millis(1_000_000)
)

func ourDevice() cluster.ID {
	return cluster.ID{Driver: "kata-vfio.dev", Pool: "n/kata-vfio.dev/shared", Name: "gpu-0000-3b-00-0"}
}

func twinDevice(name string) cluster.ID { return cluster.ID{Driver: theirs, Pool: "n", Name: name} }

func vm(conditions ...twin.Condition) twin.Claim {
	return twin.Claim{UID: "vm", Namespace: "a", Name: "vm", ResourceVersion: "7", AllocatedAt: now - 5_000, Conditions: conditions}
}

func container() twin.Claim {
	return twin.Claim{UID: "container", Namespace: "b", Name: "container", ResourceVersion: "9", AllocatedAt: now - 9_000}
}

func taintRule(d cluster.ID, c twin.Claim, age twin.Millis) twin.Rule {
	return twin.Rule{Name: "rule-" + d.Name, UID: "u-" + d.Name, ResourceVersion: "3", Target: d, Mark: c.Mark(), Since: now - age}
}

// free is a GPU that nobody has, on its host driver.
func free(edits ...func(*twin.GPU)) *twin.GPU {
	g := &twin.GPU{
		PCI: "n/0000:3b:00.0", SharedWith: theirs, Fresh: true,
		Ours:  &twin.Ours{Device: ourDevice(), KernelDriver: "nvidia", Healthy: true},
		Twins: []cluster.ID{twinDevice("gpu-0")},
	}
	for _, edit := range edits {
		edit(g)
	}
	return g
}

func ours(claims ...twin.Claim) func(*twin.GPU) {
	return func(g *twin.GPU) { g.OurClaims = append(g.OurClaims, claims...) }
}

func taken(claims ...twin.Claim) func(*twin.GPU) {
	return func(g *twin.GPU) { g.TwinClaims = append(g.TwinClaims, claims...) }
}

func rules(r ...twin.Rule) func(*twin.GPU) {
	return func(g *twin.GPU) { g.Rules = append(g.Rules, r...) }
}

func twins(names ...string) func(*twin.GPU) {
	return func(g *twin.GPU) {
		g.Twins = nil
		for _, n := range names {
			g.Twins = append(g.Twins, twinDevice(n))
		}
	}
}

func cached(g *twin.GPU) { g.Fresh = false }

func gone(g *twin.GPU) { g.Ours = nil }

func on(driver string) func(*twin.GPU) { return func(g *twin.GPU) { g.Ours.KernelDriver = driver } }

func ill(g *twin.GPU) { g.Ours.Healthy = false }

func answered(kind, reason string) twin.Condition {
	return twin.Condition{Type: kind, True: true, Reason: reason, At: now}
}

func do(actions ...twin.Action) twin.Decision { return twin.Decision{Actions: actions} }

func reserve(c twin.Claim) twin.SetCondition {
	return twin.SetCondition{
		Claim: c, Type: v1alpha1.ConditionTwinReserved, True: true, Reason: rule.TwinFree, At: now,
		Message: "no claim has GPU n/0000:3b:00.0 through driver gpu.example.com, and none can get it",
	}
}

func refuse(c twin.Claim, reason rule.Code, message string) twin.SetCondition {
	return twin.SetCondition{Claim: c, AllDevices: true, Type: v1alpha1.ConditionTwinInUse, True: true, Reason: reason, Message: message, At: now}
}

const notPublished = "driver gpu.example.com does not publish GPU n/0000:3b:00.0, so it may be in use: check that the driver runs on the node"

func TestDecide(t *testing.T) {
	createOurs := twin.CreateRule{Target: ourDevice(), TwinOf: twinDevice("gpu-0"), Has: v1alpha1.TwinTheirs, Mark: "container/9"}
	createTwin := func(name string) twin.CreateRule {
		return twin.CreateRule{Target: twinDevice(name), TwinOf: ourDevice(), Has: v1alpha1.TwinOurs, Mark: "vm/7"}
	}
	onOurs, onTwin := taintRule(ourDevice(), container(), 60_000), taintRule(twinDevice("gpu-0"), vm(), 60_000)
	young := taintRule(twinDevice("gpu-0"), vm(), 1_000)
	other := taintRule(twinDevice("gpu-0"), twin.Claim{UID: "vm", ResourceVersion: "6"}, 60_000)
	damaged := taintRule(twinDevice("gpu-0"), vm(), 60_000)
	damaged.Damaged = true
	waiting := vm(twin.Condition{Type: v1alpha1.ConditionTwinReserved, Reason: string(rule.TwinNotPublished), At: now - 4_000})
	late := vm()
	late.AllocatedAt = now - twin.PublishWait
	ahead := vm()
	ahead.AllocatedAt = now + 2_000
	aheadAnswer := reserve(ahead)
	aheadAnswer.At = ahead.AllocatedAt

	for name, tc := range map[string]struct {
		gpu  *twin.GPU
		want twin.Decision
	}{
		"nobody":                             {free(), do()},
		"container comes":                    {free(taken(container())), do(createOurs)},
		"container comes, cached":            {free(taken(container()), cached), do(createOurs)},
		"container has it":                   {free(taken(container()), rules(onOurs)), do()},
		"container comes to our device gone": {free(taken(container()), gone), do()},
		"container goes":                     {free(rules(onOurs)), do(twin.DeleteRule{Rule: onOurs})},
		"container goes, cached":             {free(rules(onOurs), cached), twin.Decision{NeedsFresh: true}},
		"container goes, our device gone":    {free(rules(onOurs), gone), do(twin.DeleteRule{Rule: onOurs})},

		"VM comes":                             {free(ours(vm())), do(createTwin("gpu-0"))},
		"VM comes to partitions":               {free(ours(vm()), twins("mig-0", "mig-1")), do(createTwin("mig-0"), createTwin("mig-1"))},
		"VM waits for the rule":                {free(ours(vm()), rules(young)), twin.Decision{RequeueAfter: 2_000}},
		"VM is reserved":                       {free(ours(vm()), rules(onTwin)), do(reserve(vm()))},
		"VM is reserved, not from a cache":     {free(ours(vm()), rules(onTwin), cached), twin.Decision{NeedsFresh: true}},
		"VM has it":                            {free(ours(vm(answered(v1alpha1.ConditionTwinReserved, string(rule.TwinFree)))), rules(onTwin), on("vfio-pci")), do()},
		"VM was answered before an allocation": {free(ours(vm(twin.Condition{Type: v1alpha1.ConditionTwinReserved, True: true, At: now - 6_000})), rules(onTwin)), do(reserve(vm(twin.Condition{Type: v1alpha1.ConditionTwinReserved, True: true, At: now - 6_000})))},
		"VM's scheduler has a clock ahead":     {free(ours(ahead), rules(taintRule(twinDevice("gpu-0"), ahead, 60_000))), do(aheadAnswer)},
		"VM after another": {free(ours(vm()), rules(other)), do(
			twin.TouchRule{Rule: other, TwinOf: ourDevice(), Has: v1alpha1.TwinOurs, Mark: "vm/7"}, reserve(vm()))},
		"VM finds a damaged rule": {free(ours(vm()), rules(damaged)), do(
			twin.TouchRule{Rule: damaged, TwinOf: ourDevice(), Has: v1alpha1.TwinOurs, Mark: "vm/7"})},
		"VM finds one rule of two": {free(ours(vm()), twins("gpu-0", "mig-1"), rules(onTwin)), do(createTwin("mig-1"))},

		"VM meets container": {free(ours(vm()), taken(container())), do(createOurs, createTwin("gpu-0"))},
		"VM meets container, both with rules": {free(ours(vm()), taken(container()), rules(onOurs, onTwin)), do(
			refuse(vm(), rule.TwinAllocated, "another claim has GPU n/0000:3b:00.0 through driver gpu.example.com"))},
		"VM is refused once": {free(ours(vm(answered(v1alpha1.ConditionTwinInUse, string(rule.TwinAllocated)))), taken(container()), rules(onOurs, onTwin)), do()},

		"VM goes":                        {free(rules(onTwin)), do(twin.DeleteRule{Rule: onTwin})},
		"VM goes, cached":                {free(rules(onTwin), cached), twin.Decision{NeedsFresh: true}},
		"VM goes, VFIO":                  {free(rules(onTwin), on("vfio-pci")), do()},
		"VM goes, no kernel driver":      {free(rules(onTwin), on("")), do()},
		"VM goes, quarantined":           {free(rules(onTwin), ill), do()},
		"VM goes, slice gone":            {free(rules(onTwin), gone), do(twin.DeleteRule{Rule: onTwin})},
		"VM goes, slices gone":           {free(rules(onTwin), gone, twins()), do()},
		"VM has it, slice gone":          {free(ours(vm()), rules(onTwin), gone, cached), twin.Decision{NeedsFresh: true}},
		"VFIO without a claim or a rule": {free(on("vfio-pci")), do(twin.CreateRule{Target: twinDevice("gpu-0"), TwinOf: ourDevice(), Has: v1alpha1.TwinOurs})},

		"VM, twin not published": {free(ours(vm()), twins()), twin.Decision{
			Actions:      []twin.Action{twin.SetCondition{Claim: vm(), Type: v1alpha1.ConditionTwinReserved, Reason: rule.TwinNotPublished, Message: notPublished, At: now}},
			RequeueAfter: twin.PublishWait - 5_000,
		}},
		"VM, twin not published, explained": {free(ours(waiting), twins()), twin.Decision{RequeueAfter: twin.PublishWait - 5_000}},
		"VM, twin not published for long": {free(ours(late), twins()), do(
			twin.CreateRule{Target: ourDevice(), TwinOf: cluster.ID{Driver: theirs}, Has: v1alpha1.TwinTheirs})},
		"VM, twin not published for long, with rule": {free(ours(late), twins(), rules(onOurs)), do(refuse(late, rule.TwinNotPublished, notPublished))},
		"twin not published, rule stays":             {free(twins(), rules(onOurs)), do()},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, twin.Decide(tc.gpu, now)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDecideChangesNothing: the caller hands out what its caches share.
func TestDecideChangesNothing(t *testing.T) {
	g, same := free(ours(vm()), taken(container())), free(ours(vm()), taken(container()))
	twin.Decide(g, now)
	if diff := cmp.Diff(same, g); diff != "" {
		t.Error(diff)
	}
}

package prepare_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// wants has the node's config keep devices of a type warm.
func (w *world) wants(typ string, share v1alpha1.Share) {
	w.node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{typ}}, Warm: share}}}
	w.node.Default()
}

func (w *world) wantsGPUs(n int) { w.wants("gpu", v1alpha1.Share{Amount: n}) }

// keepWarm keeps devices warm once, and then returns what need not be, as the plugin does.
func (w *world) keepWarm() maintain.WarmPool {
	w.t.Helper()
	var last maintain.WarmPool
	for _, back := range []bool{false, true, false, true} {
		pools, err := w.plugin(nil).KeepWarm(w.t.Context(), maintain.Warming{Return: back})
		if err != nil {
			w.t.Fatal(err)
		}
		if len(pools) > 0 {
			last = pools[0]
		}
	}
	return last
}

// gpus adds GPUs of one node.
func (w *world) gpus(n int) []pci.Address {
	var all []pci.Address
	for i := range n {
		all = append(all, w.k.AddGPU(uint8(0x3b+i)))
	}
	return all
}

// wantWarm checks which of the GPUs are on VFIO, with a record of their own that a reset has proven.
func (w *world) wantWarm(when string, all []pci.Address, want ...pci.Address) {
	w.t.Helper()
	var got []pci.Address
	for _, a := range all {
		rec := w.record("standing-" + a.Label())
		if onVFIO := w.driver(a) == "vfio-pci"; onVFIO != (rec != nil) && w.record(uid) == nil {
			w.t.Errorf("%s: %s is on %q, its record %+v; want VFIO with a record, or neither", when, a, w.driver(a), rec)
		}
		if rec == nil {
			continue
		}
		got = append(got, a)
		if !rec.IsWarm() || rec.State != journal.Prepared || len(rec.Proofs) != 1 || !slices.Contains(rec.Proofs[0].Set, a) {
			w.t.Errorf("%s: record of %s: %s, proofs %+v; want it warm, prepared, with its own proof", when, a, rec.State, rec.Proofs)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s: warm (-want +got):\n%s", when, diff)
	}
}

// TestWarmDevicesAreTheFirstFreeOnes, which the scheduler takes first. The ledger has the proof of each.
func TestWarmDevicesAreTheFirstFreeOnes(t *testing.T) {
	w := newWorld(t)
	gpus := w.gpus(4)
	w.wantsGPUs(2)
	pool := w.keepWarm()
	w.wantWarm("at first", gpus, gpus[0], gpus[1])
	if pool.Want != 2 || !slices.Equal(pool.Ready, gpus[:2]) || len(pool.Failed) > 0 {
		t.Errorf("pool is %+v, want %v ready", pool, gpus[:2])
	}
	w.wantHistory("standing-"+gpus[0].Label(), "prepare", `bind "nvidia" to "vfio-pci"`, "reset")
	w.mustPrepare(w.request(uid, gpus[0]))
	w.keepWarm()
	w.wantWarm("with a claim", gpus, gpus[0], gpus[1], gpus[2])
	w.mustUnprepare(uid)
	w.keepWarm()
	w.wantWarm("after the claim", gpus, gpus[0], gpus[1])
	w.wants("gpu", v1alpha1.Share{Amount: 75, Percent: true})
	w.keepWarm()
	w.wantWarm("with a share", gpus, gpus[:3]...)
}

// TestWarmDeviceNeedsOnlyTheRecord: Prepare writes nothing to the kernel and resets nothing, and Unprepare leaves the device
// clean and on VFIO.
func TestWarmDeviceNeedsOnlyTheRecord(t *testing.T) {
	for name, build := range map[string]func(*world) (string, pci.Address, []pci.Address){
		"a GPU": func(w *world) (string, pci.Address, []pci.Address) {
			a := w.k.AddGPU(0x3b)
			return "gpu", a, []pci.Address{a}
		},
		"a GPU with audio in its group": func(w *world) (string, pci.Address, []pci.Address) {
			gpu, audio := w.k.AddGPUWithAudio(0x62, 15)
			return "gpu", gpu, []pci.Address{gpu, audio}
		},
		"a VF": func(w *world) (string, pci.Address, []pci.Address) {
			_, vfs := w.k.AddNIC(0x21, 1)
			return "vf", vfs[0], vfs
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			typ, a, takes := build(w)
			w.wants(typ, v1alpha1.Share{Amount: 1})
			if pool := w.keepWarm(); len(pool.Ready) != 1 {
				t.Fatalf("pool is %+v, want one device ready", pool)
			}
			writes, resets := len(w.k.Writes()), w.count(effects.PhaseReset)
			rec := w.mustPrepare(w.request(uid, a))
			if now := lastWrites(w, writes); len(now) > 0 || w.count(effects.PhaseReset) != resets || !rec.Plan.IsWarm() {
				t.Errorf("Prepare wrote %v, with %d resets; plan %+v; want no write, no reset, a warm plan", now, w.count(effects.PhaseReset)-resets, rec.Plan)
			}
			w.mustUnprepare(uid)
			if w.count(effects.PhaseReset) == resets || len(w.unclean()) > 0 {
				t.Errorf("Unprepare left marks %v, want a reset, and none", w.unclean())
			}
			for _, a := range takes {
				if w.driver(a) != "vfio-pci" {
					t.Errorf("%s is on %q after the claim, want it warm", a, w.driver(a))
				}
			}
		})
	}
}

// TestWarmGroupMatesAreBoundOnce: each counts, and they have one record and go back together.
func TestWarmGroupMatesAreBoundOnce(t *testing.T) {
	w := newWorld(t)
	w.k.WithIOMMUFD()
	gpu, audio := w.k.AddGPUWithAudio(0x62, 15)
	before := w.bindings()
	w.wants("gpu", v1alpha1.Share{Amount: 100, Percent: true})
	w.node.Devices[0].Match.Types = []string{"gpu", "other"}
	if pool := w.keepWarm(); pool.Want != 2 || !slices.Equal(pool.Ready, []pci.Address{gpu, audio}) {
		t.Errorf("pool is %+v, want %s and %s ready", pool, gpu, audio)
	}
	if records, errs := w.records.List(); len(records) != 1 || len(errs) > 0 {
		t.Errorf("records %+v, %v; want one", records, errs)
	}
	w.node.Devices[0].Warm = v1alpha1.Share{}
	w.keepWarm()
	if diff := cmp.Diff(before, w.bindings()); diff != "" {
		t.Errorf("at the end (-want as before +got):\n%s", diff)
	}
}

// TestWarmPlanOfAColdDevice: any change makes it cold.
func TestWarmPlanOfAColdDevice(t *testing.T) {
	w := newWorld(t)
	gpus := w.gpus(2)
	w.wantsGPUs(1)
	w.keepWarm()
	w.markUnclean(gpus[0])
	for _, a := range gpus {
		pl, err := w.plugin(nil).Plan(t.Context(), w.request(uid, a))
		if err != nil || pl.IsWarm() {
			t.Errorf("plan %+v, %v: want it cold", pl, err)
		}
	}
}

// TestWarmVFsOfPairsFollowTheirGPUs: a pair is warm as a whole, and not while its GPU is claimed.
func TestWarmVFsOfPairsFollowTheirGPUs(t *testing.T) {
	w := newWorld(t)
	var gpus []pci.Address
	for _, bus := range []uint8{0x30, 0x40} {
		gpu, _, _ := w.k.AddGPUAndNIC(bus, 3)
		gpus = append(gpus, gpu)
	}
	w.wants("gpu", v1alpha1.Share{Amount: 1})
	w.node.Devices = append(w.node.Devices, v1alpha1.DeviceRule{
		Match: v1alpha1.DeviceMatch{Types: []string{"vf"}}, Policy: v1alpha1.PolicyOnDemand, Warm: v1alpha1.Share{Amount: 1},
	})
	w.node.Pairing = v1alpha1.PairingSwitch
	snap, err := inventory.Scan(t.Context(), w.fs)
	if err != nil {
		t.Fatal(err)
	}
	vfs := map[pci.Address]pci.Address{}
	for _, p := range nodeconfig.Select(w.node, snap).Pairs() {
		vfs[p.GPU.Address] = p.VF.Address
	}
	if len(vfs) != 2 {
		t.Fatalf("pairs are %v, want two", vfs)
	}
	ready := func() []pci.Address {
		pools, err := w.plugin(nil).KeepWarm(t.Context(), maintain.Warming{})
		if err != nil || len(pools) != 2 {
			t.Fatalf("KeepWarm = %+v, %v; want two pools", pools, err)
		}
		return append(pools[0].Ready, pools[1].Ready...)
	}
	if got, want := ready(), []pci.Address{gpus[0], vfs[gpus[0]]}; !slices.Equal(got, want) {
		t.Errorf("ready %v, want %v", got, want)
	}
	w.mustPrepare(w.request(uid, gpus[0]))
	if got, want := ready(), []pci.Address{gpus[1], vfs[gpus[1]]}; !slices.Equal(got, want) {
		t.Errorf("with a claim of the first GPU: ready %v, want %v", got, want)
	}
}

// TestWarmDevicesAreInTheOrderOfTheSlices, which the scheduler goes through pool by pool: those that publish puts first are warm first.
func TestWarmDevicesAreInTheOrderOfTheSlices(t *testing.T) {
	for _, pairing := range []v1alpha1.Pairing{v1alpha1.PairingNone, v1alpha1.PairingSwitch} {
		w := newWorld(t)
		w.name = "node"
		for _, bus := range []uint8{0x30, 0x40} {
			w.k.AddGPUAndNIC(bus, 3)
		}
		w.k.AddGPU(0x3b)
		w.k.AddNIC(0x21, 2)
		w.wants("gpu", v1alpha1.Share{Amount: 100, Percent: true})
		w.node.Devices[0].Match.Types = []string{"gpu", "vf"}
		w.node.Pairing = pairing
		pools, err := w.plugin(nil).KeepWarm(t.Context(), maintain.Warming{})
		if err != nil || len(pools) != 1 || len(pools[0].Ready) != 11 {
			t.Fatalf("KeepWarm = %+v, %v; want one pool with 11 devices ready", pools, err)
		}
		if diff := cmp.Diff(w.published(), pools[0].Ready); diff != "" {
			t.Errorf("pairing %s (-want of the slices +got warm):\n%s", pairing, diff)
		}
	}
}

// published returns the functions of the node's slices, pools by name, each function once.
func (w *world) published() []pci.Address {
	w.t.Helper()
	snap, err := inventory.Scan(w.t.Context(), w.fs)
	if err != nil {
		w.t.Fatal(err)
	}
	known, err := w.plugin(nil).PlanNode(w.t.Context(), snap)
	if err != nil {
		w.t.Fatal(err)
	}
	n := &publish.Node{Name: w.name, Snapshot: snap, Selection: known.Selection, Assessments: map[pci.Address]plan.Assessment{}}
	assessor := plan.NewAssessor(known)
	for _, f := range known.Selection.Ours() {
		n.Assessments[f.Address] = assessor.Assess(f)
	}
	pools := publish.Pools(n)
	var all []pci.Address
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		for _, slice := range pools[name].Slices {
			for i := range slice.Devices {
				parts, err := device.ParseParts(slice.Devices[i].Name)
				if err != nil {
					w.t.Fatal(err)
				}
				for _, p := range parts {
					if !slices.Contains(all, p.Address) {
						all = append(all, p.Address)
					}
				}
			}
		}
	}
	return all
}

// TestWarmPoolPassesOverWhatItMustNotTake: what the node uses, what is drained, and what can't be given to a tenant.
func TestWarmPoolPassesOverWhatItMustNotTake(t *testing.T) {
	for name, spoil := range map[string]func(*world, pci.Address){
		"in use by the node": func(w *world, a pci.Address) {
			w.k.Hold("/dev/nvidia0", nobody, "python", container)
		},
		"drained":       func(w *world, a pci.Address) { w.mustDrain(a) },
		"bound by hand": func(w *world, a pci.Address) { w.rebind(a, "vfio-pci") },
		"claimed":       func(w *world, a pci.Address) { w.mustPrepare(w.request(uid, a)) },
		"quarantined": func(w *world, a pci.Address) {
			w.mustPrepare(w.request(uid, a))
			w.k.OnReset(a, w.resets(false))
			_, err := w.plugin(nil).Unprepare(w.t.Context(), uid)
			wantQuarantined(w.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpus := w.gpus(3)
			w.wantsGPUs(2)
			spoil(w, gpus[0])
			before := w.bindings()[gpus[0]]
			if pool := w.keepWarm(); !slices.Equal(pool.Ready, gpus[1:]) {
				t.Errorf("pool %+v, want the others ready", pool)
			}
			if now := w.bindings()[gpus[0]]; now != before || w.record("standing-"+gpus[0].Label()) != nil {
				t.Errorf("bound %+v, want %+v as before, and no record", now, before)
			}
		})
	}
}

// TestWarmingThatFailsIsTriedElsewhere: the function is as before, and skipped when that is asked for.
func TestWarmingThatFailsIsTriedElsewhere(t *testing.T) {
	w := newWorld(t)
	gpus := w.gpus(2)
	w.wantsGPUs(1)
	broken := true
	w.k.OnWrite(func(path, value string) error {
		if broken && value == gpus[0].String() {
			return unix.EIO
		}
		return nil
	})
	pools, err := w.plugin(nil).KeepWarm(t.Context(), maintain.Warming{})
	if err != nil || !errors.Is(pools[0].Failed[gpus[0]], unix.EIO) || !slices.Equal(pools[0].Ready, gpus[1:]) {
		t.Errorf("KeepWarm = %+v, %v; want %s failed with %v, and %v ready", pools, err, gpus[0], unix.EIO, gpus[1:])
	}
	if w.driver(gpus[0]) != "nvidia" || w.record("standing-"+gpus[0].Label()) != nil {
		t.Errorf("it is on %q, with a record: %t; want nvidia, false", w.driver(gpus[0]), w.record("standing-"+gpus[0].Label()) != nil)
	}
	broken = false
	skip := maintain.Warming{Skip: func(a pci.Address) bool { return a == gpus[0] }, Return: true}
	if pools, err = w.plugin(nil).KeepWarm(t.Context(), skip); err != nil || !slices.Equal(pools[0].Ready, gpus[1:]) {
		t.Errorf("skipping: KeepWarm = %+v, %v; want %v ready", pools, err, gpus[1:])
	}
	w.keepWarm()
	w.wantWarm("later", gpus, gpus[0])
}

// TestWarmingWithoutAProofQuarantines: no claim gets what can't be proven clean, and a drain waits for its proof.
func TestWarmingWithoutAProofQuarantines(t *testing.T) {
	w := newWorld(t)
	gpus := w.gpus(2)
	w.wantsGPUs(1)
	w.k.OnReset(gpus[0], w.resets(false))
	if pool := w.keepWarm(); !slices.Equal(pool.Ready, gpus[1:]) {
		t.Errorf("pool %+v, want the other one ready", pool)
	}
	id := "standing-" + gpus[0].Label()
	if rec := w.record(id); rec == nil || rec.State != journal.Quarantined {
		t.Fatalf("record %+v, want a quarantine", rec)
	}
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, gpus[0]))
	if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.Quarantined) {
		t.Errorf("Prepare = %v, want it refused as quarantined", err)
	}
	if state := w.mustDrain(gpus[0]); state.Done() || state.Due() || len(state.Quarantined) != 1 {
		t.Errorf("drain %+v, want it to wait", state)
	}
	w.k.OnReset(gpus[0], w.resets(true))
	w.mustUnprepare(id)
	if w.driver(gpus[0]) != "nvidia" {
		t.Errorf("it is on %q after the quarantine, want nvidia", w.driver(gpus[0]))
	}
}

// TestDrainedWarmDeviceGoesToItsDriver, and is warm again after the drain.
func TestDrainedWarmDeviceGoesToItsDriver(t *testing.T) {
	w := newWorld(t)
	gpus := w.gpus(2)
	w.wantsGPUs(1)
	w.keepWarm()
	if state := w.mustDrain(gpus[0]); !state.Done() || w.driver(gpus[0]) != "nvidia" {
		t.Errorf("drain %+v, driver %q; want it done, nvidia", state, w.driver(gpus[0]))
	}
	w.keepWarm()
	w.wantWarm("drained", gpus, gpus[1])
	w.mustUndrain(gpus[0])
	w.keepWarm()
	w.wantWarm("undrained", gpus, gpus[0])
}

// TestWarmDevicesFollowTheConfig: those that it no longer wants go back, also from policy "bound", but none that a claim has.
func TestWarmDevicesFollowTheConfig(t *testing.T) {
	for name, before := range map[string]func(*world){
		"more were warm": func(w *world) {
			w.wantsGPUs(3)
			w.keepWarm()
		},
		"all were bound": (*world).boundByPolicy,
	} {
		for after, config := range map[string]struct {
			set func(*world, []pci.Address)
			// left are the first devices that stay on VFIO.
			left int
		}{
			"one":      {func(w *world, _ []pci.Address) { w.wantsGPUs(1) }, 2},
			"none":     {func(w *world, _ []pci.Address) { w.wantsGPUs(0) }, 1},
			"bound":    {func(w *world, _ []pci.Address) { w.boundByPolicy() }, 3},
			"excluded": {func(w *world, all []pci.Address) { w.node.Devices[0].Exclude = true }, map[string]int{"more were warm": 1, "all were bound": 3}[name]},
		} {
			t.Run(name+", then "+after, func(t *testing.T) {
				w := newWorld(t)
				gpus := w.gpus(3)
				before(w)
				w.mustPrepare(w.request(uid, gpus[0]))
				config.set(w, gpus)
				w.mustRecover()
				w.keepWarm()
				for i, a := range gpus {
					if onVFIO := w.driver(a) == "vfio-pci"; onVFIO != (i < config.left) {
						t.Errorf("device %d is on %q, want the first %d to stay on VFIO", i, w.driver(a), config.left)
					}
				}
			})
		}
	}
}

// TestWarmDeviceThatIsNotCleanAnyMore is reset before it counts again.
func TestWarmDeviceThatIsNotCleanAnyMore(t *testing.T) {
	w := newWorld(t)
	gpus := w.gpus(2)
	w.wantsGPUs(1)
	w.keepWarm()
	w.mustPrepare(skipping(w.request(uid, gpus[0])))
	w.mustUnprepare(uid)
	if len(w.unclean()) != 1 {
		t.Fatal("the class that waives resets left no mark")
	}
	w.keepWarm()
	w.wantWarm("later", gpus, gpus[0])
	if marks := w.unclean(); len(marks) > 0 {
		t.Errorf("marks %v, want none", marks)
	}
}

// TestWarmDeviceThatWasMovedIsBoundAgain, and is not reset below another driver.
func TestWarmDeviceThatWasMovedIsBoundAgain(t *testing.T) {
	w := newWorld(t)
	gpus := w.gpus(1)
	w.wantsGPUs(1)
	w.keepWarm()
	w.rebind(gpus[0], "nvidia")
	w.keepWarm()
	w.wantWarm("moved", gpus, gpus[0])
	w.rebind(gpus[0], "nvidia")
	holder := w.k.Hold("/dev/nvidia0", nobody, "python", container)
	w.wantsGPUs(0)
	resets := w.count(effects.PhaseReset)
	_, err := w.plugin(nil).KeepWarm(t.Context(), maintain.Warming{Return: true})
	if as[*effects.InUseError](t, err); w.count(effects.PhaseReset) != resets || w.driver(gpus[0]) != "nvidia" {
		t.Errorf("it was reset, or is on %q, want no reset, nvidia", w.driver(gpus[0]))
	}
	holder.Release()
	w.keepWarm()
	w.wantWarm("at the end", gpus)
}

// TestBoundDeviceIsNotTakenFromItsClaim, when an operator takes off its record without a claim.
func TestBoundDeviceIsNotTakenFromItsClaim(t *testing.T) {
	for name, bind := range map[string]func(*world){
		"by policy": (*world).boundByPolicy,
		"warm": func(w *world) {
			w.wantsGPUs(1)
			w.keepWarm()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.gpus(1)[0]
			bind(w)
			w.mustPrepare(w.request(uid, gpu))
			_, err := w.plugin(nil).Unprepare(t.Context(), "standing-"+gpu.Label())
			says(t, err, "a claim has the device", "unprepare the claim first")
			if w.driver(gpu) != "vfio-pci" || w.record("standing-"+gpu.Label()) == nil {
				t.Errorf("it is on %q, want vfio-pci with a record", w.driver(gpu))
			}
			w.mustUnprepare(uid)
			w.mustUnprepare("standing-" + gpu.Label())
			if w.driver(gpu) != "nvidia" {
				t.Errorf("at the end it is on %q, want nvidia", w.driver(gpu))
			}
		})
	}
}

// TestBoundDeviceStaysWhileARecordIsDamaged: the record may be of a claim that has the device, so it is neither taken off nor
// bound again.
func TestBoundDeviceStaysWhileARecordIsDamaged(t *testing.T) {
	w := newWorld(t)
	gpu := w.gpus(1)[0]
	w.boundByPolicy()
	w.mustPrepare(w.request(uid, gpu))
	w.spoil(uid, "{", "!")
	_, err := w.plugin(nil).Unprepare(t.Context(), "standing-"+gpu.Label())
	says(t, err, w.recordFile(uid), "can't be read", "repair or remove that file")
	if got := w.driver(gpu); got != "vfio-pci" || w.record("standing-"+gpu.Label()) == nil {
		t.Errorf("it is on %q, want vfio-pci with its record", got)
	}
	_, err = w.plugin(nil).Prepare(t.Context(), w.request("other", gpu))
	if !wantRefused(t, err).Has(rule.DamagedRecord) {
		t.Errorf("Prepare of another claim: %v, want it refused as %s", err, rule.DamagedRecord)
	}
	w.rebind(gpu, "nvidia")
	if err := w.plugin(nil).BindByPolicy(t.Context()); err == nil || w.driver(gpu) != "nvidia" {
		t.Errorf("after a move: %v, on %q; want an error, and the device still on nvidia", err, w.driver(gpu))
	}
}

// TestWarmPoolKnowsOfADamagedRecord: it may be of a claim that has the device.
func TestWarmPoolKnowsOfADamagedRecord(t *testing.T) {
	w := newWorld(t)
	gpus := w.gpus(1)
	w.wantsGPUs(1)
	w.keepWarm()
	w.mustPrepare(w.request(uid, gpus[0]))
	w.spoil(uid, "{", "!")
	w.wantsGPUs(0)
	w.keepWarm()
	if w.driver(gpus[0]) != "vfio-pci" || w.record("standing-"+gpus[0].Label()) == nil {
		t.Errorf("it is on %q, want vfio-pci with a record", w.driver(gpus[0]))
	}
}

// TestWarmPoolIsCutOffAnywhere: after Recover each device is warm, or where it was, and the next look continues.
func TestWarmPoolIsCutOffAnywhere(t *testing.T) {
	for name, act := range map[string]struct {
		wants int
		how   maintain.Warming
	}{
		"while it fills":   {1, maintain.Warming{}},
		"while it returns": {0, maintain.Warming{Return: true}},
	} {
		for _, reboot := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reboot %t", name, reboot), func(t *testing.T) {
				points := 0
				for done := false; !done; points++ {
					done = cutOffWarming(t, act.wants, act.how, &power{at: points/2 + 1, after: points%2 == 1}, reboot)
				}
				if points < 10 {
					t.Errorf("%d points were tried, want at least 10", points)
				}
			})
		}
	}
}

// cutOffWarming cuts one look off, and reports whether the power outlasted it.
func cutOffWarming(t *testing.T, wants int, how maintain.Warming, p *power, reboot bool) (done bool) {
	t.Helper()
	w := newWorld(t)
	gpus := w.gpus(1)
	original := w.bindings()
	if how.Return {
		w.wantsGPUs(1)
		w.keepWarm()
	}
	w.wantsGPUs(wants)
	_, _ = w.plugin(p).KeepWarm(t.Context(), how) // the process is dead: nobody sees its error
	where := fmt.Sprintf("cut at effect %d (after: %t)", p.at, p.after)
	if reboot {
		w.k.Reboot()
		original = w.bindings()
	}
	w.mustRecover()
	if rec := w.record("standing-" + gpus[0].Label()); rec == nil {
		if diff := cmp.Diff(original, w.bindings()); diff != "" {
			t.Errorf("%s: no record, but (-want the original +got):\n%s", where, diff)
		}
	} else {
		w.wantWarm(where, gpus, gpus[0])
	}
	w.mustPrepare(w.request(uid, gpus[0]))
	w.mustUnprepare(uid)
	w.wantsGPUs(1)
	w.keepWarm()
	w.wantWarm(where+", then wanted", gpus, gpus[0])
	w.wantsGPUs(0)
	w.keepWarm()
	if diff := cmp.Diff(original, w.bindings()); diff != "" {
		t.Errorf("%s: at the end (-want the original +got):\n%s", where, diff)
	}
	return !p.off
}

// TestWarmPoolAndClaimsAtOnce: they wait for each other, and no claim loses a device.
func TestWarmPoolAndClaimsAtOnce(t *testing.T) {
	w := newWorld(t)
	gpus := w.gpus(3)
	w.wantsGPUs(2)
	stop, pool := make(chan struct{}), sync.WaitGroup{}
	for range 2 { // two instances, as in a rolling update
		pool.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := w.plugin(nil).KeepWarm(t.Context(), maintain.Warming{Return: i%2 == 1}); err != nil {
					t.Errorf("KeepWarm: %v, want nil", err)
				}
			}
		})
	}
	var claims sync.WaitGroup
	for i, a := range gpus {
		claims.Go(func() {
			id, p := fmt.Sprint("claim-", i), w.plugin(nil)
			for range 8 {
				if _, err := p.Prepare(t.Context(), w.request(id, a)); err != nil {
					t.Errorf("Prepare: %v, want nil", err)
					continue
				}
				if driver := w.driver(a); driver != "vfio-pci" || !w.hasSpec(id) {
					t.Errorf("%s of a prepared claim is on %q, want vfio-pci with a CDI spec", a, driver)
				}
				if _, err := p.Unprepare(t.Context(), id); err != nil {
					t.Errorf("Unprepare: %v, want nil", err)
				}
			}
		})
	}
	claims.Wait()
	close(stop)
	pool.Wait()
	w.keepWarm()
	w.wantWarm("at the end", gpus, gpus[0], gpus[1])
}

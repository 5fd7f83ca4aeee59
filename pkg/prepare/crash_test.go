package prepare_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// A scene is a node and what a claim asks of it: one for each kind of plan.
type scene struct {
	name  string
	build func(*world) []pci.Address
}

func scenes() []scene {
	one := func(a pci.Address) []pci.Address { return []pci.Address{a} }
	return []scene{
		{"a GPU alone", func(w *world) []pci.Address { return one(w.k.AddGPU(0x3b)) }},
		{"a GPU with audio in its group", func(w *world) []pci.Address {
			gpu, _ := w.k.AddGPUWithAudio(0x62, 15)
			return one(gpu)
		}},
		{"a GPU with companions in other groups", func(w *world) []pci.Address {
			gpu, _ := w.k.AddGPUWithCompanions(0x70)
			return one(gpu)
		}},
		{"a VF", func(w *world) []pci.Address {
			_, vfs := w.k.AddNIC(0x21, 2)
			return one(vfs[1])
		}},
		{"a VF as a physical endpoint", func(w *world) []pci.Address {
			_, vfs := w.k.AddNIC(0x21, 2)
			w.vf = endpoint()
			return one(vfs[1])
		}},
		{"a GPU, and as a physical endpoint a VF without a driver, with addresses from a pool", func(w *world) []pci.Address {
			gpu := w.k.AddGPU(0x3b)
			_, vfs := w.k.AddNIC(0x21, 1)
			w.unbind(vfs[0], "igbvf")
			w.usePool()
			w.vf, w.network = endpoint(), nil
			w.vf.Network = &v1alpha1.GuestNetwork{AddressPool: "tenants"}
			return []pci.Address{gpu, vfs[0]}
		}},
		{"a VF with addresses from a pool", func(w *world) []pci.Address {
			w.usePool()
			_, vfs := w.k.AddNIC(0x21, 2)
			return vfs[:1]
		}},
		{"a VF of InfiniBand", func(w *world) []pci.Address {
			w.links.Use(vftest.InfiniBand())
			_, vfs := w.k.AddHCA(0x21, 2)
			return one(vfs[1])
		}},
		{"a GPU and a VF", func(w *world) []pci.Address {
			gpu := w.k.AddGPU(0x3b)
			_, vfs := w.k.AddNIC(0x21, 1)
			return []pci.Address{gpu, vfs[0]}
		}},
		{"a GPU on vfio-pci already", func(w *world) []pci.Address {
			return one(addGPU(w, func(f *sysfstest.Function) { f.Driver = "vfio-pci" }))
		}},
		{"a GPU without a driver", func(w *world) []pci.Address {
			return one(addGPU(w, func(f *sysfstest.Function) { f.Driver = "" }))
		}},
		{"a GPU that is not proven clean", func(w *world) []pci.Address {
			gpu := w.k.AddGPU(0x3b)
			w.markUnclean(gpu)
			return one(gpu)
		}},
		{"a GPU by cdev", func(w *world) []pci.Address {
			w.k.WithIOMMUFD()
			return one(w.k.AddGPU(0x3b))
		}},
		{"a GPU bound by policy", func(w *world) []pci.Address {
			gpu := w.k.AddGPU(0x3b)
			w.node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{
				Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, Policy: v1alpha1.PolicyBound,
			}}}
			w.node.Default()
			if err := w.plugin(nil).BindByPolicy(w.t.Context()); err != nil {
				w.t.Fatal(err)
			}
			return one(gpu)
		}},
		{"a slice of an Intel GPU", func(w *world) []pci.Address {
			_, vfs := w.k.AddXeHost(0x3b, 3)
			w.slices(v1alpha1.GPUSliceRule{Intel: &v1alpha1.IntelSlices{ExecQuantumMs: new(16), Priority: v1alpha1.SliceNormal, MemoryMiB: new(1023)}})
			return one(vfs[1])
		}},
		{"a vGPU of NVIDIA's driver", func(w *world) []pci.Address {
			w.k.WithIOMMUFD()
			_, vfs := w.k.AddVGPUHost(0x3b, 4, sysfstest.VGPUType{ID: 1428, Name: "NVIDIA H200X-35C", GiB: 35, Max: 4})
			w.slices(v1alpha1.GPUSliceRule{NVIDIA: &v1alpha1.NVIDIASlices{VGPUType: "NVIDIA H200X-35C", Instances: 4}})
			return one(vfs[1])
		}},
		{"two GPUs of an NVLink partition", func(w *world) []pci.Address {
			w.corner()
			return w.partition("gpu-x2-0000-86-87")
		}},
		{"a single GPU of an NVLink fabric", func(w *world) []pci.Address {
			w.corner()
			return one(pci.Address{Bus: 0x86})
		}},
		{"a GPU of a fifth provider", func(w *world) []pci.Address {
			w.fifth = newFifth()
			return one(w.k.AddGPU(0x3b))
		}},
		{"a GPU that is kept warm", func(w *world) []pci.Address {
			gpu := w.k.AddGPU(0x3b)
			w.wantsGPUs(1)
			w.keepWarm()
			return one(gpu)
		}},
	}
}

func addGPU(w *world, change func(*sysfstest.Function)) pci.Address {
	f := sysfstest.GPU(pci.Address{Bus: 0x3b})
	change(&f)
	w.k.AddRootPort(0x3b)
	w.k.Add(f)
	return f.Address
}

const uid = "0f8fad5b"

// act is a half of a claim's life.
type act struct {
	name string
	// begin sets the stage, run does what is cut off.
	begin func(*world, []pci.Address)
	run   func(*world, *power, []pci.Address) error
}

func acts() []act {
	prepareClaim := func(w *world, p *power, addrs []pci.Address) error {
		_, err := w.plugin(p).Prepare(w.t.Context(), w.request(uid, addrs...))
		return err
	}
	return []act{
		{"prepare", func(*world, []pci.Address) {}, prepareClaim},
		{"unprepare", func(w *world, addrs []pci.Address) {
			w.mustPrepare(w.request(uid, addrs...))
		}, func(w *world, p *power, _ []pci.Address) error {
			_, err := w.plugin(p).Unprepare(w.t.Context(), uid)
			return err
		}},
		{"hand over to a second sandbox", func(w *world, addrs []pci.Address) {
			w.mustPrepare(w.request(uid, addrs...))
			w.mustHandOver("first")
			w.kataTakes(addrs)
		}, func(w *world, p *power, _ []pci.Address) error {
			return w.plugin(p).HandOver(w.t.Context(), uid, journal.Sandbox{ID: "second", NetNS: "/run/netns/second"})
		}},
		{"recover from a cut-off prepare", func(w *world, addrs []pci.Address) {
			_ = prepareClaim(w, &power{at: 4, after: true}, addrs) // cut off amid its steps
		}, func(w *world, p *power, _ []pci.Address) error {
			_, err := w.plugin(p).Recover(w.t.Context())
			return err
		}},
	}
}

// TestCrashAtEveryPoint cuts the power before and after every single effect
// (each write to sysfs, each change of the journal and of a CDI spec) of every
// kind of plan, once with a reboot on top, and once with the loss of all that is not
// synced, too. At two of three points the clock has jumped by then. After Recover each claim is
// whole or gone.
func TestCrashAtEveryPoint(t *testing.T) {
	points := 0
	for _, sc := range scenes() {
		for _, a := range acts() {
			t.Run(sc.name+"/"+a.name, func(t *testing.T) {
				n := countEffects(t, sc, a)
				for at := 1; at <= n; at++ {
					for _, after := range []bool{false, true} {
						for _, reboot := range []bool{false, true} {
							crash(t, sc, a, &power{at: at, after: after}, reboot, false)
							points++
						}
						crash(t, sc, a, &power{at: at, after: after}, true, true)
						points++
					}
				}
			})
		}
	}
	t.Logf("%d crash points tried", points)
}

// countEffects returns how many effects the act has.
func countEffects(t *testing.T, sc scene, a act) int {
	t.Helper()
	w := newWorld(t)
	addrs := sc.build(w)
	a.begin(w, addrs)
	p := &power{}
	if err := a.run(w, p, addrs); err != nil {
		t.Fatal(err)
	}
	if p.count == 0 {
		t.Fatalf("%s has no effects, want some to cut off", a.name)
	}
	return p.count
}

// crash plays the act up to the power cut, and checks what recovery leaves.
func crash(t *testing.T, sc scene, a act, p *power, reboot, loss bool) {
	t.Helper()
	w := newWorld(t)
	addrs := sc.build(w)
	original := w.bindings()
	a.begin(w, addrs)
	_ = a.run(w, p, addrs) // the process is dead: nobody sees its error
	where := fmt.Sprintf("cut at effect %d (after: %t, reboot: %t, loss: %t)", p.at, p.after, reboot, loss)
	if loss {
		p.lose()
	}
	if reboot {
		w.k.Reboot()
		if w.fm != nil {
			w.fm.Restart(false)
		}
		w.fifth.reboot()
		original = w.bindings()
	}
	if jumps := []time.Duration{0, time.Hour, -time.Hour}; !loss { // the clock does not decide what is recovered
		w.jumpClock(jumps[p.at%len(jumps)])
	}
	planned, mark := ahead(w.record(uid), w.bootID(), true), len(w.events)
	r, err := w.plugin(nil).Recover(t.Context())
	if err != nil || len(r.Unfinished) > 0 || len(r.Quarantined) > 0 {
		t.Fatalf("%s: Recover = %+v, %v; want nothing unfinished or quarantined", where, r, err)
	}
	planned.wantSome(t, where+": Recover", w.executed(mark))
	checkWholeOrGone(t, w, where, original, reboot)
	w.wantPartitionsOfRecords(where)
	planned, mark = ahead(w.record(uid), w.bootID(), false), len(w.events)
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Fatalf("%s: Unprepare after Recover: %v, want nil", where, err)
	}
	planned.wantSome(t, where+": Unprepare", w.executed(mark))
	if diff := cmp.Diff(original, w.bindings()); diff != "" {
		t.Errorf("%s: after Unprepare (-want the original +got):\n%s", where, diff)
	}
	if changed := w.changedVFs(); len(changed) > 0 {
		t.Errorf("%s: after Unprepare PFs impose %v, want none", where, changed)
	}
	w.wantNoSettings(where + ": after Unprepare")
	w.wantAddresses(where + ": after Unprepare")
	w.wantWholeHistory(where, reboot)
}

// checkWholeOrGone checks the two ends that a claim may come to.
func checkWholeOrGone(t *testing.T, w *world, where string, original map[pci.Address]plan.Binding, reboot bool) {
	t.Helper()
	w.wantAddresses(where, w.recorded(uid)...)
	now, rec := w.bindings(), w.record(uid)
	if rec == nil {
		if w.hasSpec(uid) {
			t.Errorf("%s: no record, but a CDI spec; want neither", where)
		}
		if diff := cmp.Diff(original, now); diff != "" {
			t.Errorf("%s: no record, but (-want the original +got):\n%s", where, diff)
		}
		if changed := w.changedVFs(); len(changed) > 0 {
			t.Errorf("%s: no record, but PFs impose %v, want none", where, changed)
		}
		w.wantNoSettings(where + ": no record")
		return
	}
	if reboot {
		t.Errorf("%s: the record outlived its boot, want none", where)
	}
	if rec.State != journal.Prepared || !w.hasSpec(uid) {
		t.Errorf("%s: record in state %s, CDI spec: %t; want %s, true", where, rec.State, w.hasSpec(uid), journal.Prepared)
	}
	if marks := w.unclean(); len(marks) > 0 {
		t.Errorf("%s: prepared, and %v not proven clean, want none", where, marks)
	}
	for _, fn := range rec.Plan.Functions {
		want := fn.Target
		if fn.Endpoint != nil {
			want = *fn.Endpoint
		}
		if fn.Endpoint != nil && rec.Sandbox != nil {
			continue // it is where Kata wants it
		}
		if now[fn.Address] != want {
			t.Errorf("%s: %s is bound %+v, want %+v", where, fn.Address, now[fn.Address], want)
		}
	}
}

// TestErrorAtEveryPoint lets every single effect fail once: an I/O error of
// the kernel, a full disk at any journal or CDI write. The act either gets
// over it or fails with everything taken back, or says what it could not take
// back and Recover does.
func TestErrorAtEveryPoint(t *testing.T) {
	points := 0
	for _, sc := range scenes() {
		for _, a := range acts()[:2] {
			t.Run(sc.name+"/"+a.name, func(t *testing.T) {
				n := countEffects(t, sc, a)
				for at := 1; at <= n; at++ {
					for _, errno := range []error{unix.EIO, unix.ENOSPC} {
						failOnce(t, sc, a, &power{at: at, fail: errno})
						points++
					}
				}
			})
		}
	}
	t.Logf("%d points of failure tried", points)
}

func failOnce(t *testing.T, sc scene, a act, p *power) {
	t.Helper()
	w := newWorld(t)
	addrs := sc.build(w)
	original := w.bindings()
	a.begin(w, addrs)
	err := a.run(w, p, addrs)
	where := fmt.Sprintf("%v at effect %d (got %v)", p.fail, p.at, err)
	_, quarantined := errors.AsType[*prepare.QuarantinedError](err)
	if a.name == "prepare" && err != nil && !quarantined {
		checkWholeOrGone(t, w, where, original, false)
		if w.record(uid) != nil {
			t.Errorf("%s: Prepare failed and left a record, want none", where)
		}
	}
	settleAfter(t, w, where)
	if diff := cmp.Diff(original, w.bindings()); diff != "" {
		t.Errorf("%s: at the end (-want the original +got):\n%s", where, diff)
	}
	if changed := w.changedVFs(); len(changed) > 0 {
		t.Errorf("%s: at the end PFs impose %v, want none", where, changed)
	}
	w.wantNoSettings(where + ": at the end")
	w.wantAddresses(where + ": at the end")
	w.wantWholeHistory(where, false)
}

// settleAfter unprepares until nothing is left; a quarantine is lifted by the
// second try, since the device answers again.
func settleAfter(t *testing.T, w *world, where string) {
	t.Helper()
	var err error
	for range 2 {
		if _, err = w.plugin(nil).Unprepare(t.Context(), uid); err == nil {
			break
		}
	}
	if err != nil || w.record(uid) != nil || w.hasSpec(uid) {
		t.Errorf("%s: Unprepare = %v, record %v, CDI spec %t; want nil, nil, false", where, err, w.record(uid), w.hasSpec(uid))
	}
}

// TestCrashThenUsedByTheHostAtEveryPoint cuts the power at every effect of an Unprepare. Before the next start somebody
// gives the GPU to its host driver, and a process uses it there: nothing is reset or unbound below that, and when the
// process has ended, the claim ends as ever.
func TestCrashThenUsedByTheHostAtEveryPoint(t *testing.T) {
	sc, unprepare := scenes()[0], acts()[1]
	for at := 1; at <= countEffects(t, sc, unprepare); at++ {
		w := newWorld(t)
		w.k.AddNVIDIANodes()
		gpu := sc.build(w)[0]
		unprepare.begin(w, []pci.Address{gpu})
		_ = unprepare.run(w, &power{at: at, after: true}, nil)
		w.rebind(gpu, "nvidia")
		h := w.k.Hold("/dev/nvidia0", nobody, "python3", container)
		resets, writes := len(w.k.Resets()), len(w.k.Writes())
		_, recoverErr := w.plugin(nil).Recover(t.Context())
		_, err := w.plugin(nil).Unprepare(t.Context(), uid)
		if w.driver(gpu) != "nvidia" || len(w.k.Resets()) != resets {
			t.Errorf("cut at effect %d: driver %q, %d resets, wrote %v; Recover %v, Unprepare %v", at, w.driver(gpu),
				len(w.k.Resets())-resets, lastWrites(w, writes), recoverErr, err)
		}
		h.Release()
		if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil || w.record(uid) != nil || w.driver(gpu) != "nvidia" {
			t.Errorf("cut at effect %d, at the end: %v, record %+v, driver %q; want nil, nil, nvidia", at, err, w.record(uid), w.driver(gpu))
		}
	}
}

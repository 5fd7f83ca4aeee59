package prepare_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// putDisk puts a disk of the host, mounted, in the place of a function.
func (w *world) putDisk(a pci.Address) {
	w.k.Replace(sysfstest.NVMe(a))
	w.k.AddMount("nvme0n1", "/var/lib/data")
}

// putUplink puts a NIC with the node's default route in the place of a function.
func (w *world) putUplink(a pci.Address) {
	nic := sysfstest.NIC(a)
	nic.Capabilities.SRIOV, nic.SRIOV = nil, nil
	w.k.Replace(nic)
	w.k.AddDefaultRoute(w.function(a).Children.Net[0], "192.0.2.5/24", "192.0.2.1")
}

// untouched runs work, which must write nothing to the kernel.
func (w *world) untouched(work func() error) error {
	w.t.Helper()
	before := len(w.k.Writes())
	err := work()
	for _, x := range w.k.Writes()[before:] {
		w.t.Errorf("wrote %s <- %q (%v), want no write", x.Path, x.Value, x.Err)
	}
	return err
}

func (w *world) recovered() error {
	r, err := w.plugin(nil).Recover(w.t.Context())
	if err != nil {
		return err
	}
	return errors.Join(r.Unfinished...)
}

// stages bring a claim of a GPU to each point at which something can come to its address.
func stages() map[string]func(*world) pci.Address {
	prepared := func(w *world) pci.Address {
		gpu := w.k.AddGPU(0x3b)
		w.mustPrepare(w.request(uid, gpu))
		return gpu
	}
	in := func(state journal.State) func(*world) pci.Address {
		return func(w *world) pci.Address {
			gpu := prepared(w)
			rec := *w.record(uid)
			rec.State = state
			if err := w.records.Save(&rec); err != nil {
				w.t.Fatal(err)
			}
			return gpu
		}
	}
	return map[string]func(*world) pci.Address{
		"amid its Prepare": func(w *world) pci.Address {
			gpu := w.k.AddGPU(0x3b)
			_, _ = w.plugin(&power{at: 5, after: true}).Prepare(w.t.Context(), w.request(uid, gpu))
			return gpu
		},
		"prepared":                prepared,
		"amid its release":        in(journal.Releasing),
		"clean, and not yet home": in(journal.Cleaned),
		"quarantined": func(w *world) pci.Address {
			gpu, _ := w.quarantined()
			w.k.OnReset(gpu, nil)
			return gpu
		},
		"bound by policy": func(w *world) pci.Address {
			gpu := w.k.AddGPU(0x3b)
			w.boundByPolicy()
			return gpu
		},
	}
}

// TestNothingIsDoneToAnotherDevice: a record is of a device. Whatever is at the device's address later is neither
// unbound nor reset nor bound, whoever asks for what.
func TestNothingIsDoneToAnotherDevice(t *testing.T) {
	others := map[string]func(*world, pci.Address){"the host's disk": (*world).putDisk, "the node's uplink": (*world).putUplink}
	acts := map[string]func(*world, pci.Address) error{
		"Recover": func(w *world, _ pci.Address) error { return w.recovered() },
		"Prepare": func(w *world, gpu pci.Address) error {
			req := w.request(uid, gpu)
			req.Devices[0].Name = "gpu-" + gpu.Label() // what was allocated
			_, err := w.plugin(nil).Prepare(w.t.Context(), req)
			return err
		},
		"Unprepare": func(w *world, _ pci.Address) error {
			_, err := w.plugin(nil).Unprepare(w.t.Context(), uid)
			return err
		},
		"HandOver": func(w *world, _ pci.Address) error {
			return w.plugin(nil).HandOver(w.t.Context(), uid, journal.Sandbox{ID: "s"})
		},
		"BindByPolicy": func(w *world, _ pci.Address) error { return w.plugin(nil).BindByPolicy(w.t.Context()) },
	}
	for stage, begin := range stages() {
		for other, put := range others {
			for name, act := range acts {
				t.Run(strings.Join([]string{stage, other, name}, "/"), func(t *testing.T) {
					w := newWorld(t)
					gpu := begin(w)
					put(w, gpu)
					was := w.driver(gpu)
					err := w.untouched(func() error { return act(w, gpu) })
					if now := w.driver(gpu); now != was {
						t.Errorf("driver %s, want %s as before", now, was)
					}
					if err == nil && (name == "Prepare" || name == "HandOver") {
						t.Error("no error, though the claim's device is gone")
					}
				})
			}
		}
	}
}

// TestReleaseOfAReplacedDeviceIsNoProof: the claim ends, and the ledger says that nothing was proven.
func TestReleaseOfAReplacedDeviceIsNoProof(t *testing.T) {
	for _, stage := range []string{"prepared", "amid its release", "quarantined"} {
		for _, reboot := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reboot: %t", stage, reboot), func(t *testing.T) {
				w := newWorld(t)
				gpu := stages()[stage](w)
				g := sysfstest.GPU(gpu)
				g.Device = 0x2335
				w.k.Replace(g)
				if reboot {
					w.k.Reboot()
				}
				resets := len(w.k.Resets())
				release, err := w.plugin(nil).Unprepare(t.Context(), uid)
				if err != nil || len(release.Proofs) > 0 || len(w.k.Resets()) > resets {
					t.Errorf("Unprepare = %+v, %v; resets of another GPU: %v; want nil, without proofs and resets", release, err, w.k.Resets()[resets:])
				}
				if e := w.lastEvent(ledger.Unprepare); e == nil || len(e.Codes) != 1 || e.Codes[0] != ledger.CodeUnproven || w.record(uid) != nil {
					t.Errorf("the ledger has %+v; record %v; want %s and no record", e, w.record(uid), ledger.CodeUnproven)
				}
			})
		}
	}
}

// TestGivenBackByHandAndInUse: the claim's own device was returned to its driver by hand, and the node uses it now. A
// restart of the plugin and another Prepare leave it there, and say why.
func TestGivenBackByHandAndInUse(t *testing.T) {
	for name, again := range map[string]func(*world, pci.Address) error{
		"Recover": func(w *world, _ pci.Address) error { return w.recovered() },
		"Prepare": func(w *world, nic pci.Address) error {
			_, err := w.plugin(nil).Prepare(w.t.Context(), w.request(uid, nic))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			nic := sysfstest.NIC(pci.Address{Bus: 0x3b})
			nic.Capabilities.SRIOV, nic.SRIOV = nil, nil
			w.k.AddRootPort(0x3b)
			w.k.Add(nic)
			w.node = nodeConfig(matchAddress(nic.Address))
			w.mustPrepare(w.request(uid, nic.Address))
			w.rebind(nic.Address, "igb")
			w.k.AddDefaultRoute(w.function(nic.Address).Children.Net[0], "192.0.2.5/24", "192.0.2.1")
			err := w.untouched(func() error { return again(w, nic.Address) })
			says(t, err, nic.Address.String(), "driver igb", "must not be taken", "default")
			if refused, ok := errors.AsType[*rule.RefusedError](err); !ok || !refused.Has(rule.Forbidden) {
				t.Errorf("got %v, want the refusal %s", err, rule.Forbidden)
			}
		})
	}
}

// TestBoundDeviceThatIsNotSelectedAnyMore: the config has changed, and somebody gave the device back to its driver. It
// stays there.
func TestBoundDeviceThatIsNotSelectedAnyMore(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.boundByPolicy()
	w.rebind(gpu, "nvidia")
	w.node = nodeConfig(v1alpha1.DeviceRule{Name: "none", Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}, Exclude: true})
	err := w.untouched(w.recovered)
	says(t, err, gpu.String(), "driver nvidia", "does not belong to kata-vfio")
}

// TestRescannedDeviceIsAnotherFunction: a claim's GPU that was removed and found again has lost what its claim made of
// it. The claim says so; when it ends, the GPU is marked, and the next tenant gets it after a reset.
func TestRescannedDeviceIsAnotherFunction(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	req := w.request(uid, gpu)
	w.mustPrepare(req)
	w.k.Replace(sysfstest.GPU(gpu))
	err := w.untouched(func() error {
		_, err := w.plugin(nil).Prepare(t.Context(), req)
		return err
	})
	if gone, ok := errors.AsType[*effects.GoneError](err); !ok || !gone.Replaced {
		t.Errorf("Prepare = %v, want that the device is gone", err)
	}
	if err := w.untouched(func() error { _, err := w.plugin(nil).Unprepare(t.Context(), uid); return err }); err != nil {
		t.Fatal(err)
	}
	if rec := w.mustPrepare(w.request(other, gpu)); len(rec.Proofs) != 1 {
		t.Errorf("proofs before the next tenant: %+v, want one", rec.Proofs)
	}
}

// TestNothingMovesBesideAFunctionThatIsGone: somebody gave the GPU to its driver, and its audio function is gone. A repeated Prepare
// does not take the GPU back for a claim that can't have its devices any more.
func TestNothingMovesBesideAFunctionThatIsGone(t *testing.T) {
	w := newWorld(t)
	gpu, audio := w.k.AddGPUWithAudio(0x62, 15)
	req := w.request(uid, gpu)
	w.mustPrepare(req)
	w.rebind(gpu, "nvidia")
	w.k.Remove(audio)
	err := w.untouched(func() error {
		_, err := w.plugin(nil).Prepare(t.Context(), req)
		return err
	})
	if _, ok := errors.AsType[*effects.GoneError](err); !ok {
		t.Errorf("Prepare: got %v, want that the audio function is gone", err)
	}
}

// TestSettingsOfAReplacedNICStay: a VF of another NIC has the same PF and index. It does not get what the claim's VF had.
func TestSettingsOfAReplacedNICStay(t *testing.T) {
	w := newWorld(t)
	pf, vfs := w.k.AddNIC(0x21, 2)
	w.mustPrepare(w.request(uid, vfs[1]))
	nic := sysfstest.NIC(pf)
	nic.SubDevice++
	nic.SRIOV.VFs = 2
	w.k.Replace(nic)
	before := w.settings(pf, 1)
	if err := w.untouched(func() error { _, err := w.plugin(nil).Unprepare(t.Context(), uid); return err }); err != nil {
		t.Fatal(err)
	}
	if now := w.settings(pf, 1); now != before {
		t.Errorf("the PF imposes %q on its VF, want %q as before", now, before)
	}
}

// spared reports what work writes that names the function, or resets it, as an error. What it does to others is its own.
func (w *world) spared(a pci.Address, work func() error) error {
	w.t.Helper()
	writes, resets := len(w.k.Writes()), len(w.k.Resets())
	err := work()
	for _, x := range w.k.Writes()[writes:] {
		if strings.Contains(x.Path+" "+x.Value, a.String()) {
			w.t.Errorf("wrote %s <- %q (%v), want no such write", x.Path, x.Value, x.Err)
		}
	}
	for _, reset := range w.k.Resets()[resets:] {
		if strings.Contains(fmt.Sprint(reset), a.String()) {
			w.t.Errorf("reset %v, want no reset of %s", reset, a)
		}
	}
	return err
}

// TestAnotherDeviceAfterACrashAnywhere: the plugin dies at each point of each half of a claim's life, and the host's disk is
// at the device's address when it starts again. Nothing is done to the disk, and nothing of the claim is left.
func TestAnotherDeviceAfterACrashAnywhere(t *testing.T) {
	// A GPU alone, and one with companions in other groups. Those go back to their drivers.
	for _, sc := range []scene{scenes()[0], scenes()[2]} {
		for _, a := range acts() {
			t.Run(sc.name+"/"+a.name, func(t *testing.T) {
				n := countEffects(t, sc, a)
				for at := 1; at <= n; at++ {
					w := newWorld(t)
					addrs := sc.build(w)
					a.begin(w, addrs)
					_ = a.run(w, &power{at: at, after: true}, addrs)
					w.putDisk(addrs[0])
					where := fmt.Sprintf("cut at effect %d", at)
					_ = w.spared(addrs[0], w.recovered)
					if err := w.spared(addrs[0], func() error { _, err := w.plugin(nil).Unprepare(t.Context(), uid); return err }); err != nil {
						t.Errorf("%s: Unprepare: %v, want nil", where, err)
					}
					if w.record(uid) != nil || w.hasSpec(uid) || w.driver(addrs[0]) != "nvme" {
						t.Errorf("%s: record %v, CDI spec: %t, driver of the disk: %s; want nil, false, nvme", where, w.record(uid), w.hasSpec(uid), w.driver(addrs[0]))
					}
				}
			})
		}
	}
}

// TestBusMovesAfterACrashAnywhere: the node goes down at each point, and the device is at another address in the next boot.
// It is marked there as it would be at its own.
func TestBusMovesAfterACrashAnywhere(t *testing.T) {
	sc := scenes()[0]
	for _, a := range acts() {
		t.Run(a.name, func(t *testing.T) {
			n := countEffects(t, sc, a)
			for at := 1; at <= n; at++ {
				var due [2]int
				for i, now := range []uint8{0x3b, 0x3c} {
					w := newWorld(t)
					addrs := sc.build(w)
					a.begin(w, addrs)
					_ = a.run(w, &power{at: at, after: true}, addrs)
					if now != 0x3b {
						w.k.MoveBus(0x3b, now)
					}
					w.k.Reboot()
					w.mustRecover()
					pl, err := w.plugin(nil).Plan(t.Context(), w.request(other, pci.Address{Bus: now}))
					if err != nil {
						t.Fatal(err)
					}
					due[i] = len(pl.ResetsBefore)
				}
				if due[0] != due[1] {
					t.Errorf("cut at effect %d: %d resets are due at its own address, %d at another, want the same number", at, due[0], due[1])
				}
			}
		})
	}
}

// TestTwoInstancesAndAnotherDevice: in a rolling update one instance recovers, and the other is asked to prepare and
// unprepare, while the host's disk has the address.
func TestTwoInstancesAndAnotherDevice(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	req := w.request(uid, gpu)
	w.mustPrepare(req)
	w.putDisk(gpu)
	_ = w.untouched(func() error {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _ = w.recovered() })
			wg.Go(func() { _, _ = w.plugin(nil).Prepare(t.Context(), req) })
			wg.Go(func() { _, _ = w.plugin(nil).Unprepare(t.Context(), uid) })
		}
		wg.Wait()
		return nil
	})
	w.mustUnprepare(uid)
	if w.record(uid) != nil || w.driver(gpu) != "nvme" {
		t.Errorf("record %v, driver of the disk: %s; want nil, nvme", w.record(uid), w.driver(gpu))
	}
}

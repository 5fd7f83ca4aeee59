package prepare_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

const (
	oneSerial     = "48-b0-2d-ff-ff-00-00-01"
	anotherSerial = "48-b0-2d-ff-ff-00-00-02"
)

// addCard adds a GPU with a serial number, empty if there is none.
func (w *world) addCard(bus uint8, serial string) pci.Address {
	w.k.AddRootPort(bus)
	w.k.Add(cardAt(bus, serial))
	return pci.Address{Bus: bus}
}

func cardAt(bus uint8, serial string) sysfstest.Function {
	gpu := sysfstest.GPU(pci.Address{Bus: bus})
	gpu.Capabilities.Serial = serial
	return gpu
}

// A move is how a GPU at 0000:3b:00.0 comes to be at another address in the next boot.
type move struct {
	serial string
	make   func(*world) pci.Address
}

func moves() map[string]move {
	return map[string]move{
		"its bus has another number": {"", func(w *world) pci.Address {
			w.k.MoveBus(0x3b, 0x3c)
			return pci.Address{Bus: 0x3c}
		}},
		"it is in another slot, with a serial number": {oneSerial, func(w *world) pci.Address {
			w.k.Remove(pci.Address{Bus: 0x3b})
			return w.addCard(0x51, oneSerial)
		}},
		"it is in another slot, and another card in its own": {oneSerial, func(w *world) pci.Address {
			w.k.Replace(cardAt(0x3b, anotherSerial))
			return w.addCard(0x51, oneSerial)
		}},
	}
}

// reset reports whether a claim of the function has it reset before its tenant.
func (w *world) resetBefore(id string, a pci.Address) bool {
	w.t.Helper()
	before := len(w.k.Resets())
	w.mustPrepare(w.request(id, a))
	return len(w.k.Resets()) > before
}

// TestMarkFollowsItsDevice: what a tenant left unclean is reset before the next one, wherever it is then, and no other.
func TestMarkFollowsItsDevice(t *testing.T) {
	for name, m := range moves() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu, neighbor := w.addCard(0x3b, m.serial), w.addCard(0x41, "")
			w.mustPrepare(w.request(uid, gpu))
			now := m.make(w)
			w.k.Reboot()
			w.mustRecover()
			if !w.resetBefore("next-tenant", now) {
				t.Errorf("%s went to the next tenant without a reset, want one", now)
			}
			if m.serial == "" && w.resetBefore("neighbor", neighbor) {
				t.Errorf("%s was reset, want no reset: no tenant had it", neighbor)
			}
			if left := w.unclean(); len(left) > 0 {
				t.Errorf("still marked: %v, want none", left)
			}
		})
	}
}

// TestUncleanDeviceThatCannotBeTold: nothing tells which of the model's devices it is, so each is reset once.
func TestUncleanDeviceThatCannotBeTold(t *testing.T) {
	w := newWorld(t)
	gpu, neighbor := w.k.AddGPU(0x3b), w.k.AddGPU(0x41)
	w.mustPrepare(w.request(uid, gpu))
	w.k.Remove(gpu)
	moved := w.k.AddGPU(0x51)
	w.k.Reboot()
	w.mustRecover()
	for _, a := range []pci.Address{moved, neighbor} {
		if !w.resetBefore("first-"+a.Label(), a) {
			t.Errorf("%s may be the unclean one, and went to a tenant without a reset, want one", a)
		}
		w.mustUnprepare("first-" + a.Label())
	}
	w.k.Reboot()
	w.mustRecover()
	for _, a := range []pci.Address{moved, neighbor} {
		if w.resetBefore("second-"+a.Label(), a) {
			t.Errorf("%s was reset again, want no reset: it is proven clean", a)
		}
	}
}

// TestQuarantineFollowsItsDevice: no tenant gets it, wherever it is, and what is at its former address is free.
func TestQuarantineFollowsItsDevice(t *testing.T) {
	for name, m := range moves() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.addCard(0x3b, m.serial)
			w.mustPrepare(w.request(uid, gpu))
			w.k.OnReset(gpu, w.resets(false))
			_, err := w.plugin(nil).Unprepare(t.Context(), uid)
			wantQuarantined(t, err)
			now := m.make(w)
			w.k.Reboot()
			w.mustRecover()
			_, err = w.plugin(nil).Prepare(t.Context(), w.request(other, now))
			if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.Quarantined) {
				t.Errorf("Prepare of %s = %v, want that it is quarantined", now, err)
			}
			release, err := w.plugin(nil).Unprepare(t.Context(), uid)
			if err != nil || len(release.Proofs) != 1 || !slices.Equal(release.Proofs[0].Set, []pci.Address{now}) {
				t.Errorf("Unprepare = %+v, %v, want the proof of a reset of %s", release, err, now)
			}
			if w.resetBefore(other, now) || len(w.unclean()) > 0 {
				t.Errorf("%s is reset again, or marked (%v), want neither after its proof", now, w.unclean())
			}
		})
	}
}

// TestQuarantinedDeviceThatCannotBeTold: each device that it may be is reset before a tenant gets it, and is quarantined
// if that fails.
func TestQuarantinedDeviceThatCannotBeTold(t *testing.T) {
	w := newWorld(t)
	gpu, _ := w.quarantined()
	w.k.Remove(gpu)
	moved := w.k.AddGPU(0x51)
	w.k.Reboot()
	w.mustRecover()
	w.k.OnReset(moved, w.resets(false))
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(other, moved))
	wantQuarantined(t, err)
}

// TestReplacedDeviceLeavesQuarantine: the new card in the slot is in use at once, and the old one stays quarantined
// wherever it turns up, until an operator ends that.
func TestReplacedDeviceLeavesQuarantine(t *testing.T) {
	for _, model := range []pci.ID{0x2330, 0x2335} {
		t.Run(model.String(), func(t *testing.T) {
			w := newWorld(t)
			gpu := w.addCard(0x3b, oneSerial)
			w.mustPrepare(w.request(uid, gpu))
			w.k.OnReset(gpu, w.resets(false))
			_, err := w.plugin(nil).Unprepare(t.Context(), uid)
			wantQuarantined(t, err)
			w.k.OnReset(gpu, nil)
			card := cardAt(0x3b, anotherSerial)
			card.Device = model
			w.k.Replace(card)
			w.k.Reboot()
			w.mustRecover()
			if w.resetBefore(other, gpu) {
				t.Error("the new card was reset for the old one")
			}
			if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
				t.Errorf("end the quarantine of the card that was taken out: %v, want nil", err)
			}
			if rec := w.record(other); rec == nil || rec.State != journal.Prepared {
				t.Errorf("record of the new card's claim is %+v, want it prepared", rec)
			}
			if back := w.addCard(0x51, oneSerial); !w.resetBefore("third-tenant", back) {
				t.Error("the old card is back, and went to a tenant without a reset")
			}
		})
	}
}

// TestDrainFollowsItsDevice: the drained device stays out of use, and what is at its former address is in use.
func TestDrainFollowsItsDevice(t *testing.T) {
	for name, m := range moves() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.addCard(0x3b, m.serial)
			w.mustDrain(gpu)
			now := m.make(w)
			w.k.Reboot()
			w.mustRecover()
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, now))
			if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.Drained) {
				t.Errorf("Prepare of %s = %v, want that it is drained", now, err)
			}
			w.mustUndrain(now)
			w.mustPrepare(w.request(uid, now))
		})
	}
}

// TestDrainOfAReplacedDevice does not keep the new one from use, and can be lifted by the address that it was made for.
func TestDrainOfAReplacedDevice(t *testing.T) {
	w := newWorld(t)
	gpu := w.addCard(0x3b, oneSerial)
	w.mustDrain(gpu)
	w.k.Replace(cardAt(0x3b, anotherSerial))
	w.mustPrepare(w.request(uid, gpu))
	drains, err := w.plugin(nil).Drains(t.Context())
	if err != nil || len(drains) != 1 || len(drains[0].Functions) != 1 || !drains[0].Functions[0].Gone {
		t.Errorf("Drains = %+v, %v, want one of a device that is gone", drains, err)
	}
	w.mustUndrain(gpu)
	if left, err := w.records.Drains(); err != nil || len(left) > 0 {
		t.Errorf("Drains = %v, %v; want none", left, err)
	}
}

// TestMarksOfTwoDevicesAtOneAddress: the mark of the card that was taken out does not give way to that of the new one.
func TestMarksOfTwoDevicesAtOneAddress(t *testing.T) {
	w := newWorld(t)
	gpu := w.addCard(0x3b, oneSerial)
	w.mustPrepare(skipping(w.request(uid, gpu)))
	w.mustUnprepare(uid)
	w.k.Replace(cardAt(0x3b, anotherSerial))
	w.mustPrepare(skipping(w.request(uid, gpu)))
	w.mustUnprepare(uid)
	if diff := cmp.Diff([]pci.Address{gpu, gpu}, w.unclean()); diff != "" {
		t.Errorf("marked (-want +got):\n%s", diff)
	}
	back := w.addCard(0x51, oneSerial)
	for i, a := range []pci.Address{gpu, back} {
		if !w.resetBefore(fmt.Sprint("tenant-", i), a) {
			t.Errorf("%s went to a tenant without a reset, want one", a)
		}
	}
	if left := w.unclean(); len(left) > 0 {
		t.Errorf("still marked: %v, want none", left)
	}
}

// TestBoundRecordOfAReplacedDevice ends, and the new device is bound by policy or kept warm as the old one was.
func TestBoundRecordOfAReplacedDevice(t *testing.T) {
	for name, keep := range map[string]func(*world){
		"bound by policy": func(w *world) { w.boundByPolicy() },
		"kept warm": func(w *world) {
			w.wantsGPUs(1)
			w.keepWarm()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			keep(w)
			w.k.Replace(sysfstest.GPU(gpu))
			keep(w)
			if w.driver(gpu) != "vfio-pci" {
				t.Fatalf("driver %s, want vfio-pci", w.driver(gpu))
			}
			records, _ := w.records.List()
			snap, err := inventory.Scan(t.Context(), w.fs)
			if err != nil || len(records) != 1 || len(records[0].Plan.AddressesIn(snap)) != 1 {
				t.Errorf("records %+v, %v, want one of the new device", records, err)
			}
		})
	}
}

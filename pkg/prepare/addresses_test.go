package prepare_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// wantAddresses checks which addresses of the pool are taken.
func (w *world) wantAddresses(when string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), w.addresses()); diff != "" {
		w.t.Errorf("%s, taken of the pool (-want +got):\n%s", when, diff)
	}
}

// TestVFsAddressesFromAPool: the guest is told addresses and routes, the claim
// keeps them as long as it lasts, and nobody else has them meanwhile.
func TestVFsAddressesFromAPool(t *testing.T) {
	w, _, vfs := withNIC(t, vftest.Igb())
	w.usePool()
	w.network.Routes = []v1alpha1.GuestRoute{{To: "198.51.100.0/24", Via: "192.0.2.2"}}
	rec := w.mustPrepare(w.request(uid, vfs[0], vfs[2]))
	want := &v1alpha1.GuestNetwork{
		Interface: "net1", Addresses: []string{"192.0.2.10/24"},
		Routes: []v1alpha1.GuestRoute{{To: "198.51.100.0/24", Via: "192.0.2.2"}, {To: "default", Via: "192.0.2.1"}},
	}
	got := rec.Plan.Devices[0].Network
	if rec.Plan.Devices[1].Network.Addresses[0] == "192.0.2.10/24" { // they are asked side by side
		got = rec.Plan.Devices[1].Network
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(rec, w.record(uid)); diff != "" {
		t.Errorf("the record on disk differs (-want as returned +got from disk):\n%s", diff)
	}
	again := w.mustPrepare(w.request(uid, vfs[0], vfs[2]))
	if diff := cmp.Diff(rec.Plan, again.Plan); diff != "" {
		t.Errorf("prepared again (-want as before +got):\n%s", diff)
	}
	w.mustPrepare(w.request(other, vfs[1]))
	w.wantAddresses("with two claims", "192.0.2.10/24", "192.0.2.11/24", "192.0.2.12/24")
	w.mustUnprepare(uid)
	w.wantAddresses("with the second", "192.0.2.12/24")
	w.mustUnprepare(other)
	w.wantAddresses("at the end")
}

// TestRouteOfTheClassWinsOverThePools to the same network.
func TestRouteOfTheClassWinsOverThePools(t *testing.T) {
	for _, to := range []string{"default", "0.0.0.0/0"} {
		w, _, vfs := withNIC(t, vftest.Igb())
		w.usePool()
		w.network.Routes = []v1alpha1.GuestRoute{{To: to, Via: "192.0.2.254"}, {To: "default", Via: "2001:db8::1"}}
		rec := w.mustPrepare(w.request(uid, vfs[0]))
		if diff := cmp.Diff(w.network.Routes, rec.Plan.Devices[0].Network.Routes); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestLeaseIsThatOfTheConfigAsItWas: the pool is gone from the node's config
// when the claim ends.
func TestLeaseIsThatOfTheConfigAsItWas(t *testing.T) {
	w, _, vfs := withNIC(t, vftest.Igb())
	w.usePool()
	w.mustPrepare(w.request(uid, vfs[0]))
	w.node.AddressPools = nil
	w.mustPrepare(w.request(uid, vfs[0]))
	w.mustUnprepare(uid)
	w.wantAddresses("at the end")
}

// TestPrepareWithoutAnAddressLeavesNothing, whatever the reason.
func TestPrepareWithoutAnAddressLeavesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		breaks func(*world)
		says   []string
	}{
		"no such pool": {func(w *world) { w.node.AddressPools[0].Name = "other" }, []string{"pool tenants", "has other", "addressPools of the node config"}},
		"no plugin": {
			func(w *world) { w.pool.missing = errors.New("CNI plugin host-local is not in /opt/cni/bin") },
			[]string{"pool tenants", "is not in /opt/cni/bin"},
		},
		"a config that the plugin does not take": {
			func(w *world) { w.pool.badConfig = errors.New("invalid range set 0") },
			[]string{"take addresses for vf-0000-21-02-0 from pool tenants", "invalid range set 0"},
		},
		"an exhausted pool": {func(w *world) { w.pool.size = 0 }, []string{"from pool tenants", "no IP addresses available"}},
		"routes that can't be": {
			func(w *world) {
				w.network.Routes = make([]v1alpha1.GuestRoute, 1)
				w.network.Routes[0] = v1alpha1.GuestRoute{To: "nowhere"}
			},
			[]string{"from pool tenants", "routes[0].to"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, vfs := withNIC(t, vftest.Igb())
			w.usePool()
			tt.breaks(w)
			before := w.bindings()
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, vfs[0]))
			says(t, err, tt.says...)
			if diff := cmp.Diff(before, w.bindings()); diff != "" || w.record(uid) != nil {
				t.Errorf("record %v (want nil), bindings (-want as before +got):\n%s", w.record(uid), diff)
			}
			if changed := w.changedVFs(); len(changed) > 0 {
				t.Errorf("PFs impose %v, want none", changed)
			}
			w.wantAddresses("after it")
		})
	}
}

// TestLeaseThatOutlivedItsRecord, as when the journal was lost, is freed by the
// first try and had by the second.
func TestLeaseThatOutlivedItsRecord(t *testing.T) {
	w, _, vfs := withNIC(t, vftest.Igb())
	w.usePool()
	rec := w.mustPrepare(w.request(uid, vfs[0]))
	w.mustUnprepare(uid)
	if _, err := w.pool.Add(t.Context(), rec.Plan.Devices[0].Lease); err != nil {
		t.Fatal(err)
	}
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, vfs[0]))
	says(t, err, "duplicate allocation")
	w.mustPrepare(w.request(uid, vfs[0]))
	w.wantAddresses("prepared", w.recorded(uid)...)
}

// TestPrepareFailsIfPoolDoesNotAnswer: the address may be assigned, so the record stays until it is released.
func TestPrepareFailsIfPoolDoesNotAnswer(t *testing.T) {
	w, _, vfs := withNIC(t, vftest.Igb())
	w.usePool()
	w.pool.mute = errors.New("killed: no answer within 10s")
	before := w.bindings()
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, vfs[0]))
	if _, ok := errors.AsType[*prepare.UndoError](err); !ok {
		t.Errorf("Prepare = %v, want an UndoError beside its own", err)
	}
	says(t, err, "take addresses for vf-0000-21-02-0 from pool tenants", "to pool tenants: killed")
	if rec := w.record(uid); rec == nil || rec.Reason == "" {
		t.Fatalf("record is %+v, want one with a reason", rec)
	}
	if diff := cmp.Diff(before, w.bindings()); diff != "" {
		t.Errorf("bindings (-want as before +got):\n%s", diff)
	}
	w.pool.mute = nil
	w.mustPrepare(w.request(uid, vfs[0]))
	w.wantAddresses("prepared", w.recorded(uid)...)
}

// TestAddressThatCannotBeGivenBack: the device is clean and home, the address
// stays taken, and the claim says why until it works, or an operator ends it.
func TestAddressThatCannotBeGivenBack(t *testing.T) {
	w, _, vfs := withNIC(t, vftest.Igb())
	w.usePool()
	before := w.bindings()
	w.mustPrepare(w.request(uid, vfs[0]))
	w.pool.missing = errors.New("CNI plugin host-local is not in /opt/cni/bin")
	for range 2 {
		_, err := w.plugin(nil).Unprepare(t.Context(), uid)
		if _, ok := errors.AsType[*effects.ReturnError](err); !ok {
			t.Errorf("Unprepare = %v, want a ReturnError", err)
		}
		ruletest.ErrorAt(t, rule.AtRelease, err, rule.AddressNotReturned)
		says(t, err, "vf-0000-21-02-0", "pool tenants", "is not in /opt/cni/bin", "unprepare --leave-addresses "+uid)
	}
	rec := w.record(uid)
	if rec == nil || rec.State != journal.Cleaned || rec.Reason == "" {
		t.Fatalf("record is %+v, want it cleaned, with a reason", rec)
	}
	if diff := cmp.Diff(before, w.bindings()); diff != "" || w.hasSpec(uid) {
		t.Errorf("CDI spec %t (want false), bindings (-want as before +got):\n%s", w.hasSpec(uid), diff)
	}
	if r, err := w.plugin(nil).Recover(t.Context()); err != nil || len(r.Unfinished) != 1 {
		t.Errorf("Recover = %+v, %v; want one claim unfinished", r, err)
	}
	w.wantAddresses("meanwhile", "192.0.2.10/24")
	if _, err := w.plugin(nil).UnprepareLeavingAddresses(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	w.wantAddresses("left by the operator", "192.0.2.10/24")
	if w.record(uid) != nil {
		t.Error("the record is still there")
	}
}

// TestPluginThatIsBack ends what it had held up.
func TestPluginThatIsBack(t *testing.T) {
	w, _, vfs := withNIC(t, vftest.Igb())
	w.usePool()
	w.mustPrepare(w.request(uid, vfs[0]))
	w.pool.missing = errors.New("CNI plugin host-local is not in /opt/cni/bin")
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err == nil {
		t.Fatal("it worked")
	}
	w.pool.missing = nil
	if r, err := w.plugin(nil).Recover(t.Context()); err != nil || len(r.Released) != 1 {
		t.Errorf("Recover = %+v, %v; want one claim released", r, err)
	}
	w.wantAddresses("at the end")
}

// TestLeaveAddressesOfNobody is not an error.
func TestLeaveAddressesOfNobody(t *testing.T) {
	if _, err := newWorld(t).plugin(nil).UnprepareLeavingAddresses(t.Context(), uid); err != nil {
		t.Error(err)
	}
}

// TestAddressesWhileAVMHasTheDevice are not returned, and not given up either: when the VM has ended, they are.
func TestAddressesWhileAVMHasTheDevice(t *testing.T) {
	w, _, vfs := withNIC(t, vftest.Igb())
	w.usePool()
	rec := w.mustPrepare(w.request(uid, vfs[0]))
	holder := w.hold(vfs[0])
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err == nil {
		t.Error("the device was taken from a VM")
	}
	w.wantAddresses("in a VM", rec.Plan.Devices[0].Network.Addresses...)
	_, err := w.plugin(nil).UnprepareLeavingAddresses(t.Context(), uid)
	if _, ok := errors.AsType[*effects.InUseError](err); !ok {
		t.Errorf("UnprepareLeavingAddresses = %v, want an InUseError", err)
	}
	holder.Release()
	w.mustUnprepare(uid)
	w.wantAddresses("at the end")
}

// TestQuarantineKeepsNoAddress: its VM is gone.
func TestQuarantineKeepsNoAddress(t *testing.T) {
	w, _, vfs := withNIC(t, vftest.Igb())
	w.usePool()
	w.mustPrepare(w.request(uid, vfs[0]))
	w.k.OnReset(vfs[0], func(string) (sysfstest.ResetEffect, error) { return 0, unix.ENOTTY })
	_, err := w.plugin(nil).Unprepare(t.Context(), uid)
	wantQuarantined(t, err)
	w.wantAddresses("in quarantine")
	w.k.OnReset(vfs[0], func(string) (sysfstest.ResetEffect, error) { return sysfstest.ResetWorks, nil })
	w.mustUnprepare(uid)
}

// TestAddressesAreNotForGPUs: only a VF has a network.
func TestAddressesAreNotForGPUs(t *testing.T) {
	w := newWorld(t)
	w.usePool()
	rec := w.mustPrepare(w.request(uid, w.k.AddGPU(0x3b)))
	if rec.Plan.Devices[0].Lease != nil {
		t.Errorf("a GPU has the lease %+v, want nil", rec.Plan.Devices[0].Lease)
	}
}

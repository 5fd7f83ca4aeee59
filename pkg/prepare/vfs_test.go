package prepare_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// asFound are the settings that the VFs of a scripted node begin with.
const asFound = "linkState auto, txRate any to any Mbit/s, vlan none, spoofCheck on, trust off, mac 00:00:00:00:00:00"

// Those of InfiniBand begin without GUIDs, and what takes a GUID away is none as well.
const (
	withoutGUIDs = "linkState disable, nodeGUID 00:00:00:00:00:00:00:00, portGUID 00:00:00:00:00:00:00:00"
	guidsAway    = "linkState disable, nodeGUID ff:ff:ff:ff:ff:ff:ff:ff, portGUID ff:ff:ff:ff:ff:ff:ff:ff"
)

// settings returns what the PF imposes on a VF.
func (w *world) settings(pf pci.Address, index int) string {
	s := w.links.Settings(pf, index)
	return s.String()
}

// changedVFs returns the settings of the node's VFs that are not as found.
func (w *world) changedVFs() []string {
	w.t.Helper()
	snap, err := inventory.Scan(w.t.Context(), w.fs)
	if err != nil {
		w.t.Fatal(err)
	}
	var changed []string
	for i := range snap.Functions {
		f := &snap.Functions[i]
		if f.PF == nil || len(f.Children.Net) == 0 {
			continue
		}
		for index := range f.PF.NumVFs {
			if now := w.settings(f.Address, index); !slices.Contains([]string{asFound, withoutGUIDs, guidsAway}, now) {
				changed = append(changed, now)
			}
		}
	}
	return changed
}

// withNIC is a node with a PF of three VFs.
func withNIC(t *testing.T, d vftest.Driver) (w *world, pf pci.Address, vfs []pci.Address) {
	t.Helper()
	w = newWorld(t)
	w.links.Use(d)
	pf, vfs = w.k.AddNIC(0x21, 3)
	return w, pf, vfs
}

// with is the request under a VFConfig for all its devices.
func with(req *claim.Request, cfg v1alpha1.VFConfig) *claim.Request {
	cfg.Default()
	for i := range req.Devices {
		req.Devices[i].VF = &cfg
	}
	return req
}

// TestVFHasItsClaimsPolicy: and gets back what it had, whatever that was.
func TestVFHasItsClaimsPolicy(t *testing.T) {
	w, pf, vfs := withNIC(t, vftest.Complete())
	others := w.settings(pf, 0)
	w.links.Set(pf, 1, func(s *device.VFSettings) {
		s.VLAN, s.Trust, s.MAC = &device.VLAN{ID: 7, Protocol: "802.1Q"}, new(true), "02:00:00:00:00:99"
	})
	before := w.settings(pf, 1)
	rec := w.mustPrepare(with(w.request(uid, vfs[1]), v1alpha1.VFConfig{
		VLAN: new(100), VLANQoS: new(3), MaxTxRate: new(1000), LinkState: v1alpha1.LinkEnable,
	}))
	mac := rec.Plan.Functions[0].VF.Want.MAC
	want := "linkState enable, txRate any to 1000 Mbit/s, vlan 100 802.1Q qos 3, spoofCheck on, rssQuery off, trust off, mac " + mac
	if got := w.settings(pf, 1); got != want {
		t.Errorf("the PF imposes %q, want %q", got, want)
	}
	for _, other := range []int{0, 2} {
		if got := w.settings(pf, other); got != others {
			t.Errorf("VF %d has %q, want %q", other, got, others)
		}
	}
	w.mustUnprepare(uid)
	if got := w.settings(pf, 1); got != before {
		t.Errorf("after Unprepare the PF imposes %q, want %q as before", got, before)
	}
}

// TestVFIsGuardedWhateverIsSaid: an address of its own, spoof check, no trust.
func TestVFIsGuardedWhateverIsSaid(t *testing.T) {
	w, pf, vfs := withNIC(t, vftest.Igb())
	w.links.Set(pf, 0, func(s *device.VFSettings) { s.SpoofCheck, s.Trust = new(false), new(true) })
	rec := w.mustPrepare(w.request(uid, vfs[0]))
	again := w.mustPrepare(w.request(uid, vfs[0]))
	second := w.mustPrepare(w.request(other, vfs[1]))
	mac := rec.Plan.Functions[0].VF.Want.MAC
	if again.Plan.Functions[0].VF.Want.MAC != mac || second.Plan.Functions[0].VF.Want.MAC == mac {
		t.Errorf("addresses %s, then %s, and %s of another claim", mac, again.Plan.Functions[0].VF.Want.MAC, second.Plan.Functions[0].VF.Want.MAC)
	}
	if got, want := w.settings(pf, 0), "linkState auto, txRate any to any Mbit/s, vlan none, spoofCheck on, trust off, mac "+mac; got != want {
		t.Errorf("the PF imposes %q, want %q", got, want)
	}
}

// TestPolicyThatThePFCannotHave: the claim is refused with the setting's name
// and nothing is left of the try.
func TestPolicyThatThePFCannotHave(t *testing.T) {
	for name, tt := range map[string]struct {
		driver vftest.Driver
		cfg    v1alpha1.VFConfig
		unplug bool
		says   []string
	}{
		"link state on igb": {
			driver: vftest.Igb(), cfg: v1alpha1.VFConfig{LinkState: v1alpha1.LinkEnable, VLAN: new(5)},
			says: []string{"linkState", "does not support"},
		},
		"802.1ad on igb": {
			driver: vftest.Igb(), cfg: v1alpha1.VFConfig{VLAN: new(5), VLANProtocol: v1alpha1.VLAN8021ad},
			says: []string{"vlan", "5 802.1ad", "does not support"},
		},
		"minimum rate on igb": {
			driver: vftest.Igb(), cfg: v1alpha1.VFConfig{VLAN: new(5), MinTxRate: new(10)},
			says: []string{"txRate", "does not support"},
		},
		"rate on igb without a link": {
			driver: vftest.Igb(), cfg: v1alpha1.VFConfig{MaxTxRate: new(10)}, unplug: true,
			says: []string{"txRate", "has no link", "bring the PF's link up"},
		},
		"no spoof check": {
			driver: vftest.Driver{Silent: []device.VFSetting{device.VFSpoofCheck}},
			says:   []string{"spoofCheck", "does not support", "set `spoofCheck: false` in a DeviceClass"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, vfs := withNIC(t, tt.driver)
			if tt.unplug {
				w.links.Unplug()
			}
			before := w.bindings()
			_, err := w.plugin(nil).Prepare(t.Context(), with(w.request(uid, vfs[0]), tt.cfg))
			if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.UnsupportedSetting) {
				t.Errorf("Prepare = %v, want a refusal of the setting", err)
			}
			says(t, err, append(tt.says, "0000:21:00.0")...)
			if diff := cmp.Diff(before, w.bindings()); diff != "" || w.record(uid) != nil {
				t.Errorf("record %v (want nil), bindings (-want as before +got):\n%s", w.record(uid), diff)
			}
			if writes := w.links.Writes(); len(writes) > 0 {
				t.Errorf("written: %v, want none", writes)
			}
		})
	}
}

// TestRateThatIsThereStays, except for the bound that was said: the kernel sets both at once.
func TestRateThatIsThereStays(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg   v1alpha1.VFConfig
		claim bool
		want  string
	}{
		"a class's minimum":            {v1alpha1.VFConfig{MinTxRate: new(100)}, false, "100 to 1000 Mbit/s"},
		"a claim's maximum":            {v1alpha1.VFConfig{MaxTxRate: new(50)}, true, "10 to 50 Mbit/s"},
		"a claim that asks for more":   {v1alpha1.VFConfig{MaxTxRate: new(5000)}, true, "10 to 1000 Mbit/s"},
		"a claim that asks for no end": {v1alpha1.VFConfig{MaxTxRate: new(0)}, true, "10 to 1000 Mbit/s"},
	} {
		t.Run(name, func(t *testing.T) {
			w, pf, vfs := withNIC(t, vftest.Complete())
			w.links.Set(pf, 0, func(s *device.VFSettings) { s.Rate = &device.TxRate{Min: 10, Max: 1000} })
			req := with(w.request(uid, vfs[0]), tt.cfg)
			req.Devices[0].OwnMaxTxRate = tt.claim
			w.mustPrepare(req)
			now := w.links.Settings(pf, 0)
			if got := now.Rate.String(); got != tt.want {
				t.Errorf("the PF imposes %q, want %q", got, tt.want)
			}
			w.mustUnprepare(uid)
			now = w.links.Settings(pf, 0)
			if got := now.Rate.String(); got != "10 to 1000 Mbit/s" {
				t.Errorf("after Unprepare the PF imposes %q, want 10 to 1000 Mbit/s", got)
			}
		})
	}
}

// TestRatesAtOddsAreRefused before anything changes.
func TestRatesAtOddsAreRefused(t *testing.T) {
	w, pf, vfs := withNIC(t, vftest.Complete())
	w.links.Set(pf, 0, func(s *device.VFSettings) { s.Rate = &device.TxRate{Min: 100, Max: 1000} })
	_, err := w.plugin(nil).Prepare(t.Context(), with(w.request(uid, vfs[0]), v1alpha1.VFConfig{MaxTxRate: new(50)}))
	if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.UnsupportedSetting) {
		t.Errorf("Prepare = %v, want a refusal of the rate", err)
	}
	says(t, err, "a minimum of 100 Mbit/s is more than the maximum of 50", "set both minTxRate and maxTxRate in a DeviceClass")
	if writes := w.links.Writes(); len(writes) > 0 || w.record(uid) != nil {
		t.Errorf("record %v, written: %v; want neither", w.record(uid), writes)
	}
}

// TestPFWithoutSwitches: where there is no spoof check, a class may do without.
func TestPFWithoutSwitches(t *testing.T) {
	w, _, vfs := withNIC(t, vftest.Driver{Silent: []device.VFSetting{device.VFSpoofCheck, device.VFTrust}})
	w.mustPrepare(with(w.request(uid, vfs[0]), v1alpha1.VFConfig{SpoofCheck: new(false)}))
	w.mustUnprepare(uid)
}

// TestOneAddressForTwoVFsOfAClaim is refused, though no PF has it yet.
func TestOneAddressForTwoVFsOfAClaim(t *testing.T) {
	w, _, vfs := withNIC(t, vftest.Igb())
	_, far := w.k.AddNIC(0x41, 1)
	for _, second := range []pci.Address{vfs[1], far[0]} {
		req := with(w.request(uid, vfs[0], second), v1alpha1.VFConfig{MAC: "02:00:5e:10:00:01"})
		_, err := w.plugin(nil).Prepare(t.Context(), req)
		wantRefused(t, err)
		says(t, err, "another VF of this claim", "leave the mac out")
		if writes := w.links.Writes(); len(writes) > 0 || w.record(uid) != nil {
			t.Errorf("record %v, written: %v; want neither", w.record(uid), writes)
		}
	}
}

// TestTwoClaimsForOneAddressAtOnce: their PFs' locks are different ones, and yet
// one of them is refused.
func TestTwoClaimsForOneAddressAtOnce(t *testing.T) {
	for range 20 {
		w, _, vfs := withNIC(t, vftest.Igb())
		_, far := w.k.AddNIC(0x41, 1)
		p, errs := w.plugin(nil), make([]error, 2)
		var wg sync.WaitGroup
		for i, vf := range []pci.Address{vfs[0], far[0]} {
			req := with(w.request([]string{uid, other}[i], vf), v1alpha1.VFConfig{MAC: "02:00:5e:10:00:01"})
			wg.Go(func() { _, errs[i] = p.Prepare(t.Context(), req) })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("both claims ended alike: %v, want one refused", errs)
		}
		says(t, errors.Join(errs...), "another claim's VF")
	}
}

// TestRecordNamesTheAddressThatWasChosen, as the claim's steps in its journal
// and not only as its outcome.
func TestRecordNamesTheAddressThatWasChosen(t *testing.T) {
	w, _, vfs := withNIC(t, vftest.Igb())
	w.mustPrepare(w.request(uid, vfs[0]))
	rec := w.record(uid)
	last := rec.Plan.Steps[len(rec.Plan.Steps)-1]
	if mac := rec.Plan.Functions[0].VF.Want.MAC; !strings.Contains(last.Value, mac) {
		t.Errorf("the last step is %q, want the address %s in it", last, mac)
	}
}

// TestVFInSwitchdevMode: who sends is the business of its representor's bridge,
// so that a class must say that it is to be used all the same.
func TestVFInSwitchdevMode(t *testing.T) {
	w, pf, _ := withNIC(t, vftest.Eswitch())
	w.node = &v1alpha1.NodeConfig{VirtualFunctions: []v1alpha1.VFRule{{PF: pf.String(), Count: new(3), EswitchMode: v1alpha1.EswitchSwitchdev}}}
	w.node.Default()
	if got := w.provision(nil); got.Refused != "" {
		t.Fatalf("%+v, want it not refused", got)
	}
	vfs := w.k.VFs(pf)
	before := w.settings(pf, 1)
	for setting, cfg := range map[string]v1alpha1.VFConfig{
		"spoofCheck": {}, "vlan": {SpoofCheck: new(false), VLAN: new(5)}, "trust": {SpoofCheck: new(false), Trust: new(true)},
	} {
		_, err := w.plugin(nil).Prepare(t.Context(), with(w.request(uid, vfs[1]), cfg))
		wantRefused(t, err)
		says(t, err, setting, "is in switchdev mode", "representor 0000-21-00-0_1")
		if w.record(uid) != nil || w.settings(pf, 1) != before {
			t.Errorf("%s: record %v, the PF imposes %s; want nil, %s", setting, w.record(uid), w.settings(pf, 1), before)
		}
	}
	rec := w.mustPrepare(with(w.request(uid, vfs[1]), v1alpha1.VFConfig{SpoofCheck: new(false), MaxTxRate: new(100)}))
	change := rec.Plan.Functions[0].VF
	if want := "txRate any to 100 Mbit/s, mac " + change.Want.MAC; change.Want.String() != want || change.Representor != "0000-21-00-0_1" {
		t.Errorf("it is to have %q with representor %q, want %q", change.Want.String(), change.Representor, want)
	}
	if got := w.links.Settings(pf, 1); got.MAC != change.Want.MAC || got.Rate.Max != 100 {
		t.Errorf("the PF imposes %s, want MAC %s, and 100 Mbit/s at most", got.String(), change.Want.MAC)
	}
	w.mustUnprepare(uid)
	if got := w.settings(pf, 1); got != before {
		t.Errorf("after Unprepare the PF imposes %q, want %q", got, before)
	}
}

// TestRDMACapableVF: its RDMA device goes with its driver, and nobody looks for
// it then; it has GUIDs of its own while it is the claim's, and comes back.
func TestRDMACapableVF(t *testing.T) {
	w, pf, vfs := withHCA(t)
	before := w.bindings()
	rec := w.mustPrepare(w.request(uid, vfs[1]))
	want := rec.Plan.Functions[0].VF.Want
	if first, err := w.fs.Exists(sysfs.FunctionPath(vfs[1]) + "/infiniband"); err != nil || first {
		t.Errorf("the VF has an RDMA device: %t, %v; want false", first, err)
	}
	guids := "linkState disable, nodeGUID " + want.NodeGUID + ", portGUID " + want.PortGUID
	if got := w.settings(pf, 1); got != guids || want.NodeGUID == plan.Choose {
		t.Errorf("the PF imposes %q, want %q", got, guids)
	}
	second := w.mustPrepare(w.request(other, vfs[2])).Plan.Functions[0].VF.Want
	if second.NodeGUID == want.NodeGUID || second.PortGUID == want.PortGUID {
		t.Errorf("two claims have %s and %s", want.String(), second.String())
	}
	w.mustUnprepare(other)
	w.mustUnprepare(uid)
	if got := w.settings(pf, 1); got != guidsAway {
		t.Errorf("after Unprepare the PF imposes %q, want no GUIDs", got)
	}
	if diff := cmp.Diff(before, w.bindings()); diff != "" {
		t.Errorf("bindings (-want as before +got):\n%s", diff)
	}
	if back, err := w.fs.Exists(sysfs.FunctionPath(vfs[1]) + "/infiniband"); err != nil || !back {
		t.Errorf("the VF has its RDMA device back: %t, %v; want true", back, err)
	}
	if again := w.mustPrepare(w.request(uid, vfs[1])).Plan.Functions[0].VF.Want; cmp.Diff(want, again) != "" {
		t.Errorf("the claim has %s the second time, %s the first", again.String(), want.String())
	}
	w.mustUnprepare(uid)
}

// withHCA is a node with a PF of InfiniBand with three VFs.
func withHCA(t *testing.T) (w *world, pf pci.Address, vfs []pci.Address) {
	t.Helper()
	w = newWorld(t)
	w.links.Use(vftest.InfiniBand())
	pf, vfs = w.k.AddHCA(0x21, 3)
	return w, pf, vfs
}

// TestGUIDsThatVFsHadAreTheirsAgain, where they had some.
func TestGUIDsThatVFsHadAreTheirsAgain(t *testing.T) {
	w, pf, vfs := withHCA(t)
	w.links.Set(pf, 0, func(s *device.VFSettings) {
		s.NodeGUID, s.PortGUID = "02:00:00:00:00:00:00:98", "02:00:00:00:00:00:00:99"
	})
	before := w.settings(pf, 0)
	w.mustPrepare(w.request(uid, vfs[0]))
	w.mustUnprepare(uid)
	if got := w.settings(pf, 0); got != before {
		t.Errorf("after Unprepare the PF imposes %q, want %q as before", got, before)
	}
}

// TestVFNeverTakesUsedGUID: the fabric's partitions are by GUID.
func TestVFNeverTakesUsedGUID(t *testing.T) {
	for name, tt := range map[string]struct {
		guid string
		says []string
	}{
		"of another VF":           {"02:00:5e:10:00:00:00:09", []string{"another VF of the PF"}},
		"of the node's interface": {"00:02:c9:03:21:00:00:01", []string{"the node's interface eth0"}},
		"of its RDMA device":      {"00:02:c9:03:21:00:00:00", []string{"the node's RDMA device mlx5_0"}},
		"of its own claim":        {"02:00:5e:10:00:00:00:01", []string{"another VF of this claim"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, pf, vfs := withHCA(t)
			w.links.Set(pf, 2, func(s *device.VFSettings) { s.PortGUID = "02:00:5e:10:00:00:00:09" })
			_, err := w.plugin(nil).Prepare(t.Context(), with(w.request(uid, vfs[0], vfs[1]), v1alpha1.VFConfig{PortGUID: tt.guid}))
			wantRefused(t, err)
			says(t, err, append(tt.says, tt.guid, "leave the portGUID out")...)
			if w.record(uid) != nil {
				t.Error("there is a record")
			}
		})
	}
}

// TestVFNeverTakesUsedAddress: with it, a tenant would receive another tenant's frames.
func TestVFNeverTakesUsedAddress(t *testing.T) {
	const mac = "02:00:5e:10:00:01"
	for name, tt := range map[string]struct {
		owner func(w *world, pf pci.Address)
		says  string
	}{
		"of another VF": {
			func(w *world, pf pci.Address) {
				w.links.Set(pf, 2, func(s *device.VFSettings) { s.MAC = mac })
			}, "another VF of the PF",
		},
		"of another claim on another PF": {
			func(w *world, _ pci.Address) {
				_, far := w.k.AddNIC(0x41, 1)
				w.mustPrepare(with(w.request(other, far[0]), v1alpha1.VFConfig{MAC: mac}))
			}, "another claim's VF",
		},
		"of the node": {
			func(w *world, pf pci.Address) {
				path := filepath.Join(w.k.Root(), sysfs.FunctionPath(pf), "net/eth0/address")
				if err := os.WriteFile(path, []byte(mac+"\n"), 0o644); err != nil {
					w.t.Fatal(err)
				}
			}, "the node's interface eth0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, pf, vfs := withNIC(t, vftest.Igb())
			tt.owner(w, pf)
			_, err := w.plugin(nil).Prepare(t.Context(), with(w.request(uid, vfs[0]), v1alpha1.VFConfig{MAC: "02:00:5E:10:00:01"}))
			if wantRefused(t, err) != nil {
				says(t, err, mac, tt.says, "leave the mac out")
			}
			if w.record(uid) != nil {
				t.Error("there is a record")
			}
		})
	}
}

// TestPolicyThatSomebodyChanged: a restart of the plugin and the pod's next
// sandbox bring it back.
func TestPolicyThatSomebodyChanged(t *testing.T) {
	for name, again := range map[string]func(*world){
		"is back after a restart": func(w *world) { w.mustRecover() },
		"is back for the next sandbox": func(w *world) {
			w.mustHandOver("first")
			w.mustHandOver("second")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, pf, vfs := withNIC(t, vftest.Igb())
			w.mustPrepare(with(w.request(uid, vfs[0]), v1alpha1.VFConfig{VLAN: new(100)}))
			before := w.settings(pf, 0)
			w.links.Set(pf, 0, func(s *device.VFSettings) { s.VLAN, s.SpoofCheck = &device.VLAN{Protocol: "802.1Q"}, new(false) })
			again(w)
			if got := w.settings(pf, 0); got != before {
				t.Errorf("the PF imposes %q, want %q", got, before)
			}
		})
	}
}

// TestPFsInterfaceIsAwayAtTheEnd: what can't be restored stays the claim's,
// and a later try does it.
func TestPFsInterfaceIsAwayAtTheEnd(t *testing.T) {
	w, pf, vfs := withNIC(t, vftest.Igb())
	w.mustPrepare(with(w.request(uid, vfs[0]), v1alpha1.VFConfig{VLAN: new(100)}))
	net := filepath.Join(w.k.Root(), sysfs.FunctionPath(pf), "net")
	if err := os.Rename(net, net+"-away"); err != nil {
		t.Fatal(err)
	}
	_, err := w.plugin(nil).Unprepare(t.Context(), uid)
	says(t, err, "no network interface", "another network namespace")
	if rec := w.record(uid); rec == nil || rec.State != journal.Cleaned {
		t.Fatalf("record %+v, want it cleaned", rec)
	}
	if err := os.Rename(net+"-away", net); err != nil {
		t.Fatal(err)
	}
	w.mustUnprepare(uid)
	if changed := w.changedVFs(); len(changed) > 0 {
		t.Errorf("PFs impose %v, want none", changed)
	}
}

// TestPFHasNoLinkAtTheEnd: a rate that igb does not take then keeps the VF from
// others until it does.
func TestPFHasNoLinkAtTheEnd(t *testing.T) {
	w, _, vfs := withNIC(t, vftest.Igb())
	w.mustPrepare(with(w.request(uid, vfs[0]), v1alpha1.VFConfig{VLAN: new(100), MaxTxRate: new(50)}))
	w.links.Unplug()
	_, err := w.plugin(nil).Unprepare(t.Context(), uid)
	says(t, err, "txRate", "has no link", "bring the PF's link up")
	if rec := w.record(uid); rec == nil || rec.State != journal.Cleaned {
		t.Fatalf("record %+v, want it cleaned", rec)
	}
	w.links.Plug()
	w.mustUnprepare(uid)
	if changed := w.changedVFs(); len(changed) > 0 {
		t.Errorf("PFs impose %v, want none", changed)
	}
}

// TestPFsVFsAreGoneAtTheEnd: its driver was reloaded. What was imposed on them
// went with them, and the claim comes off the node.
func TestPFsVFsAreGoneAtTheEnd(t *testing.T) {
	w, pf, vfs := withNIC(t, vftest.Igb())
	w.mustPrepare(with(w.request(uid, vfs[0]), v1alpha1.VFConfig{VLAN: new(100)}))
	for _, a := range slices.Backward(vfs) {
		w.k.Remove(a)
	}
	w.mustUnprepare(uid)
	if w.record(uid) != nil || w.hasSpec(uid) {
		t.Errorf("of %s's claim record %v is left, CDI spec: %t; want neither", pf, w.record(uid), w.hasSpec(uid))
	}
}

// TestBindingByPolicyImposesNothing: there is no tenant yet.
func TestBindingByPolicyImposesNothing(t *testing.T) {
	w, _, _ := withNIC(t, vftest.Igb())
	w.node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{
		Match: v1alpha1.DeviceMatch{Types: []string{"vf"}}, Policy: v1alpha1.PolicyBound,
	}}}
	w.node.Default()
	if err := w.plugin(nil).BindByPolicy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string(nil), w.links.Writes()); diff != "" {
		t.Errorf("written (-want none +got):\n%s", diff)
	}
}

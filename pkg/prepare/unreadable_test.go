package prepare_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// TestUnreadableRecordsDevicesAreNotClean: the ledger names the devices of a claim whose record can't be read. After the node's next start,
// devices of the same model may have swapped addresses, so that all of them count as not clean. If the ledger does not name the devices, all
// selected ones count as not clean. The next claim has its device reset first.
func TestUnreadableRecordsDevicesAreNotClean(t *testing.T) {
	for name, test := range map[string]struct {
		lost     func(w *world, beforeClaim func())
		change   func(*prepare.Config)
		sameBoot bool
		// all is whether all selected devices are marked.
		all bool
	}{
		"the ledger has the claim":   {lost: func(*world, func()) {}},
		"in the same boot":           {lost: func(*world, func()) {}, sameBoot: true},
		"the ledger lacks the claim": {lost: func(_ *world, beforeClaim func()) { beforeClaim() }, all: true},
		"the claim ended by the ledger": {lost: func(w *world, _ func()) {
			end := ledger.Event{Type: ledger.Unprepare, Claim: &ledger.Claim{UID: other}}
			if _, err := w.writer().Append(w.t.Context(), end); err != nil {
				w.t.Fatal(err)
			}
		}, all: true},
		"another device is at the address": {lost: func(w *world, _ func()) {
			newer := cardAt(0x3b, "")
			newer.Device++
			w.k.Replace(newer)
		}, all: true},
		"there is no ledger": {lost: func(*world, func()) {}, change: func(c *prepare.Config) { c.Parts.Ledger = nil }, all: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}}}}
			w.node.Default()
			given, free, busy := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c), w.k.AddGPU(0x3d)
			unlike := w.addUnlike(0x3e)
			w.k.AddNIC(0x21, 1) // which no rule selects
			w.mustPrepare(w.request("before", free))
			w.mustUnprepare("before")
			beforeClaim := w.ledgerFiles()
			w.mustPrepare(w.request(other, given))
			test.lost(w, beforeClaim)
			if !test.sameBoot {
				w.k.Reboot()
			}
			w.mustPrepare(w.request("present", busy))
			w.spoil(other, `"nvidia"`, `"nvidiA"`)
			changes := []func(*prepare.Config){}
			if test.change != nil {
				changes = append(changes, test.change)
			}
			p := w.plugin(nil, changes...)
			for range 2 {
				if err := p.MarkEarlier(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			want := []pci.Address{given, free}
			switch {
			case test.all:
				want = append(want, unlike)
			case test.sameBoot:
				want = []pci.Address{given}
			}
			if diff := cmp.Diff(want, w.unclean()); diff != "" {
				t.Errorf("marked as not clean (-want +got):\n%s", diff)
			}
			if test.sameBoot {
				return // the record keeps claims from its device
			}
			if _, err := p.Prepare(t.Context(), w.request(uid, given)); err != nil {
				t.Fatal(err)
			}
			if rec := w.record(uid); len(rec.Plan.ResetsBefore) != 1 || len(rec.Proofs) != 1 {
				t.Errorf("resets before the tenant %v, proofs %v; want one", rec.Plan.ResetsBefore, rec.Proofs)
			}
		})
	}
}

// addUnlike adds a GPU of another model than [sysfstest.GPU].
func (w *world) addUnlike(bus uint8) pci.Address {
	w.k.AddRootPort(bus)
	gpu := cardAt(bus, "")
	gpu.Device += 2
	w.k.Add(gpu)
	return gpu.Address
}

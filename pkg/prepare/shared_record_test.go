package prepare_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// TestSharedRecordIsNotChanged: a Prepare goes on where an earlier one was cut off after its reset. Others read the record from the same
// journal meanwhile, so that it stays as it was read: without the applied values of settings, and without the addresses of a pool.
func TestSharedRecordIsNotChanged(t *testing.T) {
	for name, build := range map[string]func(*world) pci.Address{
		"a slice with settings": func(w *world) pci.Address {
			_, vfs := w.k.AddXeHost(0x3b, 3)
			w.slices(v1alpha1.GPUSliceRule{Intel: &v1alpha1.IntelSlices{ExecQuantumMs: new(16), MemoryMiB: new(1023)}})
			return vfs[1]
		},
		"a VF with addresses from a pool": func(w *world) pci.Address {
			w.usePool()
			_, vfs := w.k.AddNIC(0x21, 2)
			return vfs[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			continued := 0
			for at := 1; ; at++ {
				w := newWorld(t)
				vf := build(w)
				w.markUnclean(vf)
				_, err := w.plugin(&power{at: at}).Prepare(t.Context(), w.request(uid, vf))
				shared := w.record(uid)
				if err == nil {
					break
				}
				if shared == nil || shared.State != journal.Preparing || shared.Baseline == nil {
					continue
				}
				continued++
				before := encoded(t, shared)
				rec, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, vf))
				if diff := cmp.Diff(before, encoded(t, shared)); diff != "" {
					t.Errorf("cut off at effect %d: the shared record (-want as before +got):\n%s", at, diff)
				}
				// A pool does not give an address twice: the claim is undone where it was cut off after that.
				if err != nil && w.record(uid) == nil {
					continue
				}
				if err != nil || len(rec.Proofs) == 0 || encoded(t, rec) == before {
					t.Errorf("cut off at effect %d: %v, record %+v; want it prepared, with proofs", at, err, rec)
				}
			}
			if continued == 0 {
				t.Error("no Prepare was cut off after its reset")
			}
		})
	}
}

func encoded(t *testing.T, rec *journal.Record) string {
	t.Helper()
	data, err := journal.Encode(rec)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

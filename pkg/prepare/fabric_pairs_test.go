package prepare_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestPairOnABoard: the GPU of a pair with a VF gets its partition of one GPU, beside that of another claim. A partition of both GPUs waits
// for the pair.
func TestPairOnABoard(t *testing.T) {
	w := newWorld(t)
	w.corner()
	_, vfs := w.k.AddNIC(0x21, 1)
	before := w.bindings()
	pair := w.request(uid, w.partition("gpu-0000-86-00-0-vf-"+vfs[0].Label())...)
	w.mustPrepare(pair)
	if diff := cmp.Diff([]int{7}, w.fm.Active()); diff != "" || len(w.changedVFs()) != 1 {
		t.Errorf("changed VFs %v, active (-want +got):\n%s", w.changedVFs(), diff)
	}
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(other, w.partition("gpu-x2-0000-86-87")...))
	if refused := wantRefused(t, err); refused == nil || !refused.Has(rule.Held) {
		t.Errorf("Prepare of a partition with the pair's GPU = %v, want %s", err, rule.Held)
	}
	gpus := w.partition("gpu-0000-87-00-0")
	w.pair = ""
	w.mustPrepare(w.request(other, gpus...))
	w.mustHandOver("first")
	w.mustHandOver("second")
	w.wantPartitionsOfRecords("two claims")
	w.mustUnprepare(uid)
	w.wantPartitionsOfRecords("the pair's claim has ended")
	w.mustUnprepare(other)
	if diff := cmp.Diff(before, w.bindings()); diff != "" || len(w.fm.Active()) > 0 || len(w.changedVFs()) > 0 {
		t.Errorf("active %v (want none), changed VFs %v (want none), bindings (-want as before +got):\n%s", w.fm.Active(), w.changedVFs(), diff)
	}
}

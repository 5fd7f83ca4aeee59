package prepare_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// disk is the node's disk, and whether there is room on it.
type disk struct {
	full  bool
	spent int
}

func (d *disk) Fill() error {
	if d.full {
		return &journal.FullError{Dir: "/var/lib/kata-vfio", Free: 1 << 20}
	}
	return nil
}

func (d *disk) Spend() error {
	d.spent++
	return nil
}

// TestFullDiskRefusesNewClaimsOnly: no claim begins, the one that is prepared stays
// so and ends, and for its end the reserve is given up.
func TestFullDiskRefusesNewClaimsOnly(t *testing.T) {
	w := newWorld(t)
	gpu, free := w.k.AddGPU(0x3b), w.k.AddGPU(0x3c)
	before := w.state()
	d := &disk{}
	p := w.plugin(nil, func(c *prepare.Config) { c.Parts.Room = d })
	if _, err := p.Prepare(t.Context(), w.request(uid, gpu)); err != nil {
		t.Fatal(err)
	}
	d.full = true
	_, err := p.Prepare(t.Context(), w.request(other, free))
	as[*journal.FullError](t, err)
	says(t, err, "/var/lib/kata-vfio is full", "1 MiB free", "free 20 MiB there")
	if rec := w.record(other); rec != nil {
		t.Errorf("record %+v of a claim that did not begin, want none", rec)
	}
	if _, err := p.Prepare(t.Context(), w.request(uid, gpu)); err != nil {
		t.Errorf("the claim that is prepared, again: %v, want nil", err)
	}
	if d.spent > 0 {
		t.Error("the reserve is spent before a claim ends")
	}
	if _, err := p.Unprepare(t.Context(), uid); err != nil {
		t.Errorf("the claim's end: %v, want nil", err)
	}
	if d.spent == 0 {
		t.Error("the claim ends without the reserve")
	}
	w.unchanged(before)
}

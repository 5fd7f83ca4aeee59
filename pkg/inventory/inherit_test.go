package inventory

import (
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// TestNamesAreInheritedByIDs: the first function of the model that has a name gives it.
func TestNamesAreInheritedByIDs(t *testing.T) {
	prev := &device.Snapshot{Functions: []device.Function{
		{Vendor: 1, Device: 1},
		{Vendor: 1, Device: 1, VendorName: "one", Model: "first"},
		{Vendor: 1, Device: 1, VendorName: "one", Model: "later"},
		{Vendor: 2, Device: 1, VendorName: "two"},
	}}
	for want, f := range map[string]*device.Function{
		"one first": {Vendor: 1, Device: 1},
		" ":         {Vendor: 1, Device: 2},
		"kept own":  {Vendor: 2, Device: 1, VendorName: "kept", Model: "own"},
	} {
		inheritNames(prev, []*device.Function{f})
		if got := f.VendorName + " " + f.Model; got != want {
			t.Errorf("names %q, want %q", got, want)
		}
	}
}

// TestNamesOfManyFunctionsAreInheritedAtOnce: nothing names the models of a node with thousands of VFs, and all are
// read again when their PFs change.
func TestNamesOfManyFunctionsAreInheritedAtOnce(t *testing.T) {
	prev := &device.Snapshot{Functions: make([]device.Function, 1<<15)}
	fresh := make([]*device.Function, len(prev.Functions))
	for i := range fresh {
		fresh[i] = &device.Function{}
	}
	began := time.Now()
	inheritNames(prev, fresh)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("%d functions took %s", len(fresh), took)
	}
}

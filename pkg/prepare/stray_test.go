package prepare_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// lost has a claim's record removed behind the plugin's back.
func (w *world) lost(uid string) {
	w.t.Helper()
	if err := os.Remove(w.recordFile(uid)); err != nil {
		w.t.Fatal(err)
	}
}

// TestStraysThatWeBoundGoBack, marked as not proven clean; all that is not certain stays.
func TestStraysThatWeBoundGoBack(t *testing.T) {
	tests := map[string]struct {
		build func(*world) pci.Address
		back  bool
		why   string
	}{
		"its record was removed": {func(w *world) pci.Address {
			gpu := w.k.AddGPU(0x3b)
			w.mustPrepare(w.request(uid, gpu))
			w.lost(uid)
			return gpu
		}, true, ""},
		"bound by hand": {func(w *world) pci.Address { return scenes()[9].build(w)[0] }, false, "bound by hand"},
		"quarantined, and its record was removed": {func(w *world) pci.Address {
			gpu, _ := w.quarantined()
			w.lost(uid)
			return gpu
		}, false, "quarantined"},
		"another record is damaged": {func(w *world) pci.Address {
			gpu := w.k.AddGPU(0x3b)
			w.mustPrepare(w.request(uid, gpu))
			w.spoil(uid, `"nvidia"`, `"nvidiA"`)
			return gpu
		}, false, "can't be read"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := tt.build(w)
			before := len(w.unclean())
			for range 2 { // the second time there is nothing left to give back
				strays, err := w.plugin(nil).GiveBackStrays(t.Context())
				if err != nil || tt.why != "" && (len(strays) != 1 || !strings.Contains(strays[0].Why, tt.why)) {
					t.Fatalf("GiveBackStrays = %+v, %v; want %q", strays, err, tt.why)
				}
			}
			if got := w.driver(a); got == "vfio-pci" == tt.back {
				t.Errorf("driver %s, want it given back: %t", got, tt.back)
			}
			if got := len(w.unclean()) - before; got == 1 != tt.back {
				t.Errorf("%d marks more, given back: %t", got, tt.back)
			}
		})
	}
}

// TestCrashInGivingAStrayBack: the next start ends it.
func TestCrashInGivingAStrayBack(t *testing.T) {
	for at := 1; ; at++ {
		var p *power
		for _, after := range []bool{false, true} {
			w := newWorld(t)
			gpu := w.k.AddGPU(0x3b)
			home := w.driver(gpu)
			w.mustPrepare(w.request(uid, gpu))
			w.lost(uid)
			p = &power{at: at, after: after}
			_, _ = w.plugin(p).GiveBackStrays(t.Context()) // nobody hears of its error
			w.mustRecover()
			if _, err := w.plugin(nil).GiveBackStrays(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := w.driver(gpu); got != home || len(w.unclean()) != 1 {
				t.Errorf("%s: driver %s, marks %v", fmt.Sprintf("cut at effect %d (after: %t)", at, after), got, w.unclean())
			}
		}
		if !p.off {
			return
		}
	}
}

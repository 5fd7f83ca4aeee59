package publish_test

import (
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// TestEarlierInstanceWritesAgain: what an earlier instance published may have been without the taint between two looks, if its slice was
// written meanwhile. Then a scheduler has all the time again, and that once: later writes are the running instance's own.
func TestEarlierInstanceWritesAgain(t *testing.T) {
	a := publish.Allocated{Pool: "worker-1", Name: "gpu-0000-04-00-0"}
	listed := func(written string) map[publish.Allocated]publish.Listed {
		return map[publish.Allocated]publish.Listed{a: {Withdrawn: true, Written: written}}
	}
	for what, test := range map[string]struct {
		seeded, offered bool
		written         []string // at each look: at 0, 100 and 200
		want            int64    // the look after which claims are asked
	}{
		"the slice is as it was":     {true, false, []string{"5", "5", "5"}, 100},
		"the slice was written":      {true, false, []string{"5", "7", "7"}, 200},
		"the slice is written often": {true, false, []string{"5", "7", "9"}, 200},
		"on offer in between":        {true, true, []string{"5", "7", "9"}, 100},
		"published by no other":      {false, true, []string{"5", "7", "9"}, 100},
	} {
		t.Run(what, func(t *testing.T) {
			var w publish.Withdrawals
			if test.seeded {
				w.Seed(map[publish.Allocated]publish.Listed{a: {}})
			}
			device := resourceapi.Device{Name: a.Name}
			pools := map[string]publish.Pool{a.Pool: {Slices: []publish.Slice{{Devices: []resourceapi.Device{device}}}}}
			if test.offered {
				w.Published(pools)
			}
			device.Taints = []resourceapi.DeviceTaint{{Key: publish.TaintWithdrawn}}
			pools[a.Pool].Slices[0].Devices[0] = device
			w.Published(pools)
			got := int64(-1)
			for i, written := range test.written {
				now := int64(i) * 100
				w.Seen(w.Open(now), listed(written), now+100)
				if _, due := w.Due(now)[a]; due {
					got = now
					break
				}
			}
			if got != test.want {
				t.Errorf("claims are asked at %d, want %d", got, test.want)
			}
		})
	}
}

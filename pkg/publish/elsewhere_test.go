package publish_test

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// TestGoneFunctionsKeepWhatTheyShare: a claim has a device whose function is gone, in a pool whose counters others don't consume. What
// shares its hardware is not on offer in another pool, and other cards are.
func TestGoneFunctionsKeepWhatTheyShare(t *testing.T) {
	const gpu, disk = "0000:02:00.0", "0000:03:00.0"
	first, second := pfWith(t, "0000:21:00.0", 4, 0, 20), pfWith(t, "0000:22:00.0", 4, 0, 40)
	before := nodeOf(function(t, gpu, gpu3D, 3), function(t, disk, nvme, 3))
	before.FormerNames = true
	consumed := consumption(published(publish.Pools(before)))
	all := []string{"gpu-0000-02-00-0", "gpu-0000-04-00-0", "pf-0000-21-00-0", "pf-0000-22-00-0"}
	for what, test := range map[string]struct {
		held publish.Allocated
		not  string // on offer
	}{
		"the VF of a pair":              {publish.Allocated{Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-04-00-0-vf-0000-22-10-1"}, "pf-0000-22-00-0"},
		"the VF of a pair, former name": {publish.Allocated{Pool: "worker-1", Name: "gpu-0000-04-00-0-vf-0000-22-10-1"}, "pf-0000-22-00-0"},
		"a VF on a bus behind its PF's": {publish.Allocated{Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-04-00-0-vf-0000-23-00-1"}, "pf-0000-22-00-0"},
		"a VF of the first card":        {publish.Allocated{Pool: "worker-1/kata-vfio.dev", Name: "gpu-0000-04-00-0-vf-0000-21-10-1"}, "pf-0000-21-00-0"},
		"a VF shared with a driver":     {publish.Allocated{Pool: "worker-1/kata-vfio.dev/shared", Name: "vf-0000-22-10-1"}, "pf-0000-22-00-0"},
		"a VF in the former PF's pool":  {publish.Allocated{Pool: "worker-1/pf-0000-22-00-0", Name: "vf-0000-22-10-1"}, "pf-0000-22-00-0"},
		"one of a group, former name":   {publish.Allocated{Pool: "worker-1", Name: "nvme-0000-03-00-0"}, "gpu-0000-02-00-0"},
	} {
		t.Run(what, func(t *testing.T) {
			n := nodeOf(slices.Concat(first, second, []device.Function{function(t, gpu, gpu3D, 3), function(t, "0000:04:00.0", gpu3D, 4)})...)
			n.Allocated, n.Consumed = []publish.Allocated{test.held}, consumed
			pools := publish.Pools(n)
			var got []string
			for a, d := range published(pools) {
				if a != test.held && !isWithdrawn(d) {
					got = append(got, d.Name)
				}
			}
			slices.Sort(got)
			want := slices.DeleteFunc(slices.Clone(all), func(name string) bool {
				// A pair's GPU has the same counter in the pair's pool; under another name of the pool it is not on offer.
				return name == test.not || test.held.Pool == "worker-1" && name == "gpu-0000-04-00-0" && test.held.Name[:3] == "gpu"
			})
			if !slices.Equal(got, want) {
				t.Errorf("on offer: %v, want %v", got, want)
			}
		})
	}
}

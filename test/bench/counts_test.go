package bench

import (
	"encoding/json"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/bench/fleet"
	"github.com/kata-vfio/kata-vfio/test/bench/largenode"
)

// TestSizeOfSlices limits what a node with 8 GPUs and 128 VFs takes of the API server: slices, and their JSON.
func TestSizeOfSlices(t *testing.T) {
	for name, test := range map[string]struct {
		config      v1alpha1.NodeConfig
		slices, KiB int
	}{
		"singles":   {v1alpha1.NodeConfig{}, 9, 95},
		"pairs":     {v1alpha1.NodeConfig{Pairing: v1alpha1.PairingSwitch}, 10, 98},
		"selection": {v1alpha1.NodeConfig{VFAttributes: v1alpha1.VFAttributesSelection}, 9, 56},
		"minimal":   {v1alpha1.NodeConfig{VFAttributes: v1alpha1.VFAttributesMinimal}, 9, 44},
	} {
		t.Run(name, func(t *testing.T) {
			count, size := 0, 0
			for _, pool := range publish.Pools(fleet.Node("node", 16, &test.config)) {
				for _, s := range pool.Slices {
					text, err := json.Marshal(s)
					must(t, err)
					count, size = count+1, size+len(text)
				}
			}
			t.Logf("%d slices, %.1f KiB", count, float64(size)/1024)
			if count > test.slices || size > test.KiB<<10 {
				t.Errorf("%d slices with %d KiB; at most %d and %d are expected", count, size>>10, test.slices, test.KiB)
			}
		})
	}
}

// TestAllocations limits what a scan and a publication of a node allocate for each of its functions.
func TestAllocations(t *testing.T) {
	k := sysfstest.New(t)
	k.Scale(512)
	must(t, k.Err())
	fs, err := sysfs.Open(k.Root())
	must(t, err)
	defer fs.Close()
	snap, err := inventory.Scan(t.Context(), fs)
	must(t, err)
	each := func(work func() error) int {
		return int(testing.AllocsPerRun(3, func() { must(t, work()) })) / len(snap.Functions)
	}
	scan := each(func() error { _, err := inventory.Scan(t.Context(), fs); return err })
	publishing := each(func() error { _, err := largenode.Publish(snap); return err })
	t.Logf("allocations for each function: %d by the scan, %d to publish it", scan, publishing)
	const scanLimit, publishLimit = 125, 145
	if scan > scanLimit || publishing > publishLimit {
		t.Errorf("%d and %d allocations for each function, by scan and publication; at most %d and %d are expected", scan, publishing, scanLimit, publishLimit)
	}
}

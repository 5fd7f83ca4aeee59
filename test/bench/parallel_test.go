package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// slowWrite is what a write takes on the scripted node.
func slowWrite() time.Duration { return sized(100*time.Millisecond, time.Millisecond) }

// manyClaims are independent claims at once: of a node with that many VFs or partitions, when all its pods start.
const manyClaims = 64

// slowNode is a node with GPUs whose kernel takes its time, and a plugin on it.
func slowNode(b *testing.B) (*prepare.Preparer, []pci.Address) {
	b.Helper()
	return slowNodeWith(b, nil)
}

// slowNodeWith is slowNode whose plugin is observed.
func slowNodeWith(b *testing.B, observe effects.Observer) (*prepare.Preparer, []pci.Address) {
	b.Helper()
	k := sysfstest.New(b)
	var gpus []pci.Address
	for i := range uint8(manyClaims) {
		gpus = append(gpus, k.AddGPU(0x30+i))
	}
	k.OnWrite(func(string, string) error {
		time.Sleep(slowWrite()) // stands for the kernel
		return nil
	})
	return preparerOn(b, k, observe), gpus
}

// round prepares and unprepares claims on the GPUs at once, one claim each.
func round(b *testing.B, p *prepare.Preparer, gpus []pci.Address) (preparing, unpreparing time.Duration) {
	b.Helper()
	preparing = timed(func() { prepareAll(b, p, gpus) })
	unpreparing = timed(func() { unprepareAll(b, p, gpus) })
	return preparing, unpreparing
}

// atOnce does the work for each GPU at the same time.
func atOnce(b *testing.B, gpus []pci.Address, work func(ctx context.Context, gpu pci.Address) error) {
	b.Helper()
	var wg sync.WaitGroup
	for _, gpu := range gpus {
		wg.Go(func() {
			if err := work(b.Context(), gpu); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}

// BenchmarkManyClaims prepares and unprepares 8 and 64 independent claims at once, against one.
func BenchmarkManyClaims(b *testing.B) {
	p, gpus := slowNode(b)
	counts := []int{1, 8, manyClaims}
	in, out := make([]time.Duration, len(counts)), make([]time.Duration, len(counts))
	for b.Loop() {
		for i, count := range counts {
			preparing, unpreparing := round(b, p, gpus[:count])
			in[i], out[i] = in[i]+preparing, out[i]+unpreparing
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, count := range counts {
		each := func(d time.Duration) time.Duration { return (d / time.Duration(b.N)).Round(time.Millisecond) }
		fmt.Printf("%d claims at once, %v a write: prepare %v, unprepare %v\n", count, slowWrite(), each(in[i]), each(out[i]))
		if i > 0 {
			reportAim(b, float64(in[i])/float64(in[0]), fmt.Sprintf("prepare-%d/1", count), 1.15)
			reportAim(b, float64(out[i])/float64(out[0]), fmt.Sprintf("unprepare-%d/1", count), 1.15)
		}
	}
}

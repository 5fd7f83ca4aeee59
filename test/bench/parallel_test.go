package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// slowWrite is what a write takes on the scripted node.
const slowWrite = 100 * time.Millisecond

// slowNode is a node with eight GPUs whose kernel takes its time, and a plugin on it.
func slowNode(b *testing.B) (*prepare.Preparer, []pci.Address) {
	b.Helper()
	k := sysfstest.New(b)
	var gpus []pci.Address
	for i := range uint8(8) {
		gpus = append(gpus, k.AddGPU(0x30+i))
	}
	k.OnWrite(func(string, string) error {
		time.Sleep(slowWrite) // stands for the kernel
		return nil
	})
	fs, err := sysfs.Open(k.Root())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = fs.Close() })
	inventory, err := node.Scanning(fs)
	if err != nil {
		b.Fatal(err)
	}
	records, err := journal.Open(filepath.Join(b.TempDir(), "journal"))
	if err != nil {
		b.Fatal(err)
	}
	locks, err := journal.NewLocks(filepath.Join(b.TempDir(), "locks"))
	if err != nil {
		b.Fatal(err)
	}
	specs, err := cdi.Open(filepath.Join(b.TempDir(), "cdi"))
	if err != nil {
		b.Fatal(err)
	}
	return prepare.New(prepare.Config{
		Parts: effects.Parts{
			FS: fs, Inventory: inventory, Journal: records, Locks: locks, Specs: specs, Holders: vfio.NewProcesses(fs),
			Executor: bind.New(fs, control.New(k, fs, time.Minute), k, k.HotReset),
		},
		UndoLimit: time.Minute,
	}), gpus
}

// round prepares and unprepares claims on the GPUs at once, one claim each.
func round(b *testing.B, p *prepare.Preparer, gpus []pci.Address) (preparing, unpreparing time.Duration) {
	b.Helper()
	each := func(work func(ctx context.Context, gpu pci.Address) error) func() {
		return func() {
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
	}
	preparing = timed(each(func(ctx context.Context, gpu pci.Address) error {
		_, err := p.Prepare(ctx, request(gpu))
		return err
	}))
	unpreparing = timed(each(func(ctx context.Context, gpu pci.Address) error {
		_, err := p.Unprepare(ctx, gpu.Label())
		return err
	}))
	return preparing, unpreparing
}

func request(gpu pci.Address) *claim.Request {
	d := claim.Device{Request: "gpu", Pool: "node", Name: "gpu-" + gpu.Label(), Address: gpu}
	d.VFIO.Default()
	return &claim.Request{UID: gpu.Label(), Devices: []claim.Device{d}}
}

// BenchmarkEightClaims prepares and unprepares eight independent claims at once, against one.
func BenchmarkEightClaims(b *testing.B) {
	p, gpus := slowNode(b)
	var one, eight, back1, back8 time.Duration
	for b.Loop() {
		in, out := round(b, p, gpus[:1])
		one, back1 = one+in, back1+out
		in, out = round(b, p, gpus)
		eight, back8 = eight+in, back8+out
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(eight)/float64(one), "prepare-8/1")
	b.ReportMetric(float64(back8)/float64(back1), "unprepare-8/1")
	fmt.Printf("eight claims at once, %v a write: prepare %v against %v for one, unprepare %v against %v\n",
		slowWrite, (eight / time.Duration(b.N)).Round(time.Millisecond), (one / time.Duration(b.N)).Round(time.Millisecond),
		(back8 / time.Duration(b.N)).Round(time.Millisecond), (back1 / time.Duration(b.N)).Round(time.Millisecond))
}

package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/renameio/v2"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// pairsOf has two devices of one node by their kind. The first is kept warm.
func pairsOf() map[string]func(*sysfstest.Kernel) []pci.Address {
	return map[string]func(*sysfstest.Kernel) []pci.Address{
		"gpu": func(k *sysfstest.Kernel) []pci.Address { return []pci.Address{k.AddGPU(0x30), k.AddGPU(0x31)} },
		"vf": func(k *sysfstest.Kernel) []pci.Address {
			_, vfs := k.AddNIC(0x21, 2)
			return vfs
		},
	}
}

// warmNode is a node whose kernel takes its time, with a plugin that keeps the first device warm.
func warmNode(b *testing.B, k *sysfstest.Kernel, kind string, devices []pci.Address, observe effects.Observer) *prepare.Preparer {
	b.Helper()
	config := &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{
		{Match: v1alpha1.DeviceMatch{Addresses: devices[:1]}, Warm: v1alpha1.Share{Amount: 1}},
		{Match: v1alpha1.DeviceMatch{Types: []string{kind}}},
	}}
	config.Default()
	p := preparerOn(b, k, observe, func(c *prepare.Config) { c.Node = config })
	k.OnWrite(func(string, string) error {
		time.Sleep(slowWrite()) // stands for the kernel
		return nil
	})
	pools, err := maintain.New(p.Order(), nil).KeepWarm(b.Context(), maintain.Warming{})
	must(b, err)
	if len(pools) != 1 || len(pools[0].Ready) != 1 {
		b.Fatalf("no device is warm: %+v", pools)
	}
	return p
}

// BenchmarkWarmClaim prepares a claim of a warm device and of a cold one in turns, and prints the phases of both. Beside
// them it replaces one file durably, as for one record: what is left of a warm Prepare is a few of these.
func BenchmarkWarmClaim(b *testing.B) {
	for kind, add := range pairsOf() {
		b.Run(kind, func(b *testing.B) {
			k := sysfstest.New(b)
			devices := add(k)
			var phases [2]phaseTimes
			var took [2]time.Duration
			now := -1 // whose Prepare is measured
			p := warmNode(b, k, kind, devices, func(e effects.Event) {
				if now >= 0 {
					phases[now].observe(e)
				}
			})
			var durable time.Duration
			record := filepath.Join(b.TempDir(), "record.json")
			for b.Loop() {
				for i, a := range devices {
					now = i
					took[i] += timed(func() { prepareOne(b.Context(), b, p, kind, a) })
					now = -1
					_, err := p.Unprepare(b.Context(), a.Label())
					must(b, err)
				}
				durable += timed(func() { must(b, renameio.WriteFile(record, make([]byte, 2048), 0o600)) })
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(took[1])/float64(took[0]), "cold/warm")
			b.ReportMetric(float64(took[0])/float64(durable), "warm/durable-file")
			for i, name := range []string{"warm", "cold"} {
				fmt.Printf("Prepare of a %s %s, %v a write: %v; phases by the clock: %s\n",
					name, kind, slowWrite(), (took[i] / time.Duration(b.N)).Round(10*time.Microsecond), phases[i].table(b.N))
			}
			fmt.Printf("a file replaced durably: %v\n", (durable / time.Duration(b.N)).Round(10*time.Microsecond))
		})
	}
}

func prepareOne(ctx context.Context, b *testing.B, p *prepare.Preparer, kind string, a pci.Address) {
	b.Helper()
	_, err := p.Prepare(ctx, request(kind, a))
	must(b, err)
}

//go:build e2e

package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

const (
	// devices are published by the node, and claims prepared on it, when its memory is looked at.
	devices, claims = 512, 100
	// pods have a claim when the runtime's calls are timed.
	pods = 200
)

// newFunctions is how many functions a scripted node has of which so many are published: of the 17 behind each of its
// switches, the two PFs are not, since their VFs are.
func functionsOf(published int) int { return (published + 14) / 15 * 17 }

// gpuDomain is a PCI domain that scripted nodes don't use.
const gpuDomain = 0x100

// addGPUs adds GPUs, each below a root port of its own: up to 224. VFs can't be prepared, because the scripted kernel has no netlink.
func addGPUs(k *sysfstest.Kernel, n int) {
	k.AddRoot(sysfstest.Root{Domain: gpuDomain})
	for i := range n {
		bus := uint8(i + 1)
		k.AddPort(sysfstest.Port{
			Address: pci.Address{Domain: gpuDomain, Device: uint8(i / 7), Function: uint8(i % 7)}, Secondary: bus,
		})
		k.Add(sysfstest.GPU(pci.Address{Domain: gpuDomain, Bus: bus}))
	}
}

// BenchmarkPlugin looks at one plugin on a large node in a real cluster: the memory that it takes, and how long the
// runtimes wait for its answers.
func BenchmarkPlugin(b *testing.B) {
	c, dir := newCluster(b), socketDir(b)
	r := startRuntime(b, dir)
	k := scriptedNode(b, functionsOf(devices-pods))
	addGPUs(k, pods)
	p := startPlugin(b, k, dir, nodeName, c.kubeconfig(b))
	idle := startIdle(b, c.kubeconfig(b))
	published := c.published(b, devices)
	gpus := slices.DeleteFunc(slices.Clone(published), func(o offer) bool { return !strings.HasPrefix(o.device, "gpu-") })
	tenants := c.tenants(b, "large", gpus[:pods])
	unused := compare(b, p.Process, idle)
	took := each(b, tenants[:claims], p.prepare)
	used := compare(b, p.Process, idle)
	fmt.Printf("%d devices published, %d claims prepared in %v, eight at once\n", len(published), claims, took.Round(time.Second))
	b.Run("memory", func(b *testing.B) {
		var least comparison
		for b.Loop() {
			least = comparison{freed(b, p.Process), freed(b, idle)}
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(len(published)), "devices")
		unused.report(b, "unused")
		used.report(b, "prepared")
		least.report(b, "freed")
	})
	each(b, tenants[claims:], p.prepare)
	startKubelet(b, p.kubeletSocket(), tenants)
	b.Chdir(b.TempDir()) // this process is the shim of one sandbox after the other
	var first asked
	first.askForAll(b, p, tenants)
	b.Run("pod-resources", func(b *testing.B) { podResources(b, p, tenants, first) })
	specs, err := cdi.Open(k.Path(node.DefaultCDIDir))
	if err != nil {
		b.Fatal(err)
	}
	r.ready(b)
	b.Run("create-container", func(b *testing.B) { createContainer(b, r, tenants, specs) })
}

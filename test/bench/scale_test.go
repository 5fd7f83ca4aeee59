package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/bench/largenode"
)

// functions is the size of the large node.
func functions() int { return sized(4096, 256) }

// attributes are the files of one function that a scan reads.
func attributes() []string {
	return []string{
		"vendor", "device", "subsystem_vendor", "subsystem_device", "class", "revision", "modalias", "driver_override",
		"numa_node", "resource", "reset_method", "config", "current_link_speed", "current_link_width", "max_link_speed", "max_link_width",
	}
}

// largeNode writes a node of 4,096 functions into memory-backed storage where there is some.
func largeNode(b *testing.B) (*sysfstest.Kernel, *sysfs.FS, []pci.Address) {
	b.Helper()
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "kata-vfio-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	k, err := sysfstest.NewAt(filepath.Join(dir, "node"))
	if err != nil {
		b.Fatal(err)
	}
	addrs := k.Scale(functions())
	if err := k.Err(); err != nil {
		b.Fatal(err)
	}
	fs, err := sysfs.Open(k.Root())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = fs.Close() })
	return k, fs, addrs
}

// bareReads reads the same files of all functions, one after the other, and makes nothing of them.
func bareReads(b *testing.B, k *sysfstest.Kernel) {
	b.Helper()
	devices := k.Path("sys/bus/pci/devices")
	entries, err := os.ReadDir(devices)
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		for _, name := range attributes() {
			_, _ = os.ReadFile(filepath.Join(devices, e.Name(), name)) // not every function has every file
		}
		for _, link := range []string{"driver", "iommu_group", "physfn"} {
			_, _ = os.Readlink(filepath.Join(devices, e.Name(), link))
		}
	}
}

// BenchmarkLargeNode scans and publishes 4,096 functions, and then one changed function, against bare reads of the
// same files.
func BenchmarkLargeNode(b *testing.B) {
	k, fs, addrs := largeNode(b)
	var bare, scan, rescan, publishing time.Duration
	var size int
	rounds := 0
	for b.Loop() {
		rounds++
		bare += timed(func() { bareReads(b, k) })
		var snap *device.Snapshot
		scan += timed(func() { snap = mustScan(b, fs) })
		publishing += timed(func() {
			var err error
			size, err = largenode.Publish(snap)
			must(b, err)
		})
		rescan += timed(func() {
			if _, err := inventory.Rescan(b.Context(), fs, snap, addrs[:1]); err != nil {
				b.Fatal(err)
			}
		})
	}
	n := time.Duration(rounds)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(scan)/float64(bare), "scan/bare-reads")
	b.ReportMetric(float64(rescan)/float64(scan), "rescan-of-one/scan")
	b.ReportMetric(float64(publishing)/float64(bare), "publish/bare-reads")
	reportAim(b, float64(peak(b, fs))/(1<<20), "MiB-peak", 64)
	fmt.Printf("%d functions: bare reads %v, scan %v, judge and publish %v (%d KiB), rescan of one %v\n",
		functions(), (bare / n).Round(time.Millisecond), (scan / n).Round(time.Millisecond), (publishing / n).Round(time.Millisecond), size>>10, (rescan / n).Round(time.Microsecond))
}

func mustScan(b *testing.B, fs *sysfs.FS) *device.Snapshot {
	b.Helper()
	snap, err := inventory.Scan(b.Context(), fs)
	if err != nil {
		b.Fatal(err)
	}
	if len(snap.Functions) < functions() {
		b.Fatalf("%d functions, want %d", len(snap.Functions), functions())
	}
	return snap
}

// peak returns the greatest resident memory, in bytes, of a process that scans and publishes the node once.
func peak(b *testing.B, fs *sysfs.FS) int64 {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), compile(b, "./scanonce"), fs.Path())
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	_, line, _ := strings.Cut(string(out), "VmHWM:")
	var kibibytes int64
	if _, err := fmt.Sscanf(line, "%d kB", &kibibytes); err != nil {
		b.Fatalf("no peak in %s: %v", out, err)
	}
	return kibibytes << 10
}

func timed(work func()) time.Duration {
	begin := time.Now()
	work()
	return time.Since(begin)
}

//go:build e2e

package bench

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/e2e/process"
)

// unasked is how long a plugin is watched that nobody asks for anything.
const unasked = time.Minute

// BenchmarkRequests measures what the chart's resources ask for: a plugin's memory and its share of a processor, on a node of 8
// GPUs that are all prepared, and on one that has 8 PFs of 128 VFs besides. VFs are not prepared: the scripted kernel has no netlink.
func BenchmarkRequests(b *testing.B) {
	for _, nics := range []int{0, 8} {
		figures := requestsOf(b, nics)
		b.Run(fmt.Sprintf("8_GPUs_and_%d_VFs", nics*fullVFs), func(b *testing.B) {
			for b.Loop() { // all is measured
			}
			b.ReportMetric(0, "ns/op")
			for unit, n := range figures {
				b.ReportMetric(n, unit)
			}
		})
	}
}

// requestsOf are the figures of one plugin, by their units.
func requestsOf(b *testing.B, nics int) map[string]float64 {
	b.Helper()
	c, dir := newCluster(b), socketDir(b)
	p := startPlugin(b, gpusAndVFs(b, nics), dir, nodeName, c.kubeconfig(b))
	gpus := slices.DeleteFunc(c.published(b, 8+nics*fullVFs), func(o offer) bool { return !strings.HasPrefix(o.device, "gpu-") })
	figures := map[string]float64{"MiB-published": inMemory(b, p.Process, "VmRSS")}
	tenants := c.tenants(b, "some", gpus)
	before := processorTime(b, p.Process)
	each(b, tenants, p.prepare)
	figures["ms-of-CPU/claim"] = milliseconds(processorTime(b, p.Process)-before) / float64(len(gpus))
	figures["MiB-prepared"] = inMemory(b, p.Process, "VmRSS")
	before = processorTime(b, p.Process)
	time.Sleep(unasked)
	figures["millicores-unasked"] = milliseconds(processorTime(b, p.Process)-before) / unasked.Seconds()
	figures["MiB-unasked"], figures["MiB-most"] = inMemory(b, p.Process, "VmRSS"), inMemory(b, p.Process, "VmHWM")
	return figures
}

// gpusAndVFs is a node of 8 GPUs, and PFs of 128 VFs each.
func gpusAndVFs(b *testing.B, nics int) *sysfstest.Kernel {
	b.Helper()
	k := sysfstest.New(b)
	for i := range 8 {
		k.AddGPU(uint8(0x10 + 2*i))
	}
	for i := range nics {
		k.AddNIC(uint8(0x40+4*i), fullVFs)
	}
	k.PutFile("proc/devices", "Character devices:\n 10 misc\n235 vfio\n511 vfio-dev\n\nBlock devices:\n259 blkext\n")
	if err := k.Err(); err != nil {
		b.Fatal(err)
	}
	return k
}

// inMemory is what a process has in memory (VmRSS), or had at most (VmHWM of proc_pid_status(5)), in MiB.
func inMemory(b *testing.B, p *process.Process, field string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		b.Fatal(err)
	}
	var kilobytes int64
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, field+": %d kB", &kilobytes)
	}
	return mebibytes(kilobytes << 10)
}

// processorTime is what a process has used, its own and the kernel's for it (utime and stime of proc_pid_stat(5)).
func processorTime(b *testing.B, p *process.Process) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])) // from the third on
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	const ticksPerSecond = 100 // USER_HZ, for every architecture of ours
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

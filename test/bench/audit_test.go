package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/apt"
)

// audited is the size of the node that is audited, and tenants are how many have one function each.
const audited, tenants = 2048, 32

// BenchmarkAudit judges a node of 2,048 functions by all checks, as `kata-vfio-audit node -o json` does, against
// `lspci -vvv` of the same tree. Both are processes of their own; of each the fastest run counts.
func BenchmarkAudit(b *testing.B) {
	lspci := installed(b, "lspci", "pciutils")
	tree := auditedNode(b)
	binary := filepath.Join(b.TempDir(), "kata-vfio-audit")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", binary, "./cmd/kata-vfio-audit")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	audit := usage{least: time.Hour}
	other := usage{least: time.Hour}
	for b.Loop() {
		other.add(b, lspci, "-vvv", "-A", "linux-sysfs", "-O", "sysfs.path="+tree.Path("sys/bus/pci"))
		audit.add(b, binary, "node", "-o", "json", "--root", tree.Root())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(audit.least)/float64(other.least), "audit/lspci")
	b.ReportMetric(float64(audit.processor)/float64(other.processor), "audit-cpu/lspci-cpu")
	b.ReportMetric(float64(audit.least.Milliseconds()), "ms")
	b.ReportMetric(float64(audit.processor.Milliseconds()), "cpu-ms")
	b.ReportMetric(float64(audit.memory)/(1<<20), "MiB-peak")
}

// auditedNode writes a node with tenants into memory-backed storage where there is some.
func auditedNode(b *testing.B) *board.Tree {
	b.Helper()
	if _, err := os.Stat("/dev/shm"); err == nil {
		b.Setenv("TMPDIR", "/dev/shm")
	}
	t := board.New(b)
	all := t.Scale(audited)
	for i := range tenants {
		t.Give(fmt.Sprintf("t%d", i), "claim", all[i*len(all)/tenants])
	}
	// Deleting a quarter of a million files is the slowest of all.
	if names, err := os.ReadDir(t.Path(sysfs.Devices)); err != nil || len(names) < audited {
		b.Fatalf("the node has %d functions (%v)", len(names), err)
	}
	return t
}

// usage is the least that runs of a program took.
type usage struct {
	least, processor time.Duration
	memory           int64 // bytes, the most of all runs
}

// add runs the program, whose output is thrown away. The audit ends with 3 where it found something.
func (u *usage) add(b *testing.B, name string, args ...string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), name, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	begin := time.Now()
	err := cmd.Run()
	took := time.Since(begin)
	if err != nil && cmd.ProcessState.ExitCode() != 3 {
		b.Fatalf("%s: %v: %s", cmd, err, &said)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if u.processor == 0 || used < u.processor {
		u.processor = used
	}
	u.least = min(u.least, took)
	if r, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.memory = max(u.memory, r.Maxrss<<10)
	}
}

// installed returns where a program is, which is installed where it is missing.
func installed(b *testing.B, program, pkg string) string {
	b.Helper()
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	if err := apt.Install(b.Context(), b.Output(), pkg); err != nil {
		b.Fatal(err)
	}
	path, err := exec.LookPath(program)
	if err != nil {
		b.Fatal(err)
	}
	return path
}

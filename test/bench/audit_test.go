package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/internal/apt"
)

// The node that is audited has 2,052 functions, and the one that is collected 2,653: assignable ones, and the ports above
// them. Each tenant has one of the former.
func assignable() int  { return sized(1582, 64) }
func collectable() int { return sized(2048, 64) }

const tenants = 32

// BenchmarkAudit judges a node of 2,048 functions by all checks, as `kata-vfio-audit node -o json` does, against
// `lspci -vvv` of the same tree. Both are processes of their own that take turns; of each the fastest run counts. On
// a machine that has other work to do, processor time and system calls say more than the time on the clock.
func BenchmarkAudit(b *testing.B) {
	node := auditedNode(b, assignable())
	lspci := []string{installed(b, "lspci", "pciutils"), "-vvv", "-A", "linux-sysfs", "-O", "sysfs.path=" + node.tree.Path("sys/bus/pci")}
	audit := []string{built(b, "./cmd/kata-vfio-audit"), "node", "-o", "json", "--root", node.tree.Root()}
	ours, theirs := usage{least: time.Hour}, usage{least: time.Hour}
	for b.Loop() {
		theirs.add(b, lspci...)
		ours.add(b, audit...)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(node.functions), "functions")
	reportAim(b, float64(ours.least)/float64(theirs.least), "audit/lspci", 0.5)
	reportAim(b, float64(ours.processor)/float64(theirs.processor), "audit-cpu/lspci-cpu", 0.7)
	b.ReportMetric(float64(ours.least.Milliseconds()), "ms")
	b.ReportMetric(float64(ours.processor.Milliseconds()), "cpu-ms")
	b.ReportMetric(float64(peakOf(b, audit...))/(1<<20), "MiB-peak")
	b.ReportMetric(float64(systemCalls(b, audit...)), "syscalls")
	b.ReportMetric(float64(systemCalls(b, lspci...)), "lspci-syscalls")
	b.ReportMetric(float64(pageBytes(b, audit[0], node.tree.Root())), "html-bytes")
}

// BenchmarkCollect copies a node of 2,653 functions against an audit of it. The two take turns as in [BenchmarkAudit].
func BenchmarkCollect(b *testing.B) {
	node := auditedNode(b, collectable())
	audit := []string{built(b, "./cmd/kata-vfio-audit"), "node", "-o", "json", "--root", node.tree.Root()}
	collect := []string{audit[0], "collect", "--root", node.tree.Root(), "--file", filepath.Join(b.TempDir(), "node.tgz")}
	copying, judging := usage{least: time.Hour}, usage{least: time.Hour}
	for b.Loop() {
		copying.add(b, collect...)
		judging.add(b, audit...)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(node.functions), "functions")
	b.ReportMetric(float64(copying.least)/float64(judging.least), "collect/audit")
	b.ReportMetric(float64(copying.processor)/float64(judging.processor), "collect-cpu/audit-cpu")
	reportAim(b, float64(copying.least.Milliseconds()), "ms", 3000)
	b.ReportMetric(float64(copying.processor.Milliseconds()), "cpu-ms")
	b.ReportMetric(float64(peakOf(b, collect...))/(1<<20), "MiB-peak")
	b.ReportMetric(float64(systemCalls(b, collect...))/float64(node.functions), "syscalls/function")
}

// built returns the program that a package of the module makes.
func built(b *testing.B, pkg string) string {
	b.Helper()
	binary := filepath.Join(b.TempDir(), filepath.Base(pkg))
	build := exec.CommandContext(b.Context(), "go", "build", "-o", binary, pkg)
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return binary
}

// systemCalls counts the calls on files that a program makes. Those by which Go's runtime has threads wait are as
// many as the machine is busy.
func systemCalls(b *testing.B, args ...string) int {
	b.Helper()
	table := filepath.Join(b.TempDir(), "strace")
	traced := append([]string{installed(b, "strace", "strace"), "-f", "-qq", "-c", "-e", "trace=%file,%desc", "-U", "name,calls", "-o", table}, args...)
	(&usage{least: time.Hour}).add(b, traced...)
	text, err := os.ReadFile(table)
	if err != nil {
		b.Fatal(err)
	}
	total := 0
	for line := range strings.Lines(string(text)) {
		name, calls, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(strings.TrimSpace(calls))
		if waiting := strings.HasPrefix(name, "epoll_"); err == nil && name != "total" && !waiting {
			total += n
		}
	}
	return total
}

// pageBytes is the size of the audit's HTML report.
func pageBytes(b *testing.B, audit, root string) int64 {
	b.Helper()
	page := filepath.Join(b.TempDir(), "node.html")
	(&usage{least: time.Hour}).add(b, audit, "node", "-o", "html", "--root", root, "--file", page)
	info, err := os.Stat(page)
	if err != nil {
		b.Fatal(err)
	}
	return info.Size()
}

// auditee is a node to audit.
type auditee struct {
	tree      *board.Tree
	functions int
}

// auditedNode writes a node with so many assignable functions and with tenants. It uses memory-backed storage if there is
// some.
func auditedNode(b *testing.B, assignable int) auditee {
	b.Helper()
	inMemoryStorage(b)
	t := board.New(b)
	all := t.Scale(assignable)
	for i := range tenants {
		t.Give(fmt.Sprintf("t%d", i), "claim", all[i*len(all)/tenants])
	}
	names, err := os.ReadDir(t.Path(sysfs.Devices))
	if err != nil || len(names) < assignable {
		b.Fatalf("the node has %d functions (%v)", len(names), err)
	}
	return auditee{tree: t, functions: len(names)}
}

// inMemoryStorage has temporary files in memory-backed storage where there is some.
func inMemoryStorage(b *testing.B) {
	b.Helper()
	if _, err := os.Stat("/dev/shm"); err == nil {
		b.Setenv("TMPDIR", "/dev/shm")
	}
}

// usage is the least that runs of a program took.
type usage struct {
	least, processor time.Duration
}

// add runs the program, whose output is thrown away. The audit ends with 3 where it found something.
func (u *usage) add(b *testing.B, args ...string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), args[0], args[1:]...)
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
}

// peakOf returns the greatest resident memory of a program, in bytes, as time(1) tells it: what wait4(2) says of a child is at
// least its parent's, and this process has made the node.
func peakOf(b *testing.B, args ...string) int64 {
	b.Helper()
	out := filepath.Join(b.TempDir(), "peak")
	cmd := exec.CommandContext(b.Context(), installed(b, "time", "time"), append([]string{"--quiet", "-f", "%M", "-o", out}, args...)...)
	if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != 3 {
		b.Fatalf("%s: %v", cmd, err)
	}
	text, err := os.ReadFile(out)
	must(b, err)
	kibibytes, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	must(b, err)
	return kibibytes << 10
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

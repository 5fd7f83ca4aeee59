package bench

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// processes is how many a large node has.
func processes() int { return sized(20_000, 200) }

// callers are the claims that ask at once who holds their devices.
const callers = 64

// find searches for the holders of nodes; see [vfio.Processes.Find].
type find func(ctx context.Context, nodes []string) ([]vfio.Holder, error)

// BenchmarkHolders searches 20,000 processes for holders: with one walk for 64 callers, with a walk for each of them,
// and with one walk against a bare listing of the same links.
func BenchmarkHolders(b *testing.B) {
	root := busyNode(b)
	fs, err := sysfs.Open(root)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = fs.Close() })
	single := func(ctx context.Context, nodes []string) ([]vfio.Holder, error) { return vfio.Holders(ctx, fs, nodes) }
	var bare, one, shared, single64 time.Duration
	for b.Loop() {
		bare += timed(func() { bareLinks(b, root) })
		one += timed(func() { findAll(b, 1, single) })
		shared += timed(func() { findAll(b, callers, vfio.NewProcesses(fs).Find) })
		single64 += timed(func() { findAll(b, callers, single) })
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(milliseconds(one)/float64(b.N), "ms-walk")
	b.ReportMetric(float64(one)/float64(bare), "walk/bare-links")
	b.ReportMetric(float64(shared)/float64(one), "64-callers/walk")
	b.ReportMetric(float64(shared)/float64(single64), "64-callers/64-walks")
}

// busyNode writes a proc with many processes, of which the first few have a VFIO group open each. It returns the root.
func busyNode(b *testing.B) string {
	b.Helper()
	inMemoryStorage(b)
	root := b.TempDir()
	for i := range processes() {
		dir := filepath.Join(root, "proc", strconv.Itoa(1000+i))
		files := []string{"/dev/null", "/dev/null", "socket:[1]", "pipe:[2]", "/var/log/messages", "anon_inode:[eventpoll]"}
		if i < callers {
			files = append(files, vfio.GroupNode(i))
		}
		if err := writeProcess(dir, 1000+i, files); err != nil {
			b.Fatal(err)
		}
	}
	return root
}

// writeProcess writes what a search reads of a process.
func writeProcess(dir string, pid int, files []string) error {
	if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"comm": "sleep\n", "cgroup": "0::/\n",
		"stat": strconv.Itoa(pid) + " (sleep) S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 8675309 1 1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for fd, file := range files {
		if err := os.Symlink(file, filepath.Join(dir, "fd", strconv.Itoa(fd))); err != nil {
			return err
		}
	}
	return nil
}

// bareLinks reads the links of all open files, one after the other.
func bareLinks(b *testing.B, root string) {
	b.Helper()
	proc := filepath.Join(root, "proc")
	pids, err := os.ReadDir(proc)
	if err != nil {
		b.Fatal(err)
	}
	for _, pid := range pids {
		dir := filepath.Join(proc, pid.Name(), "fd")
		fds, err := os.ReadDir(dir)
		if err != nil {
			b.Fatal(err)
		}
		for _, fd := range fds {
			if _, err := os.Readlink(filepath.Join(dir, fd.Name())); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// findAll has n callers ask at once, each of them for a node that one process has open.
func findAll(b *testing.B, n int, search find) {
	b.Helper()
	var asking errgroup.Group
	found := make([]int, n)
	for i := range n {
		asking.Go(func() error {
			holders, err := search(b.Context(), []string{vfio.GroupNode(i)})
			found[i] = len(holders)
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		b.Fatal(err)
	}
	for i, holders := range found {
		if holders != 1 {
			b.Fatalf("%s has %d holders, want one", vfio.GroupNode(i), holders)
		}
	}
}

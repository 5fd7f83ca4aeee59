//go:build e2e

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
)

// resident is what a process has in memory, in bytes, as /proc/<pid>/status says (proc_pid_status(5)).
type resident struct {
	all       int64 // VmRSS, with the pages of its binary
	anonymous int64 // RssAnon, which nobody else shares
}

func residentOf(p *process.Process) (resident, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return resident{}, err
	}
	var r resident
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %d kB", &r.all)
		_, _ = fmt.Sscanf(line, "RssAnon: %d kB", &r.anonymous)
	}
	if r.all == 0 || r.anonymous == 0 {
		return resident{}, errors.New("no VmRSS and RssAnon: has the process ended?")
	}
	return resident{r.all << 10, r.anonymous << 10}, nil
}

// freed has the process collect its garbage and give back what is free, and returns what is left. It has when its
// memory stays the same for a second.
func freed(b *testing.B, p *process.Process) resident {
	b.Helper()
	if err := syscall.Kill(p.PID(), syscall.SIGUSR1); err != nil {
		b.Fatal(err)
	}
	var last resident
	same := 0
	err := wait.PollUntilContextTimeout(b.Context(), 100*time.Millisecond, time.Minute, false, func(context.Context) (bool, error) {
		now, err := residentOf(p)
		if same++; now != last {
			last, same = now, 0
		}
		return same >= 10, err
	})
	if err != nil {
		b.Fatal(err)
	}
	return last
}

// startIdle starts the process to compare with.
func startIdle(b *testing.B, kubeconfig string) *process.Process {
	b.Helper()
	dir := socketDir(b)
	log := filepath.Join(dir, "log")
	p := start(b, exec.CommandContext(b.Context(), compile(b, "./idle"),
		"--kubeconfig", kubeconfig, "--node-name", nodeName, "--dir", dir), log)
	eventually(b, "the idle process is ready", func(context.Context) error {
		if text, err := os.ReadFile(log); err != nil || !bytes.Contains(text, []byte("ready")) {
			return errors.Join(errors.New("it is not"), err)
		}
		return nil
	})
	return p
}

// comparison is the plugin's memory and that of the idle process.
type comparison struct{ plugin, idle resident }

// compare looks at both as they are.
func compare(b *testing.B, p, idle *process.Process) comparison {
	b.Helper()
	var c comparison
	var errs [2]error
	c.plugin, errs[0] = residentOf(p)
	c.idle, errs[1] = residentOf(idle)
	if err := errors.Join(errs[:]...); err != nil {
		b.Fatal(err)
	}
	return c
}

// report says what the plugin has beyond the idle process.
func (c comparison) report(b *testing.B, when string) {
	b.Helper()
	reportAim(b, mebibytes(c.plugin.all-c.idle.all), "MiB-RSS-beyond-idle-"+when, 25)
	b.ReportMetric(mebibytes(c.plugin.anonymous-c.idle.anonymous), "MiB-anon-beyond-idle-"+when)
	fmt.Printf("memory %s: plugin %v, idle %v\n", when, c.plugin, c.idle)
}

func (r resident) String() string {
	return fmt.Sprintf("VmRSS %.1f MiB with RssAnon %.1f", mebibytes(r.all), mebibytes(r.anonymous))
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

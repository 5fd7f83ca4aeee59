package lab

import (
	"context"
	"fmt"
	"time"

	"github.com/kata-vfio/kata-vfio/test/lab/remote"
)

const (
	// usualSilence is when a machine that shows no sign of life counts as hung: no sign takes more than seconds.
	usualSilence = 2 * time.Minute
	watchPause   = 10 * time.Second
	// lastWords is the time for a hung kernel to print where its processors are.
	lastWords = 10 * time.Second
)

// signOfLife needs the network, a new process and, on each processor, a timer: under emulation a kernel can lose
// its timers for good and still answer the network.
const signOfLife = `for cpu in $(seq 0 $(($(nproc) - 1))); do taskset -c $cpu sleep 0.01; done`

// watch ends a machine that hangs, so that its commands fail and Lost tells why. A command's own timeout can't do
// that where it stands on the hung kernel's timers.
func (m *Machine) watch(qemu *emulator, addr string, limit time.Duration) {
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	for last := time.Now(); ; {
		select {
		case <-qemu.Done():
			return
		case <-ctx.Done():
			return
		case <-time.After(min(watchPause, limit/4)):
		}
		asked := time.Now()
		err := showSign(ctx, addr, limit/4)
		if err == nil {
			last = asked
		} else if silence := time.Since(last); silence > limit {
			m.end(ctx, qemu, fmt.Errorf("hung: no sign of life for %.0fs: %w", silence.Seconds(), err))
			return
		}
	}
}

func showSign(ctx context.Context, addr string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return remote.NewCommand(ctx, addr, "sh", "-c", signOfLife).Run()
}

// end lets the kernel panic, which prints to the console what it was at, and ends QEMU in any case.
func (m *Machine) end(ctx context.Context, qemu *emulator, why error) {
	m.mu.Lock()
	qemu.hung = why
	m.mu.Unlock()
	m.report("the lab machine %v", why)
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	if _, err := m.Monitor(ctx, "nmi"); err == nil {
		select {
		case <-qemu.Done():
		case <-ctx.Done():
		}
	}
	qemu.Kill()
}

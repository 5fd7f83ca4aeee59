package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
	"github.com/kata-vfio/kata-vfio/test/internal/await"
	"github.com/kata-vfio/kata-vfio/test/internal/progress"
	"github.com/kata-vfio/kata-vfio/test/lab/remote"
)

// boot starts QEMU and waits for the agent, again if a boot hangs.
func (m *Machine) boot(ctx context.Context) error {
	var errs []error
	for range bootAttempts {
		start := time.Now()
		quiet := progress.New(m.config.Progress).Every(bootSilence, m.bootLine)
		err := m.bootOnce(ctx)
		quiet()
		if err == nil {
			m.report("lab machine up after %.1fs", time.Since(start).Seconds())
			go m.watch(m.qemu, m.addr, m.config.Silence) //nolint:contextcheck // it ends with QEMU
			return nil
		}
		m.killQEMU()
		errs = append(errs, fmt.Errorf("boot the lab machine: %w", err))
		if ctx.Err() != nil {
			break
		}
		m.report("boot attempt failed after %.0fs: %v\n%s", time.Since(start).Seconds(), err, m.consoleTail())
	}
	return fmt.Errorf("%w\n%s", errors.Join(errs...), m.consoleTail())
}

// bootSilence is how long a person waits for a boot without a word. A boot takes 14 s on two idle cores.
const bootSilence = 10 * time.Second

// bootLine says how far the boot is: the last line of the machine's console.
func (m *Machine) bootLine() string {
	text, err := m.Console()
	if err != nil {
		return "the lab machine boots"
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return fmt.Sprintf("the lab machine boots: %.100s", strings.Map(printable, string(lines[len(lines)-1])))
}

// printable drops control characters.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return -1
}

func (m *Machine) bootOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootLimit, fmt.Errorf("not up after %s", bootLimit))
	defer cancel()
	qemu, err := m.startQEMU()
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.qemu = qemu
	m.mu.Unlock()
	addr, err := m.agentAddress(ctx, qemu)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.addr = addr
	m.mu.Unlock()
	return await.Until(ctx, pace(), func() error { return errors.Join(qemu.ended(), m.lostTimer()) }, func(ctx context.Context) error {
		_, err := remote.Probe(ctx, addr)
		return err
	})
}

// noTimer is what the kernel prints about a processor whose timer does not fire any more. Under emulation this happens about once
// in a hundred boots, more often on a busy host, and such a machine never comes up.
var noTimer = regexp.MustCompile(`kthread timer wakeup didn't happen.*`)

// lostTimer returns an error if a processor of the booting machine has lost its timer, so that the next attempt begins without
// waiting for bootLimit.
func (m *Machine) lostTimer() error {
	text, err := m.Console()
	if err != nil {
		return nil // QEMU has not made the file yet
	}
	if said := noTimer.Find(text); said != nil {
		return fmt.Errorf("a processor lost its timer: %s", bytes.TrimSpace(said))
	}
	return nil
}

// emulator is a running QEMU.
type emulator struct {
	*process.Process
	hung error // why it was ended, if a watch did; under the machine's lock
}

func (m *Machine) startQEMU() (*emulator, error) {
	for _, stale := range []string{monitorFile, consoleFile} {
		if err := os.RemoveAll(filepath.Join(m.dir, stale)); err != nil {
			return nil, err
		}
	}
	log, err := os.Create(filepath.Join(m.dir, qemuLog))
	if err != nil {
		return nil, err
	}
	defer log.Close() // QEMU has its own
	argv, env := m.image.QEMU()
	argv = append(argv, qemuArgs(m.config, m.image, m.dir)...)
	cmd := exec.CommandContext(m.ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &emulator{Process: p}, nil
}

// forward finds the port that was chosen for the agent's in the output of "info usernet":
//
//	TCP[HOST_FORWARD]  13       127.0.0.1 45541       10.0.2.15  2222     0     0
var forward = regexp.MustCompile(fmt.Sprintf(`HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s+\S+\s+%d\s`, remote.Port))

// agentAddress asks QEMU for the port that leads to the agent.
func (m *Machine) agentAddress(ctx context.Context, qemu *emulator) (string, error) {
	var found string
	err := await.Until(ctx, pace(), qemu.ended, func(ctx context.Context) error {
		text, err := m.Monitor(ctx, "info usernet")
		if err != nil {
			return err
		}
		match := forward.FindStringSubmatch(text)
		if match == nil {
			return fmt.Errorf("no forwarded port in %q", text)
		}
		found = "127.0.0.1:" + match[1]
		return nil
	})
	return found, err
}

// pace has a short limit since QEMU accepts a connection to an agent that does not listen yet, and then nothing comes.
func pace() await.Pace { return await.Pace{Limit: time.Second, Pause: 100 * time.Millisecond} }

// ended is nil while QEMU runs.
func (e *emulator) ended() error {
	select {
	case <-e.Done():
		return fmt.Errorf("%w: QEMU: %w", ErrLost, orNil(e.Err()))
	default:
		return nil
	}
}

func (m *Machine) killQEMU() {
	m.mu.Lock()
	qemu := m.qemu
	m.mu.Unlock()
	if qemu != nil {
		qemu.Kill()
	}
}

func (m *Machine) report(format string, args ...any) {
	// The reader of progress is not part of the boot.
	_, _ = fmt.Fprintf(m.config.Progress, format+"\n", args...)
}

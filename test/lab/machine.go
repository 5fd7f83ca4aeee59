package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/test/internal/scratch"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/remote"
)

// ErrLost is a machine that ended by itself, by a panic of its kernel or QEMU's end, or was ended since it hung.
var ErrLost = errors.New("the lab machine is lost")

// Limits of a boot. A boot usually takes about ten seconds. Under emulation, a boot sometimes hangs and never ends.
const (
	bootLimit    = 90 * time.Second
	bootAttempts = 3
	stateSize    = "2G"
)

// Machine is a booted machine. Its methods may be called from several goroutines, except that HardReset, Reboot,
// Reconfigure and Stop must not overlap with each other.
type Machine struct {
	ctx    context.Context // of the machine's life
	config Config
	image  image.Image
	dir    string

	mu   sync.Mutex // the two below change together at each boot
	qemu *emulator
	addr string // of the agent

	monitor sync.Mutex // the one connection to QEMU's monitor
	stop    sync.Once
}

// Start builds what is not cached (minutes, the first time) and boots a machine, which lives until Stop or the end
// of ctx. It needs root for the image's first build only.
func Start(ctx context.Context, c Config) (*Machine, error) {
	c = c.withDefaults()
	img, err := image.Ensure(ctx, c.Progress)
	if err != nil {
		return nil, err
	}
	dir, err := scratch.New(os.TempDir(), "kata-vfio-lab-")
	if err != nil {
		return nil, fmt.Errorf("start a lab machine: %w", err)
	}
	m := &Machine{ctx: ctx, config: c, image: img, dir: dir}
	if err := errors.Join(m.writeFiles(ctx), ctx.Err()); err != nil {
		return nil, errors.Join(fmt.Errorf("start a lab machine: %w", err), os.RemoveAll(dir))
	}
	if err := m.boot(ctx); err != nil {
		m.Stop()
		return nil, err
	}
	context.AfterFunc(ctx, m.Stop)
	return m, nil
}

// writeFiles makes what survives the machine's resets.
func (m *Machine) writeFiles(ctx context.Context) error {
	if err := os.Mkdir(filepath.Join(m.dir, shareDir), 0o755); err != nil {
		return err
	}
	state := filepath.Join(m.dir, stateFile)
	args := []string{"-q", "-E", "lazy_itable_init=1,lazy_journal_init=1"}
	if m.config.State != "" {
		args = append(args, "-d", m.config.State)
	}
	args = append(args, state, stateSize)
	if out, err := exec.CommandContext(ctx, "/sbin/mkfs.ext4", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("make the state disk: %w: %s", err, out)
	}
	return writeInitrd(ctx, m.image, m.dir)
}

// Stop ends the machine at once and removes its files. It may be called again.
func (m *Machine) Stop() {
	m.stop.Do(func() {
		m.killQEMU()
		_ = os.RemoveAll(m.dir) // nothing refers to it any more; the system cleans its temporary directory
	})
}

// Share is the host's folder that the machine sees as /host. What a command writes there is on the host when the
// command has ended.
func (m *Machine) Share() string { return filepath.Join(m.dir, shareDir) }

// Command prepares a command in the machine; see remote.Command. One that is under way when the machine ends or is
// reset fails.
func (m *Machine) Command(ctx context.Context, name string, args ...string) *remote.Command {
	m.mu.Lock()
	defer m.mu.Unlock()
	return remote.NewCommand(ctx, m.addr, append([]string{name}, args...)...)
}

// Lost returns nil while the machine runs, and afterwards an ErrLost with the end of its console. A command's connection breaks
// a moment before QEMU's end is known. To ask after such an error, use LostWithin, which waits for a while.
func (m *Machine) Lost() error {
	m.mu.Lock()
	qemu, hung := m.qemu, m.qemu.hung
	m.mu.Unlock()
	select {
	case <-qemu.Done():
		how := fmt.Errorf("QEMU: %w", orNil(qemu.Err()))
		return fmt.Errorf("%w: %w\n%s", ErrLost, cmp.Or(hung, how), m.consoleTail())
	default:
		return nil
	}
}

// LostWithin returns the error of Lost as soon as the machine is lost, or nil if the machine still runs after limit.
func (m *Machine) LostWithin(limit time.Duration) error {
	m.mu.Lock()
	qemu := m.qemu
	m.mu.Unlock()
	select {
	case <-qemu.Done():
	case <-time.After(limit):
	}
	return m.Lost()
}

// HardReset is a power cut and a boot: what the machine had not written to its disks is gone, and so is everything
// outside /var/lib and /host.
func (m *Machine) HardReset(ctx context.Context) error {
	m.killQEMU()
	return m.boot(ctx)
}

// Reboot writes the disks back and restarts the machine. The root is fresh afterwards, like after HardReset.
func (m *Machine) Reboot(ctx context.Context) error {
	if err := m.Command(ctx, "sync").Run(); err != nil {
		return fmt.Errorf("reboot the lab machine: %w", err)
	}
	return m.HardReset(ctx)
}

// Reconfigure changes the machine's configuration from its next boot on. The defaults are filled in already.
func (m *Machine) Reconfigure(change func(*Config)) {
	change(&m.config)
}

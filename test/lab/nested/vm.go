package nested

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// Limits. A boot takes some ten seconds under emulation, with iommufd up to forty.
const (
	bootLimit = 3 * time.Minute
	stopLimit = 30 * time.Second
)

// Config says which VM to start.
type Config struct {
	// Nodes are the VFIO device nodes that a CDI spec names: /dev/vfio/<group> or /dev/vfio/devices/vfio<N>.
	Nodes []string
	// MemoryMiB is the VM's memory, all of it pinned for its devices; 0 means 256.
	MemoryMiB int
	// Files are put into the VM: by their paths there, executable, the paths here.
	Files map[string]string
}

// VM is a running VM. Its methods must not be called concurrently.
type VM struct {
	dir  string
	pid  int
	done chan struct{} // closed when QEMU has ended
	err  error         // how, once done is closed
	talk *control
}

// boots is how often a VM is started if it ends before its first word. Emulated nested virtualization sometimes ends a VM in
// this way. A VM that can't boot ends so each time.
const boots = 3

// errEarlyEnd says that a VM has ended by itself before its first word.
var errEarlyEnd = errors.New("it ended before its first word")

// Start starts a VM and waits until its drivers are loaded. It ends with ctx, with Stop, and with this process.
func Start(ctx context.Context, c Config) (*VM, error) {
	functions, err := resolve("/sys", c.Nodes)
	if err != nil {
		return nil, fmt.Errorf("start a nested VM: %w", err)
	}
	for boot := 1; ; boot++ {
		vm, err := startOnce(ctx, c, functions)
		if !errors.Is(err, errEarlyEnd) || boot == boots || ctx.Err() != nil {
			return vm, err
		}
		fmt.Fprintf(os.Stderr, "a nested VM is started again: %v\n", err)
	}
}

func startOnce(ctx context.Context, c Config, functions []assigned) (*VM, error) {
	dir, err := os.MkdirTemp("", "nested-vm-")
	if err != nil {
		return nil, fmt.Errorf("start a nested VM: %w", err)
	}
	vm := &VM{dir: dir, done: make(chan struct{})}
	if err := vm.start(ctx, c, functions); err != nil {
		return nil, errors.Join(fmt.Errorf("start a nested VM: %w", err), os.RemoveAll(dir))
	}
	if err := vm.greet(ctx); err != nil {
		if vm.endedByItself() {
			err = errors.Join(errEarlyEnd, err)
		}
		err = fmt.Errorf("boot a nested VM: %w\n%s", err, vm.Log())
		return nil, errors.Join(err, vm.kill())
	}
	return vm, nil
}

// endedByItself reports whether QEMU has ended without an error of its own, as it does when the VM panics or resets.
func (vm *VM) endedByItself() bool {
	select {
	case <-vm.done:
		return vm.err == nil
	case <-time.After(time.Second): // its last word comes before its end
		return false
	}
}

func (vm *VM) start(ctx context.Context, c Config, functions []assigned) error {
	release, err := kernelRelease()
	if err != nil {
		return err
	}
	if err := writeInitrd(vm.path("initrd.img"), release, c.Files); err != nil {
		return fmt.Errorf("make the initramfs: %w", err)
	}
	log, err := os.Create(vm.path("qemu.log"))
	if err != nil {
		return err
	}
	defer log.Close() // QEMU has its own
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", append(vm.args(c, release), deviceArgs(functions)...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go vm.run(cmd, started)
	return <-started
}

// run keeps the thread that started QEMU: its end would be QEMU's.
func (vm *VM) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	vm.pid = cmd.Process.Pid
	started <- nil
	vm.err = cmd.Wait()
	close(vm.done)
}

// args are QEMU's arguments without the devices. The kernel is not compressed, and some of its boot's waiting is
// left out: software emulation is slow enough.
func (vm *VM) args(c Config, release string) []string {
	memory := c.MemoryMiB
	if memory == 0 {
		memory = 256
	}
	return []string{
		"-name", "nested", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "q35,sata=off,smbus=off", "-accel", "kvm", "-cpu", "host", "-smp", "1", "-m", strconv.Itoa(memory),
		"-kernel", "/boot/vmlinux-" + release, "-initrd", vm.path("initrd.img"),
		"-append", "console=ttyS0 panic=-1 quiet mitigations=off nokaslr tsc=reliable no_timer_check",
		"-serial", "file:" + vm.path("console.log"),
		"-serial", "unix:" + vm.path("control.sock") + ",server=on,wait=off",
	}
}

func (vm *VM) path(name string) string { return filepath.Join(vm.dir, name) }

// greet waits for the VM's first line.
func (vm *VM) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootLimit, fmt.Errorf("no word from the VM within %s", bootLimit))
	defer cancel()
	talk, err := vm.connect(ctx)
	if err != nil {
		return err
	}
	vm.talk = talk
	_, err = talk.receive(ctx)
	return vm.explain(err)
}

// explain adds QEMU's end to an error that may come from it.
func (vm *VM) explain(err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-vm.done:
		return errors.Join(fmt.Errorf("QEMU ended: %w", orClean(vm.err)), err)
	default:
		return err
	}
}

// orClean gives QEMU's clean end words: with -no-reboot that is how a panic of the VM looks.
func orClean(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// PID is the process ID of the VM's QEMU: the holder of the devices.
func (vm *VM) PID() int { return vm.pid }

// Log is what QEMU and the VM's kernel have said.
func (vm *VM) Log() string {
	var out bytes.Buffer
	for _, name := range []string{"qemu.log", "console.log"} {
		text, err := os.ReadFile(vm.path(name))
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&out, "--- %s\n%s\n", name, bytes.TrimSpace(text))
	}
	return out.String()
}

// Stop asks the VM to power off, ends it if it does not, and removes its files. When it returns, its devices are
// free.
func (vm *VM) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	_, err := vm.ask(ctx, protocol.Request{PowerOff: true})
	if err == nil {
		select {
		case <-vm.done:
		case <-ctx.Done():
		}
	}
	// A VM that does not power off is ended all the same; that is not the caller's concern.
	return vm.kill()
}

// Pause stops QEMU where it is: the VM keeps its devices and takes no time, of which even an idle one takes much under
// emulation. It answers nothing until Resume, and ends by Kill.
func (vm *VM) Pause() error {
	if err := syscall.Kill(vm.pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pause the VM: %w", err)
	}
	return nil
}

// Resume lets a VM that Pause has stopped continue.
func (vm *VM) Resume() error {
	if err := syscall.Kill(vm.pid, syscall.SIGCONT); err != nil {
		return fmt.Errorf("resume the VM: %w", err)
	}
	return nil
}

// Kill ends the VM as Stop does, but does not ask it to power off.
func (vm *VM) Kill() error { return vm.kill() }

// kill ends QEMU, waits for its end and removes the VM's files.
func (vm *VM) kill() error {
	select {
	case <-vm.done: // its number may be another's by now
	default:
		_ = syscall.Kill(vm.pid, syscall.SIGKILL) // it may be ending by itself
		<-vm.done
	}
	if vm.talk != nil {
		_ = vm.talk.conn.Close() // its peer is gone
	}
	return os.RemoveAll(vm.dir)
}

//go:build lab

package badday_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// TestHolderInAContainer opens the claim's device in mount and PID namespaces of its own, by a node of another name.
func TestHolderInAContainer(t *testing.T) {
	before := stage.Bindings(t)
	n := stage.Open(t, stage.Config())
	if _, err := n.Preparer.Prepare(t.Context(), stage.Request(t, uid, topology.GPU0)); err != nil {
		t.Fatal(err)
	}
	letGo := holdElsewhere(t, stage.Nodes(t, uid)[0])
	_, err := n.Preparer.Unprepare(t.Context(), uid)
	stage.Says(t, err, topology.GPU0, "in use by sh (pid ")
	var used *effects.InUseError
	if !errors.As(err, &used) || !hides(t, used.Holders[0].PID) {
		t.Errorf("Unprepare = %v; want an InUseError with the pid of this namespace", err)
	}
	letGo()
	if _, err := n.Preparer.Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	stage.Unchanged(t, before)
}

// holdElsewhere has a process in other namespaces hold the device of a node, until letGo.
func holdElsewhere(t *testing.T, path string) (letGo func()) {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	script := fmt.Sprintf("mount -t tmpfs x /mnt && mknod /mnt/hidden c %d %d && exec 3<>/mnt/hidden && echo held && read word",
		unix.Major(st.Rdev), unix.Minor(st.Rdev))
	return hold(t, exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script))
}

// hold runs a command that opens a device and says "held", until letGo, or until the test ends.
func hold(t *testing.T, cmd *exec.Cmd) (letGo func()) {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("the holder says %q, %v", line, err)
	}
	return func() {
		_ = in.Close()
		_ = cmd.Wait() // read's end of file is its failure
	}
}

// hides reports whether a process is in another PID namespace than this one.
func hides(t *testing.T, pid int) bool {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/pid")
	must(t, err)
	other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	must(t, err)
	return own != other
}

// TestDriverTakesItBack gives the function back to its driver after each unbind, as udev's rules may: once, which Prepare
// gets over, and always, which is an error that says who takes it.
func TestDriverTakesItBack(t *testing.T) {
	for name, times := range map[string]int{"once": 1, "always": 100} {
		t.Run(name, func(t *testing.T) {
			before := stage.Bindings(t)
			c, left := stage.Config(), times
			c.Observe = func(e effects.Event) {
				if e.Step == nil || e.Step.Operation != plan.Unbind || e.Step.DriverBefore != "bochs-drm" || left == 0 {
					return
				}
				left--
				kernel.Write(t, kernel.Path(topology.GPU0, "driver_override"), "\n")
				kernel.Write(t, "/sys/bus/pci/drivers_probe", topology.GPU0)
			}
			n := stage.Open(t, c)
			_, err := n.Preparer.Prepare(t.Context(), stage.Request(t, uid, topology.GPU0))
			if times == 1 && err != nil {
				t.Error(err)
			}
			if times > 1 {
				stage.Says(t, err, topology.GPU0, "driver bochs-drm has it now", "blacklist")
				oneLine(t, err, "bochs-drm has it")
			}
			if left == times {
				t.Error("nobody took it back")
			}
			if _, err := n.Preparer.Unprepare(context.WithoutCancel(t.Context()), uid); err != nil {
				t.Error(err)
			}
			stage.Unchanged(t, before)
		})
	}
}

// TestModulesAreLoaded prepares on a machine that has not loaded vfio-pci.
func TestModulesAreLoaded(t *testing.T) {
	run(t, "modprobe", "-r", "vfio-pci")
	t.Cleanup(func() { run(t, "modprobe", "vfio-pci") })
	before := stage.Bindings(t)
	n := stage.Open(t, stage.Config())
	req := stage.Request(t, uid, topology.GPU0)
	p, err := n.Preparer.Plan(t.Context(), req)
	must(t, err)
	if len(p.Steps) == 0 || p.Steps[0].Operation != plan.Load {
		t.Errorf("the plan's steps are %v, want a load first", p.Steps)
	}
	t.Setenv("PATH", "/nowhere")
	_, err = n.Preparer.Prepare(t.Context(), req)
	stage.Says(t, err, "there is no modprobe here", "load it on the node")
	stage.Unchanged(t, before)
	t.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
	if _, err := n.Preparer.Prepare(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if got := kernel.Driver(t, topology.GPU0); got != "vfio-pci" {
		t.Errorf("%s is on %q", topology.GPU0, got)
	}
	if _, err := n.Preparer.Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	stage.Unchanged(t, before)
}

// TestOriginalDriverWasUnloaded unloads the module of the original driver while the claim has the function. Unprepare
// loads it.
func TestOriginalDriverWasUnloaded(t *testing.T) {
	before := stage.Bindings(t)
	c := stage.Config()
	c.Node = stage.Everything("pf")
	n := stage.Open(t, c)
	if _, err := n.Preparer.Prepare(t.Context(), stage.Request(t, uid, topology.NIC0)); err != nil {
		t.Fatal(err)
	}
	run(t, "modprobe", "-r", "e1000e")
	if _, err := n.Preparer.Unprepare(t.Context(), uid); err != nil {
		t.Error(err)
	}
	stage.Unchanged(t, before)
}

// TestOriginalModuleHasAnotherName does so with a driver, bochs-drm, whose module has another name, bochs: the
// function's modalias finds it.
func TestOriginalModuleHasAnotherName(t *testing.T) {
	before := stage.Bindings(t)
	n := stage.Open(t, stage.Config())
	if _, err := n.Preparer.Prepare(t.Context(), stage.Request(t, uid, topology.GPU0)); err != nil {
		t.Fatal(err)
	}
	run(t, "modprobe", "-r", "bochs")
	if _, err := n.Preparer.Unprepare(t.Context(), uid); err != nil {
		t.Error(err)
	}
	stage.Unchanged(t, before)
}

// TestBlacklistedVFIO asks for a module that the node's administrator has forbidden.
func TestBlacklistedVFIO(t *testing.T) {
	run(t, "modprobe", "-r", "vfio-pci")
	t.Cleanup(func() { run(t, "modprobe", "vfio-pci") })
	const file = "/etc/modprobe.d/forbidden.conf"
	must(t, os.WriteFile(file, []byte("install vfio-pci /bin/false\n"), 0o644))
	t.Cleanup(func() { _ = os.Remove(file) })
	before := stage.Bindings(t)
	n := stage.Open(t, stage.Config())
	_, err := n.Preparer.Prepare(t.Context(), stage.Request(t, uid, topology.GPU0))
	stage.Says(t, err, "load module vfio_pci", "/bin/false")
	var step *bind.StepError
	if !errors.As(err, &step) || step.Step.Operation != plan.Load {
		t.Errorf("Prepare = %v; want a StepError of the load", err)
	}
	stage.Unchanged(t, before)
	must(t, os.Remove(file))
}

// run runs a command, after the test's end, too.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

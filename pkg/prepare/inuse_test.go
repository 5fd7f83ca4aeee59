package prepare_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// runVM prepares a claim on a GPU for the sandbox "first", whose VM has it open.
func runVM(t *testing.T) (w *world, gpu pci.Address, vm *sysfstest.Holder) {
	t.Helper()
	w = newWorld(t)
	gpu = w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	w.k.Run(sysfstest.Process{PID: shimPID, Comm: "containerd-shim", Group: shimPID, Args: []string{"containerd-shim-kata-v2", "-id", "first"}})
	w.tellHandOver(journal.Sandbox{ID: "first", Shim: shim()})
	w.k.Run(sysfstest.Process{PID: nobody, Comm: "qemu-system-x86", Parent: shimPID, Args: []string{"qemu-system-x86_64", "-name", "sandbox-first,debug-threads=on"}})
	return w, gpu, w.k.Hold(w.groupNode(gpu), nobody, "qemu-system-x86", "")
}

// TestVMWhoseShimWasKilled: the pod that owns it may be the very one that is refused, so
// that deleting it is not advice. The refusal names the process and how to end it.
func TestVMWhoseShimWasKilled(t *testing.T) {
	const deletePod, kill = "(delete its pod)", "run `kill -9 4194305` on the node"
	for name, call := range takingCalls() {
		t.Run(name, func(t *testing.T) {
			w, _, vm := runVM(t)
			err := call(w)
			as[*effects.InUseError](t, err)
			if says(t, err, deletePod); strings.Contains(err.Error(), "kill") {
				t.Errorf("with its shim it says %q, want nothing of kill", err)
			}
			w.k.Kill(shimPID)
			err = call(w)
			as[*effects.InUseError](t, err)
			says(t, err, "qemu-system-x86 (pid 4194305", "process 4194305 is the VM of sandbox first, whose shim no longer runs", kill)
			if strings.Contains(err.Error(), deletePod) {
				t.Errorf("without its shim it says %q, want nothing of %q", err, deletePod)
			}
			vm.Release()
			if err := call(w); err != nil {
				t.Errorf("after the VM's end: %v, want nil", err)
			}
		})
	}
}

// TestSeveralHolders, of which one is such a VM: each has its own advice.
func TestSeveralHolders(t *testing.T) {
	w, gpu, _ := runVM(t)
	w.k.Kill(shimPID)
	w.k.Hold(w.groupNode(gpu), nobody+1, "fio", container)
	_, err := w.plugin(nil).Unprepare(t.Context(), uid)
	says(t, err, "fio (pid 4194306", "stop it (delete its pod)", "run `kill -9 4194305` on the node")
}

// TestAnotherInstanceOfThePlugin that resets the device, after its call was cut off: the user waits, and stops nothing.
func TestAnotherInstanceOfThePlugin(t *testing.T) {
	w, gpu, vm := runVM(t)
	vm.Release()
	w.k.Kill(shimPID)
	other := w.k.Hold(w.groupNode(gpu), nobody+1, "kata-vfio-plugi", container)
	_, err := w.plugin(nil).Unprepare(t.Context(), uid)
	as[*effects.InUseError](t, err)
	if says(t, err, "kata-vfio-plugi (pid 4194306", "another instance of the plugin resets the device"); strings.Contains(err.Error(), "stop it") {
		t.Errorf("it says %q, want nothing of stopping it", err)
	}
	other.Release()
	if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
		t.Errorf("after the reset: %v, want nil", err)
	}
}

// TestVFWithTheHostsAddress: an address of a single host (a virtual address, BGP on the host) has no route to its network.
// The node uses the VF all the same.
func TestVFWithTheHostsAddress(t *testing.T) {
	w := newWorld(t)
	_, vfs := w.k.AddNIC(0x21, 1)
	w.k.AddAddress(w.function(vfs[0]).Children.Net[0], "10.0.0.5/32")
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, vfs[0]))
	if refused := wantRefused(t, err); refused != nil {
		says(t, err, "has address 10.0.0.5/32")
	}
	if driver := w.driver(vfs[0]); driver == "vfio-pci" {
		t.Error("the VF was taken from the host")
	}
}

package prepare_test

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// wantVFs has the node's config ask for VFs of a PF.
func (w *world) wantVFs(pf pci.Address, count int) {
	w.node = &v1alpha1.NodeConfig{VirtualFunctions: []v1alpha1.VFRule{{PF: pf.String(), Count: &count}}}
	w.node.Default()
}

func (w *world) provision(power *power) plan.Provision {
	w.t.Helper()
	all, err := w.plugin(power).Provision(w.t.Context())
	if err != nil || len(all) != 1 {
		w.t.Fatalf("Provision = %+v, %v; want one", all, err)
	}
	return all[0]
}

func TestProvisionMakesVFsForNobodyElse(t *testing.T) {
	w := newWorld(t)
	pf, _ := w.k.AddNIC(0x21, 0)
	w.wantVFs(pf, 4)
	if got := w.provision(nil); got.Refused != "" || got.Have != 0 || got.Want != 4 {
		t.Errorf("%+v, want 4 VFs where there were none", got)
	}
	vfs := w.k.VFs(pf)
	if len(vfs) != 4 {
		t.Fatalf("VFs %v, want 4", vfs)
	}
	for _, a := range vfs {
		if driver, err := w.fs.Driver(a); err != nil || driver != "" {
			t.Errorf("%s is on %q, %v; want no driver", a, driver, err)
		}
	}
	writes := len(w.k.Writes())
	if got := w.provision(nil); got.Due() || got.Refused != "" || len(w.k.Writes()) != writes {
		t.Errorf("a second time: %+v with writes %v, want nothing due, and no write", got, w.k.Writes()[writes:])
	}
	w.mustPrepare(w.request(uid, vfs[3]))
	w.mustUnprepare(uid)
}

func TestProvisionChangesNothingThatIsInUse(t *testing.T) {
	w := newWorld(t)
	pf, vfs := w.k.AddNIC(0x21, 2)
	w.mustPrepare(w.request(uid, vfs[1]))
	w.wantVFs(pf, 4)
	writes := len(w.k.Writes())
	got := w.provision(nil)
	if !strings.Contains(got.Refused, vfs[1].String()) || !strings.Contains(got.Refused, "held by claim") || got.Fix == "" {
		t.Errorf("%+v, want that the VF is held", got)
	}
	if len(w.k.VFs(pf)) != 2 || len(w.k.Writes()) != writes {
		t.Errorf("VFs %v, writes %v; want two VFs, and no write", w.k.VFs(pf), w.k.Writes()[writes:])
	}
	w.mustUnprepare(uid)
	if got := w.provision(nil); got.Refused != "" || len(w.k.VFs(pf)) != 4 {
		t.Errorf("once it is free: %+v, VFs %v; want 4 VFs", got, w.k.VFs(pf))
	}
}

// TestHostDriversAreKeptFromVFsThatAreThere, while they are in use too; a claim's goes back to the driver that it had all the same.
func TestHostDriversAreKeptFromVFsThatAreThere(t *testing.T) {
	w := newWorld(t)
	pf, vfs := w.k.AddNIC(0x21, 2)
	before, err := w.fs.Driver(vfs[1])
	if err != nil || before == "" {
		t.Fatalf("%s is on %q, %v; want a host driver", vfs[1], before, err)
	}
	w.mustPrepare(w.request(uid, vfs[1]))
	w.wantVFs(pf, 2)
	got := w.provision(nil)
	if got.Refused != "" || !slices.Equal(got.OnHostDrivers, vfs[:1]) {
		t.Errorf("%+v, want that %s is on a host driver", got, vfs[0])
	}
	autoprobe, err := w.fs.ReadString(sysfs.FunctionPath(pf) + "/sriov_drivers_autoprobe")
	if err != nil || autoprobe != "0" {
		t.Errorf("sriov_drivers_autoprobe is %q, %v; want 0", autoprobe, err)
	}
	if got := w.provision(nil); !got.Right() {
		t.Errorf("a second time: %+v, want it right", got)
	}
	w.mustUnprepare(uid)
	binding, err := w.plugin(nil).Order().Effects.Executor.Binding(t.Context(), vfs[1])
	if want := (plan.Binding{Driver: before}); err != nil || binding != want || !slices.Equal(w.k.VFs(pf), vfs) {
		t.Errorf("afterwards %+v, %v; want %+v; VFs %v", binding, err, want, w.k.VFs(pf))
	}
}

// TestProvisionIsFinishedAfterACrash, wherever it was cut off.
func TestProvisionIsFinishedAfterACrash(t *testing.T) {
	for at := 1; at <= 3; at++ {
		for _, after := range []bool{false, true} {
			w := newWorld(t)
			pf, _ := w.k.AddNIC(0x21, 2)
			w.wantVFs(pf, 4)
			if got := w.provision(&power{at: at, after: after}); got.Refused == "" {
				t.Errorf("cut off at %d: %+v, want that it failed", at, got)
			}
			if got := w.provision(nil); got.Refused != "" || len(w.k.VFs(pf)) != 4 {
				t.Errorf("cut off at %d (after: %t), then %+v with VFs %v, want 4 VFs", at, after, got, w.k.VFs(pf))
			}
		}
	}
}

// wantSwitchdev has the node's config ask for VFs of a PF in switchdev mode.
func (w *world) wantSwitchdev(pf pci.Address, count int) {
	w.wantVFs(pf, count)
	w.node.VirtualFunctions[0].EswitchMode = v1alpha1.EswitchSwitchdev
}

// mode is that of a PF's eswitch.
func (w *world) mode(pf pci.Address) vf.Mode {
	w.t.Helper()
	m, err := (&vf.Policy{FS: w.fs, Links: w.links, Switches: w.links.Switches()}).Mode(w.t.Context(), pf)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// TestProvisionSetsTheModeWhileThereAreNoVFs, wherever it was cut off before.
func TestProvisionSetsTheModeWhileThereAreNoVFs(t *testing.T) {
	for at := range 7 {
		w := newWorld(t)
		w.links.Use(vftest.Eswitch())
		pf, _ := w.k.AddNIC(0x21, 2)
		w.wantSwitchdev(pf, 4)
		if got := w.provision(&power{at: at}); (got.Refused != "") != (at >= 1 && at <= 5) {
			t.Errorf("cut off at %d: %+v, want it refused: %t", at, got, at >= 1 && at <= 5)
		}
		if got := w.provision(nil); got.Refused != "" || len(w.k.VFs(pf)) != 4 || w.mode(pf) != vf.Switchdev {
			t.Errorf("cut off at %d, then %+v with VFs %v in %s mode, want 4 VFs in switchdev mode", at, got, w.k.VFs(pf), w.mode(pf))
		}
		if got := w.provision(nil); got.Due() || got.HaveMode != "switchdev" {
			t.Errorf("a second time: %+v, want nothing due in switchdev mode", got)
		}
	}
}

// TestModeThatIsRefused: the PF has its VFs all the same, in the mode it has.
func TestModeThatIsRefused(t *testing.T) {
	w := newWorld(t)
	w.links.Use(vftest.Eswitch())
	pf, _ := w.k.AddNIC(0x21, 0)
	w.wantSwitchdev(pf, 4)
	const setMode = 1 // there is none to disable
	got := w.provision(&power{at: setMode, fail: unix.EIO})
	if !strings.Contains(got.Refused, "eswitchMode: set the eswitch of PF 0000:21:00.0 to switchdev mode") || got.Fix == "" {
		t.Errorf("%+v, want the kernel's word", got)
	}
	if len(w.k.VFs(pf)) != 4 || w.mode(pf) != vf.Legacy {
		t.Errorf("VFs %v in %s mode, want 4 in legacy mode", w.k.VFs(pf), w.mode(pf))
	}
	w.links.Use(vftest.Igb())
	if got := w.provision(nil); !strings.Contains(got.Refused, "igb has no eswitch modes") || len(w.k.VFs(pf)) != 4 {
		t.Errorf("a driver without modes: %+v, want 4 VFs, and a refusal of the mode", got)
	}
}

func TestProvisionSaysWhatTheKernelSays(t *testing.T) {
	w := newWorld(t)
	pf, _ := w.k.AddNIC(0x21, 0)
	w.wantVFs(pf, 4)
	w.k.OnWrite(func(path, _ string) error {
		if strings.HasSuffix(path, "sriov_numvfs") {
			return unix.ENOMEM
		}
		return nil
	})
	if got := w.provision(nil); !strings.Contains(got.Refused, "cannot allocate memory") || !strings.Contains(got.Refused, "pci=realloc") {
		t.Errorf("%+v, want the kernel's word and what it means", got)
	}
}

package prepare_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/podnet"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf/vftest"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// pods has the interfaces of VFs that were placed. As in the kernel only a
// function on its kernel driver has an interface.
type pods struct {
	fs *sysfs.FS

	mu     sync.Mutex
	placed map[pci.Address]string // "<namespace> <MAC> <addresses>"
	calls  int
}

func (p *pods) Await(_ context.Context, vf pci.Address) error {
	driver, err := p.fs.Driver(vf)
	if err == nil && (driver == "" || device.IsVFIO(driver)) {
		err = &podnet.NoInterfaceError{VF: vf, Driver: driver}
	}
	return err
}

func (p *pods) Place(ctx context.Context, what podnet.Interface, at string) error {
	if err := p.Await(ctx, what.VF); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	p.placed[what.VF] = fmt.Sprintf("%s %s %v", at, what.MAC, what.Network.Addresses)
	return nil
}

// endpoint asks for a VF as a physical endpoint.
func endpoint() *v1alpha1.VFConfig {
	cfg := &v1alpha1.VFConfig{
		Attachment: v1alpha1.AttachPhysicalEndpoint, VLAN: new(100),
		Network: &v1alpha1.GuestNetwork{Interface: "net1", Addresses: []string{"192.0.2.10/24"}},
	}
	cfg.Default()
	return cfg
}

// kernel is what others than the plugin do to bindings.
func (w *world) kernel() *control.Control { return control.New(w.k, w.fs, w.limit) }

func (w *world) unbind(a pci.Address, driver string) {
	w.t.Helper()
	if err := w.kernel().Write(w.t.Context(), control.Unbind(a, driver)); err != nil {
		w.t.Fatal(err)
	}
}

// kataTakes does what Kata does with the physical endpoints among the functions:
// it binds them to vfio-pci.
func (w *world) kataTakes(addrs []pci.Address) {
	w.t.Helper()
	for _, a := range addrs {
		if fn, ok := w.record(uid).Plan.Function(a); ok && fn.Endpoint != nil {
			w.rebind(a, "vfio-pci")
		}
	}
}

// rebind binds a function to another driver as Kata does.
func (w *world) rebind(a pci.Address, driver string) {
	w.t.Helper()
	k := w.kernel()
	if err := k.Write(w.t.Context(), control.DriverOverride(a, driver)); err != nil {
		w.t.Fatal(err)
	}
	if now := w.bindings()[a].Driver; now != "" {
		w.unbind(a, now)
	}
	if err := k.Write(w.t.Context(), control.Probe(a)); err != nil {
		w.t.Fatal(err)
	}
}

// withEndpoint is a node with a VF that a claim asks for as a physical endpoint.
func withEndpoint(t *testing.T) (w *world, pf, vf pci.Address) {
	t.Helper()
	w, pf, vfs := withNIC(t, vftest.Igb())
	w.vf = endpoint()
	return w, pf, vfs[1]
}

// TestEndpointWaitsOnItsKernelDriver with its policy, and has been on VFIO
// before, where its resets will be proven.
func TestEndpointWaitsOnItsKernelDriver(t *testing.T) {
	w, pf, vf := withEndpoint(t)
	before := w.bindings()
	rec := w.mustPrepare(w.request(uid, vf))
	if now := w.bindings()[vf]; now != (plan.Binding{Driver: "igbvf", Override: "igbvf"}) {
		t.Errorf("it is bound %+v, want igbvf, by its override too", now)
	}
	if got := w.settings(pf, 1); !strings.Contains(got, "vlan 100") || strings.Contains(got, "mac 00:00") {
		t.Errorf("the PF imposes %q, want VLAN 100 and a MAC address", got)
	}
	spec, err := w.specs.Read(uid)
	if err != nil {
		t.Fatal(err)
	}
	edits := spec.Devices[0].ContainerEdits
	if want := []string{"KATA_VFIO_MAC_DEV=" + rec.Plan.Functions[0].VF.Want.MAC}; len(edits.DeviceNodes) > 0 || cmp.Diff(want, edits.Env) != "" {
		t.Errorf("CDI edits %+v, want %v and no node", edits, want)
	}
	var ops []string
	for _, e := range w.events {
		if e.Step != nil {
			ops = append(ops, e.Step.String())
		}
	}
	if diff := cmp.Diff(stepsOf(rec), ops); diff != "" {
		t.Errorf("steps (-want as planned +got):\n%s", diff)
	}
	w.mustUnprepare(uid)
	if diff := cmp.Diff(before, w.bindings()); diff != "" {
		t.Errorf("after Unprepare (-want as before +got):\n%s", diff)
	}
	if n := len(w.k.Resets()); n != 1 {
		t.Errorf("%d resets, want one", n)
	}
}

func stepsOf(rec *journal.Record) []string {
	var all []string
	for _, s := range rec.Plan.Steps {
		all = append(all, s.String())
	}
	return all
}

// TestEndpointGoesIntoItsSandboxsNamespace, again when its shim asks again,
// and not any more once Kata has it.
func TestEndpointGoesIntoItsSandboxsNamespace(t *testing.T) {
	w, _, vf := withEndpoint(t)
	mac := w.mustPrepare(w.request(uid, vf)).Plan.Functions[0].VF.Want.MAC
	w.mustHandOver("first")
	w.mustHandOver("first")
	if got, want := w.pods.placed[vf], "/run/netns/first "+mac+" [192.0.2.10/24]"; got != want || w.pods.calls != 2 {
		t.Errorf("placed %q in %d calls, want %q in 2", got, w.pods.calls, want)
	}
	w.kataTakes([]pci.Address{vf})
	w.mustHandOver("first")
	if w.pods.calls != 2 {
		t.Errorf("%d calls, want 2: what Kata has is not ours to move", w.pods.calls)
	}
	w.mustRecover() // a restart of the plugin leaves it to Kata, too
	if now := w.bindings()[vf].Driver; now != "vfio-pci" {
		t.Errorf("after a restart it is on %q, want vfio-pci", now)
	}
}

// TestEndpointIsTakenBackFromWhereverItWasLeft, reset, and given home.
func TestEndpointIsTakenBackFromWhereverItWasLeft(t *testing.T) {
	for name, leave := range map[string]func(*world, pci.Address){
		"where it was put":                func(*world, pci.Address) {},
		"on vfio-pci":                     func(w *world, vf pci.Address) { w.rebind(vf, "vfio-pci") },
		"back on its driver":              func(w *world, vf pci.Address) { w.rebind(vf, "vfio-pci"); w.rebind(vf, "igbvf") },
		"on no driver":                    func(w *world, vf pci.Address) { w.unbind(vf, "igbvf") },
		"on no driver, meant for another": func(w *world, vf pci.Address) { w.rebind(vf, "vfio-pci"); w.unbind(vf, "vfio-pci") },
	} {
		t.Run(name, func(t *testing.T) {
			w, _, vf := withEndpoint(t)
			before := w.bindings()
			w.mustPrepare(w.request(uid, vf))
			w.mustHandOver("first")
			leave(w, vf)
			if _, err := w.plugin(nil).Renew(t.Context(), uid, "first"); err != nil {
				t.Fatal(err)
			}
			if now := w.bindings()[vf]; now != (plan.Binding{Driver: "igbvf", Override: "igbvf"}) {
				t.Errorf("between two sandboxes it is bound %+v, want igbvf, by its override too", now)
			}
			w.mustHandOver("second")
			leave(w, vf)
			w.mustUnprepare(uid)
			if diff := cmp.Diff(before, w.bindings()); diff != "" {
				t.Errorf("at the end (-want as before +got):\n%s", diff)
			}
			if changed := w.changedVFs(); len(changed) > 0 {
				t.Errorf("PFs impose %v, want none", changed)
			}
			if resets := w.k.Resets(); len(resets) != 2 {
				t.Errorf("%d resets, want one after each sandbox", len(resets))
			}
		})
	}
}

// TestEndpointInAVMIsNotTakenBack: Kata's VM has its group open.
func TestEndpointInAVMIsNotTakenBack(t *testing.T) {
	w, _, vf := withEndpoint(t)
	w.wait = 10 * time.Millisecond
	w.mustPrepare(w.request(uid, vf))
	w.mustHandOver("first")
	w.kataTakes([]pci.Address{vf})
	h := w.hold(vf)
	_, err := w.plugin(nil).Unprepare(t.Context(), uid)
	says(t, err, vf.String(), "in use")
	if n := len(w.k.Resets()); n != 0 {
		t.Errorf("%d resets of a device in use, want none", n)
	}
	h.Release()
	w.mustUnprepare(uid)
}

// TestEndpointThatCannotBeCleanedIsQuarantined on VFIO, out of everybody's reach.
func TestEndpointThatCannotBeCleanedIsQuarantined(t *testing.T) {
	w, _, vf := withEndpoint(t)
	w.mustPrepare(w.request(uid, vf))
	w.mustHandOver("first")
	w.k.OnReset(vf, func(string) (sysfstest.ResetEffect, error) { return 0, unix.EIO })
	_, err := w.plugin(nil).Renew(t.Context(), uid, "first")
	wantQuarantined(t, err)
	if now := w.bindings()[vf].Driver; now != "vfio-pci" {
		t.Errorf("it is on %q, want vfio-pci", now)
	}
	w.k.OnReset(vf, nil)
	w.mustUnprepare(uid)
}

// TestVFWithoutADriverAndItsModule is refused before anything changes.
func TestVFWithoutADriverAndItsModule(t *testing.T) {
	w, _, vf := withEndpoint(t)
	w.unbind(vf, "igbvf")
	w.k.SetAliases("alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n")
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, vf))
	if refused := wantRefused(t, err); refused != nil {
		says(t, err, vf.String(), "no kernel driver", "install its driver's module")
	}
	if w.record(uid) != nil || len(w.links.Writes()) > 0 {
		t.Errorf("record %v, written %v; want neither", w.record(uid), w.links.Writes())
	}
}

// TestWhatCannotBeAnEndpoint: Kata takes an Ethernet function by its legacy group.
func TestWhatCannotBeAnEndpoint(t *testing.T) {
	w, _, vf := withEndpoint(t)
	req := w.request(uid, vf)
	req.Devices[0].VFIO.Backend = v1alpha1.BackendIOMMUFD
	w.k.WithIOMMUFD()
	_, err := w.plugin(nil).Prepare(t.Context(), req)
	wantRefused(t, err)
	says(t, err, "Kata uses the IOMMU group", "backend: Auto")
	req.Devices[0].VFIO.Backend = v1alpha1.BackendAuto
	if rec := w.mustPrepare(req); rec.Plan.Devices[0].Backend != v1alpha1.BackendGroup {
		t.Errorf("backend %s, want %s", rec.Plan.Devices[0].Backend, v1alpha1.BackendGroup)
	}
}

// TestEndpointStaysWithItsClaim: the VF is bound by policy while nobody has it, and waits on its kernel driver for the sandbox.
func TestEndpointStaysWithItsClaim(t *testing.T) {
	w, _, vfs := withNIC(t, vftest.Igb())
	w.node = &v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{
		Match: v1alpha1.DeviceMatch{Types: []string{"vf"}}, Policy: v1alpha1.PolicyBound,
	}}}
	w.node.Default()
	if err := w.plugin(nil).BindByPolicy(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.vf = endpoint()
	w.mustPrepare(w.request(uid, vfs[0]))
	exposed, err := w.fs.Driver(vfs[0])
	if err != nil || exposed == "" || device.IsVFIO(exposed) {
		t.Fatalf("endpoint is on %q, %v; want a kernel driver", exposed, err)
	}
	if err := w.plugin(nil).BindByPolicy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := w.plugin(nil).Recover(t.Context()); err != nil {
		t.Error(err)
	}
	if driver, err := w.fs.Driver(vfs[0]); err != nil || driver != exposed {
		t.Errorf("afterwards it is on %q, %v; want %q still", driver, err, exposed)
	}
}

package prepare_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestDriverThatIsNotCalledAsItsModule: the kernel's xe_vfio_pci registers the driver xe-vfio-pci, which shows once it is loaded.
func TestDriverThatIsNotCalledAsItsModule(t *testing.T) {
	w := newWorld(t)
	w.k.SetAliases("alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\nalias vfio_pci:v000010DEd*sv*sd*bc*sc*i* xe_vfio_pci\n")
	w.k.AddModule("xe-vfio-pci", sysfstest.Driver{VFIO: true})
	gpu := w.k.AddGPU(0x3b)
	before := w.bindings()
	rec := w.mustPrepare(w.request(uid, gpu))
	const want = "xe-vfio-pci"
	fn, _ := rec.Plan.Function(gpu)
	kept, _ := w.record(uid).Plan.Function(gpu)
	driver, err := w.fs.Driver(gpu)
	if driver != want || err != nil || fn.Target.Driver != want || kept.Target.Override != want {
		t.Errorf("%s is on %q, %v; by its plan on %+v, by its record on %+v; want %s", gpu, driver, err, fn.Target, kept.Target, want)
	}
	w.mustUnprepare(uid)
	if after := w.bindings(); after[gpu] != before[gpu] {
		t.Errorf("given back to %+v, want %+v", after[gpu], before[gpu])
	}
}

//go:build lab

package audit_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// TestUnsafeInterruptsAreFound switches VFIO's own check of interrupt remapping off, in each module that has it.
func TestUnsafeInterruptsAreFound(t *testing.T) {
	rules := map[string]string{"vfio_iommu_type1": "IOM-006"}
	if kernel.Variant(t) == image.IOMMUFD {
		rules["iommufd"] = "IOM-007"
	}
	allow := func(word string) (found []string) {
		for module, rule := range rules {
			kernel.Write(t, "/sys/module/"+module+"/parameters/allow_unsafe_interrupts", word)
			found = append(found, "fail "+rule)
		}
		return found
	}
	stage.FoundOnlyWhile(t, func() ([]string, func()) { return allow("Y"), func() { allow("N") } })
}

// gpu0Port is the root port above GPU0. PF0's is its neighbor.
const gpu0Port = "0000:20:01.0"

// TestACSThatIsSwitchedOffIsFound writes what recipes for GPUDirect write, to the port between two tenants' functions.
func TestACSThatIsSwitchedOffIsFound(t *testing.T) {
	kernel.VFs(t, topology.PF0, "1")
	keepBaseline(t)
	n := stage.Open(t, stage.Config())
	give(t, n, "tenant-a", topology.GPU0)
	give(t, n, "tenant-b", topology.VF(topology.PF0, 0))
	report := stage.FoundOnlyWhile(t, func() ([]string, func()) {
		was := setpci(t, "-s", gpu0Port, "ECAP_ACS+6.w")
		setpci(t, "-s", gpu0Port, "ECAP_ACS+6.w=0")
		return []string{
			"fail ACS-001 port " + gpu0Port,
			"fail ACS-009 " + topology.GPU0 + " root complex pci0000:20",
			"fail ACS-017 " + gpu0Port,
		}, func() { setpci(t, "-s", gpu0Port, "ECAP_ACS+6.w="+was) }
	})
	for i := range report.Findings {
		f := &report.Findings[i]
		if f.ID == "ACS-009" && !slices.Equal(f.Tenants, []string{"tenant-a", "tenant-b"}) {
			t.Errorf("in reach are %v; want both tenants", f.Tenants)
		}
	}
}

// keepBaseline keeps how ACS is, as the plugin does when it first starts in a boot.
func keepBaseline(t *testing.T) {
	t.Helper()
	data, err := json.Marshal(facts.NewBaseline(stage.Scan(t)))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("/", node.DefaultRunDir, facts.BaselineFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) }) // the machine's end removes it too
}

// TestSpecThatNamesAnotherDeviceIsFound puts the nodes of another tenant's function into a claim's CDI spec.
func TestSpecThatNamesAnotherDeviceIsFound(t *testing.T) {
	kernel.VFs(t, topology.PF0, "1")
	n := stage.Open(t, stage.Config())
	give(t, n, "tenant-a", topology.GPU0)
	give(t, n, "tenant-b", topology.VF(topology.PF0, 0))
	own, others := spec(t, "tenant-a"), spec(t, "tenant-b")
	path := specPath("tenant-a")
	stage.FoundOnlyWhile(t, func() ([]string, func()) {
		was := kernel.Read(t, path)
		own.Devices[0].ContainerEdits = others.Devices[0].ContainerEdits
		data, err := json.Marshal(own)
		if err != nil {
			t.Fatal(err)
		}
		overwrite(t, path, string(data))
		return []string{"fail CDI-002 " + path, "fail CDI-003 " + specPath("tenant-b")}, func() { overwrite(t, path, was) }
	})
}

func spec(t *testing.T, uid string) *cdispecs.Spec {
	t.Helper()
	dir, err := cdi.Open(filepath.Join("/", node.DefaultCDIDir))
	if err != nil {
		t.Fatal(err)
	}
	s, err := dir.Read(uid)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func specPath(uid string) string {
	return filepath.Join("/", node.DefaultCDIDir, "kata-vfio.dev-vfio_"+uid+".json")
}

// overwrite leaves mode and owner of the file as they are.
func overwrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

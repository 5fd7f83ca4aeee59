package bootstrap_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/writer"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// smi is what `nvidia-smi -q` prints of GPUs at these buses, with their modules.
func smi(gpus ...string) string {
	var b strings.Builder
	for i := 0; i < len(gpus); i += 2 {
		b.WriteString("GPU 00000000:" + gpus[i] + ":00.0\n    GPU UUID                              : GPU-" + gpus[i] + "\n    Module ID                             : " + gpus[i+1] + "\n")
	}
	return b.String()
}

// TestModulesAreCaptured: the map has each GPU with its serial number, and what was saved is what the plugin and the audit read.
func TestModulesAreCaptured(t *testing.T) {
	k := sysfstest.New(t)
	for i, bus := range []uint8{0x1b, 0x43} {
		k.AddRootPort(bus)
		gpu := sysfstest.GPU(pci.Address{Bus: bus})
		gpu.Capabilities.Serial = []string{"11-22-33-44-55-66-77-88", "11-22-33-44-55-66-77-99"}[i]
		k.Add(gpu)
	}
	k.PutFile("sys/class/dmi/id/product_name", "SYS-821GE-TNHR\n")
	e, err := writer.Open(k.Root(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	m, err := e.Modules(t.Context(), smi("1B", "5", "43", "1"))
	want := &fabric.Map{Product: "SYS-821GE-TNHR", Places: []fabric.Place{
		{Module: 5, Address: pci.Address{Bus: 0x1b}, UUID: "GPU-1B", Serial: "11-22-33-44-55-66-77-88"},
		{Module: 1, Address: pci.Address{Bus: 0x43}, UUID: "GPU-43", Serial: "11-22-33-44-55-66-77-99"},
	}}
	if diff := cmp.Diff(want, m); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	for i, wantChange := range []bool{true, false} {
		if changed, err := e.SaveModules(t.Context(), m); err != nil || changed != wantChange {
			t.Errorf("save %d: got %t, %v, want %t", i, changed, err, wantChange)
		}
	}
	found, err := e.Files.Look(bootstrap.ModulesFile)
	if err != nil {
		t.Fatal(err)
	}
	read, err := fabric.Parse[fabric.Map](found.Content)
	if diff := cmp.Diff(want, read); err != nil || diff != "" || found.Mode != 0o600 {
		t.Errorf("mode %o, %v (-want +got):\n%s", found.Mode, err, diff)
	}
	if got := facts.New(e.Tree, &device.Snapshot{}).FabricMap(); !cmp.Equal(got.Value, want) {
		t.Errorf("the audit reads %+v", got)
	}
	for text, want := range map[string]string{
		smi("1B", "5"):                       "GPU 0000:43:00.0 is not in the output of nvidia-smi: NVIDIA's driver must have all GPUs",
		smi("1B", "5", "43", "5"):            "module 5",
		smi("1B", "5", "43", "1", "44", "2"): "where this node has no GPU",
		"NVIDIA-SMI has failed":              "it lists no GPU",
	} {
		if _, err := e.Modules(t.Context(), text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

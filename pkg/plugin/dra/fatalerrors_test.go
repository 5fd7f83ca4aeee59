package dra_test

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestDeviceWithFatalErrorsIsTainted until they are accounted for.
func TestDeviceWithFatalErrorsIsTainted(t *testing.T) {
	n, r := plugintest.New(t), &plugintest.Recorder{}
	gpu := n.Kernel.AddGPU(0x3b)
	tainted := func() bool {
		t.Helper()
		n.Publish(r)
		return slices.Contains(r.Devices()["gpu-0000-3b-00-0"], "fatal-errors")
	}
	n.Prepare("uid-1", "gpu-0000-3b-00-0")
	if tainted() {
		t.Error("tainted without any")
	}
	n.Kernel.CountFatalErrors(gpu, 1)
	if !tainted() {
		t.Error("not tainted")
	}
	if _, err := n.Claims.Unprepare(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if tainted() {
		t.Error("tainted after a proven reset")
	}
}

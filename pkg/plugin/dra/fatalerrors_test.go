package dra_test

import (
	"slices"
	"testing"
)

// TestADeviceWithFatalErrorsIsTainted until they are accounted for.
func TestADeviceWithFatalErrorsIsTainted(t *testing.T) {
	n, r := newNode(t), &recorder{}
	gpu := n.k.AddGPU(0x3b)
	tainted := func() bool {
		t.Helper()
		n.publish(r)
		return slices.Contains(r.devices()["gpu-0000-3b-00-0"], "fatal-errors")
	}
	n.prepared("uid-1", "gpu-0000-3b-00-0")
	if tainted() {
		t.Error("tainted without any")
	}
	n.k.CountFatalErrors(gpu, 1)
	if !tainted() {
		t.Error("not tainted")
	}
	if _, err := n.claims.Unprepare(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	if tainted() {
		t.Error("tainted after a proven reset")
	}
}

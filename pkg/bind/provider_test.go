package bind

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTypesOfVGPUs reads the lists of several driver versions.
func TestTypesOfVGPUs(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want vgpuTypes
	}{
		"number first": {"1428 : NVIDIA H200X-141C\n1429 : NVIDIA H200X-70C\n", vgpuTypes{{"1428", "NVIDIA H200X-141C"}, {"1429", "NVIDIA H200X-70C"}}},
		"with heading": {"ID    : vGPU Name\n557   : NVIDIA L40S-1B\n", vgpuTypes{{"557", "NVIDIA L40S-1B"}}},
		"name first":   {"NVIDIA L40S-12Q: 1159\n", vgpuTypes{{"1159", "NVIDIA L40S-12Q"}}},
		"nothing":      {"", nil},
		"no type":      {"0 : none\n", nil},
	} {
		if diff := cmp.Diff(c.want, parseTypes(c.text), cmp.AllowUnexported(vgpuType{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	types := parseTypes("1428 : NVIDIA H200X-141C\n")
	if id, ok := types.id("H200X-141C"); !ok || id != "1428" {
		t.Errorf("id of the bare name = %q, %t; want 1428", id, ok)
	}
	if id, ok := types.id("NVIDIA H200X-14C"); ok {
		t.Errorf("id of another name = %q, want none", id)
	}
}

// TestAccepted: the firmware rounds, and "no limit" is never a bound.
func TestAccepted(t *testing.T) {
	xe := &Xe{}
	for _, c := range []struct {
		name, want, now string
		accepts         bool
	}{
		{"exec_quantum_ms", "20", "20", true},
		{"exec_quantum_ms", "20", "0", false},
		{"exec_quantum_ms", "0", "20", false},
		{"exec_quantum_ms", "1", "2", true},
		{"exec_quantum_ms", "20", "40", false},
		{"vram_quota", "1072693248", "1073741824", true},
		{"vram_quota", "1073741824", "536870912", false},
		{"sched_priority", "low", "normal", false},
		{"exec_quantum_ms", "20", "unknown", false},
	} {
		if got := xe.Accepts(c.name, c.want, c.now); got != c.accepts {
			t.Errorf("%s: %s for %s accepted: %t, want %t", c.name, c.now, c.want, got, c.accepts)
		}
	}
	if got := chosen("low [normal]"); got != "normal" {
		t.Errorf("chosen = %q, want normal", got)
	}
}

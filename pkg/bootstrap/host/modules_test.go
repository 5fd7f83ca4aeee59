package host_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// A module that the kernel does not have in any way is a problem; one that waits for its first use is named and no problem.
func TestModulesThatTheKernelLacksAreNamed(t *testing.T) {
	needed := []state.Module{
		{Name: "sch_ingress", Config: "CONFIG_NET_SCH_INGRESS", Why: "of frames"}, {Name: "cls_u32", Config: "CONFIG_NET_CLS_U32", Why: "of filters"},
	}
	const wait = ": the kernel loads each when Kata first needs it"
	for about, c := range map[string]struct {
		has           map[string]host.Module
		image         bool
		problem, note string
	}{
		"both loaded":           {has: map[string]host.Module{"sch_ingress": {Loadable: true, Loaded: true}, "cls_u32": {Loadable: true, Loaded: true}}},
		"one is built in":       {has: map[string]host.Module{"sch_ingress": {BuiltIn: true}, "cls_u32": {Loadable: true, Loaded: true}}},
		"not loaded yet":        {has: map[string]host.Module{"sch_ingress": {Loadable: true}, "cls_u32": {Loadable: true}}, note: "cls_u32 sch_ingress" + wait},
		"an image loads none":   {has: map[string]host.Module{"sch_ingress": {Loadable: true}, "cls_u32": {Loadable: true}}, image: true},
		"one is not there":      {has: map[string]host.Module{"sch_ingress": {Loadable: true}}, problem: "kernel 6.12.9 lacks modules that Kata needs: cls_u32 (of filters)", note: "sch_ingress" + wait},
		"none is there":         {has: map[string]host.Module{}, problem: "kernel 6.12.9 lacks modules that Kata needs: sch_ingress (of frames), cls_u32 (of filters)"},
		"an image without":      {has: map[string]host.Module{"cls_u32": {BuiltIn: true}}, image: true, problem: "kernel 6.12.9 lacks modules that Kata needs: sch_ingress (of frames)"},
		"nobody can tell":       {},
		"an image of no kernel": {image: true},
	} {
		problems, facts := host.Modules(needed, &host.Platform{Live: !c.image, Kernel: "6.12.9", Modules: c.has})
		var problem, note string
		for _, p := range problems {
			problem += p.Text
			if !p.Fatal || p.Fix == "" {
				t.Errorf("%s: the problem is %+v", about, p)
			}
		}
		for _, f := range facts {
			note += f.Value
		}
		if diff := cmp.Diff([]string{c.problem, c.note}, []string{problem, note}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", about, diff)
		}
	}
}

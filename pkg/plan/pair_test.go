package plan_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func TestPairIsPlannedLikeItsFunctions(t *testing.T) {
	s := fixture()
	apart, err := plan.Make(asking(s, gpuAddr, nicVF, audioGPU), node(s))
	if err != nil {
		t.Fatal(err)
	}
	req := asking(s, gpuAddr, nicVF, audioGPU)
	name := req.Devices[0].Name + "-" + req.Devices[1].Name
	req.Devices[0].Pair, req.Devices[1].Pair = name, name
	p, err := plan.Make(req, node(s))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var parts []int
	for _, d := range p.Allocated() {
		names, parts = append(names, d[0].Published()), append(parts, len(d))
	}
	if diff := cmp.Diff([]string{name, req.Devices[2].Name}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{2, 1}, parts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.Devices[0].Pair, p.Devices[1].Pair = "", ""
	if diff := cmp.Diff(apart, p); diff != "" {
		t.Errorf("the pair changes more than its name (-want apart +got pair):\n%s", diff)
	}
	if got := len(apart.Allocated()); got != 3 {
		t.Errorf("%d devices apart, want 3", got)
	}
}

// One that can't be had keeps the claim from the other.
func TestHalfAPairIsRefused(t *testing.T) {
	s := fixture()
	req := asking(s, deadGPU, nicVF)
	name := req.Devices[0].Name + "-" + req.Devices[1].Name
	req.Devices[0].Pair, req.Devices[1].Pair = name, name
	_, err := plan.Make(req, node(s))
	if refused, ok := errors.AsType[*rule.RefusedError](err); !ok || !refused.Has(rule.ConfigSpaceDead) {
		t.Errorf("Make = %v; want %s", err, rule.ConfigSpaceDead)
	}
}

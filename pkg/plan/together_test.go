package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Two GPUs and the port above them share group 60.
var (
	sharedPort = pci.Address{Bus: 0xa0}
	firstGPU   = pci.Address{Bus: 0xa1}
	secondGPU  = pci.Address{Bus: 0xa1, Function: 1}
)

func withSharedGroup() *device.Snapshot {
	s := fixture()
	const display, port = 0x030200, 0x060400
	above := on(sharedPort, port, "pcieport", 60)
	above.Capabilities.Express = &pci.Express{Type: pci.RootPort}
	return assemble(slices.Concat(s.Functions, []device.Function{above, on(firstGPU, display, "nvidia", 60), on(secondGPU, display, "nvidia", 60)}))
}

// situation is what decides whether Kata can plug what a claim asks for.
type situation struct {
	ask        []pci.Address
	iommufd    bool // the kernel has it
	hotPlug    bool
	backend    v1alpha1.Backend
	companions v1alpha1.CompanionPolicy
}

func (s situation) plan() (*plan.Plan, error) {
	snapshot := withSharedGroup()
	snapshot.Host.IOMMUFD = s.iommufd
	n := node(snapshot)
	n.HotPlug = s.hotPlug
	req := asking(snapshot, s.ask...)
	for i := range req.Devices {
		d := &req.Devices[i].VFIO
		d.Overlay(&v1alpha1.VFIOConfig{Backend: s.backend, Companions: s.companions})
	}
	return plan.Make(req, n)
}

func TestWhatKataCanNotPlugIsRefused(t *testing.T) {
	const give, group = v1alpha1.CompanionsGive, v1alpha1.BackendGroup
	for name, c := range map[string]struct {
		situation
		want  plan.Code
		names []string
	}{
		"a companion of the same group": {
			situation{ask: []pci.Address{audioGPU}, iommufd: true, companions: give},
			plan.SeveralOfGroup,
			[]string{"companions: Give", "0000:62:00.0 and 0000:62:00.1", "group 15", "`companions: Withhold`"},
		},
		"a companion of the same group, hot plug": {
			situation{ask: []pci.Address{audioGPU}, iommufd: true, companions: give, hotPlug: true}, plan.SeveralOfGroup, nil,
		},
		"two devices of a group by iommufd": {
			situation{ask: []pci.Address{firstGPU, secondGPU}, iommufd: true},
			plan.SeveralOfGroup,
			[]string{"the claim has 0000:a1:00.0 and 0000:a1:00.1", "group 60", "claim one of the two"},
		},
		"two devices of a group by iommufd, hot plug": {
			situation{ask: []pci.Address{firstGPU, secondGPU}, iommufd: true, hotPlug: true}, plan.SeveralOfGroup, nil,
		},
		"two devices of a group by its node": {
			situation{ask: []pci.Address{firstGPU, secondGPU}}, plan.SeveralOfGroup, []string{"0000:a1:00.0", "0000:a1:00.1"},
		},
		"the second function by the group's node": {
			situation{ask: []pci.Address{secondGPU}},
			plan.OtherOfGroup,
			[]string{"0000:a1:00.1 by the node of IOMMU group 60", "the first function, 0000:a1:00.0", "a kernel with iommufd"},
		},
		"the second function by the group's node, which the claim wants": {
			situation{ask: []pci.Address{secondGPU}, iommufd: true, backend: group},
			plan.OtherOfGroup,
			[]string{"leave `backend: Group` out"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.plan()
			refused, ok := errors.AsType[*plan.RefusedError](err)
			if !ok || len(refused.Refusals) != 1 || !refused.Has(c.want) {
				t.Fatalf("Make = %v; want %s", err, c.want)
			}
			for _, name := range c.names {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("message does not say %q: %v", name, err)
				}
			}
		})
	}
}

func TestWhatKataCanPlugPasses(t *testing.T) {
	for name, c := range map[string]struct {
		situation
		give [][]pci.Address
	}{
		"a companion of another group": {
			situation{ask: []pci.Address{splitGPU}, iommufd: true, companions: v1alpha1.CompanionsGive}, [][]pci.Address{{splitGPU, splitUSB}},
		},
		"the first function by the group's node": {situation{ask: []pci.Address{firstGPU}}, [][]pci.Address{{firstGPU}}},
		"the second function by iommufd":         {situation{ask: []pci.Address{secondGPU}, iommufd: true}, [][]pci.Address{{secondGPU}}},
		"the second function by the group's node, hot plug": {
			situation{ask: []pci.Address{secondGPU}, hotPlug: true}, [][]pci.Address{{secondGPU}},
		},
		"two devices of a group by its node, hot plug": {
			situation{ask: []pci.Address{firstGPU, secondGPU}, hotPlug: true}, [][]pci.Address{{firstGPU}, {secondGPU}},
		},
		"devices of several groups": {
			situation{ask: []pci.Address{firstGPU, audioGPU, gpuAddr}, iommufd: true}, [][]pci.Address{{firstGPU}, {audioGPU}, {gpuAddr}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := c.plan()
			if err != nil {
				t.Fatal(err)
			}
			var give [][]pci.Address
			for i := range p.Devices {
				give = append(give, p.Devices[i].Give)
			}
			if diff := cmp.Diff(c.give, give); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Two claims of one pod are as two devices of one claim to Kata.
func TestTwoClaimsDoNotGetOneGroup(t *testing.T) {
	s := withSharedGroup()
	s.Host.IOMMUFD = true
	pods := []claim.Pod{{UID: "pod-1", Name: "pod"}}
	first := asking(s, firstGPU)
	first.Pods = pods
	p, err := plan.Make(first, node(s))
	if err != nil {
		t.Fatal(err)
	}
	n := node(s)
	for _, a := range p.Addresses() {
		n.Owners[a] = plan.Owner{Claim: p.Claim}
	}
	second := asking(s, secondGPU)
	second.UID, second.Pods = "uid-2", pods
	_, err = plan.Make(second, n)
	if refused, ok := errors.AsType[*plan.RefusedError](err); !ok || !refused.Has(plan.Held) {
		t.Errorf("Make = %v; want %s", err, plan.Held)
	}
}

// What a slice says of a function is what its claim meets.
func TestTheSecondOfAGroupIsAssessedAsItsClaim(t *testing.T) {
	s := withSharedGroup()
	for _, hot := range []bool{false, true} {
		n := node(s)
		n.HotPlug = hot
		f, _ := s.Function(secondGPU)
		as := plan.NewAssessor(n).Assess(f)
		refused := slices.ContainsFunc(as.Faults(), func(r plan.Refusal) bool { return r.Code == plan.OtherOfGroup })
		if refused == hot {
			t.Errorf("hot plug %v: refused with %+v", hot, as.Refusals)
		}
	}
}

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
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// A function that its VM gets while it runs has to fit into the window below the port; one that its VM boots with need not.
func TestFunctionThatDoesNotFitBelowAHotPlugPortIsRefused(t *testing.T) {
	registers := device.BAR{Index: 0, Size: 16 * mib}
	framebuffer := device.BAR{Index: 1, Size: 32 << 30, Prefetchable: true, Is64: true}
	huge := device.BAR{Index: 1, Size: 128 << 30, Prefetchable: true, Is64: true}
	large := func(a pci.Address, bars ...device.BAR) func(*device.Snapshot, *claim.Request) {
		return func(s *device.Snapshot, _ *claim.Request) { f, _ := s.Function(a); f.BARs = bars }
	}
	for name, tt := range map[string]struct {
		ask    pci.Address
		window uint64
		change func(*device.Snapshot, *claim.Request)
		want   string // names the function and the sizes; empty for no refusal
	}{
		"cold plug":                     {gpuAddr, 0, large(gpuAddr, registers, huge), ""},
		"a GPU's registers":             {gpuAddr, plan.FirmwareWindow, large(gpuAddr, registers, huge), "32-bit BARs of 0000:3b:00.0 need 16 MiB, and a VM that gets it by hot plug has at most 2 MiB"},
		"prefetchable, 32 bits wide":    {gpuAddr, plan.FirmwareWindow, large(gpuAddr, device.BAR{Size: 16 * mib, Prefetchable: true}), "16 MiB"},
		"64 bits wide, not prefetched":  {gpuAddr, plan.FirmwareWindow, large(gpuAddr, device.BAR{Size: 4 * mib, Is64: true}), "4 MiB"},
		"several together":              {gpuAddr, plan.FirmwareWindow, large(gpuAddr, device.BAR{Size: 2 * mib}, device.BAR{Index: 1, Size: 4 * kib}), "2.004 MiB"},
		"just as large":                 {gpuAddr, plan.FirmwareWindow, large(gpuAddr, device.BAR{Size: mib}, device.BAR{Index: 1, Size: mib}), ""},
		"prefetchable, 64 bits wide":    {gpuAddr, plan.FirmwareWindow, large(gpuAddr, framebuffer), ""},
		"larger than any window":        {gpuAddr, plan.FirmwareWindow, large(gpuAddr, huge), "64-bit prefetchable BARs of 0000:3b:00.0 need 128 GiB, and a VM that gets it by hot plug has at most 64 GiB"},
		"ports":                         {gpuAddr, plan.FirmwareWindow, large(gpuAddr, device.BAR{Size: 16 * mib, IO: true}), ""},
		"a larger window":               {gpuAddr, 16 * mib, large(gpuAddr, registers), ""},
		"a mate by the group's node":    {audioGPU, plan.FirmwareWindow, large(audio, registers), "0000:62:00.1"},
		"a companion that stays behind": {splitGPU, plan.FirmwareWindow, large(splitUSB, registers), ""},
		"a mate that stays behind": {audioGPU, plan.FirmwareWindow, func(s *device.Snapshot, r *claim.Request) {
			large(audio, registers)(s, r)
			s.Host.IOMMUFD = true
		}, ""},
		"a companion that goes with it": {splitGPU, plan.FirmwareWindow, func(s *device.Snapshot, r *claim.Request) {
			large(splitUSB, registers)(s, r)
			s.Host.IOMMUFD, r.Devices[0].VFIO.Companions = true, v1alpha1.CompanionsGive
		}, "0000:70:00.1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture()
			req, n := asking(s, tt.ask), node(s)
			n.HotPlugWindow = tt.window
			tt.change(s, req)
			_, err := plan.Make(req, n)
			refused, ok := errors.AsType[*rule.RefusedError](err)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("Make = %v, want nil", err)
			case tt.want == "":
			case !ok || !refused.Has(rule.HotPlugWindowTooSmall):
				t.Errorf("Make = %v, want %s", err, rule.HotPlugWindowTooSmall)
			default:
				for _, word := range []string{tt.want, `cold_plug_vfio = "root-port"`, "--hot-plug-window"} {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("Make = %q, want it to say %q", err, word)
					}
				}
			}
		})
	}
}

// What is published says it before a claim meets it.
func TestJudgmentOnAFunctionHasItsWindow(t *testing.T) {
	s := fixture()
	f, _ := s.Function(gpuAddr)
	f.BARs = []device.BAR{{Size: 16 * mib}}
	n := node(s)
	n.HotPlugWindow = plan.FirmwareWindow
	as := plan.NewAssessor(n).Assess(f)
	if faults := as.Faults(); len(faults) != 1 || faults[0].Code != rule.HotPlugWindowTooSmall {
		t.Errorf("faults %+v, want %s", faults, rule.HotPlugWindowTooSmall)
	}
}

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

func TestHotPlugRefusesWhatKataCannotPlug(t *testing.T) {
	const give, group = v1alpha1.CompanionsGive, v1alpha1.BackendGroup
	for name, c := range map[string]struct {
		situation
		want  rule.Code
		names []string
	}{
		"a companion of the same group": {
			situation{ask: []pci.Address{audioGPU}, iommufd: true, companions: give},
			rule.SeveralOfIOMMUGroup,
			[]string{"companions: Give", "0000:62:00.0 and 0000:62:00.1", "group 15", "`companions: Withhold`"},
		},
		"a companion of the same group, hot plug": {
			situation{ask: []pci.Address{audioGPU}, iommufd: true, companions: give, hotPlug: true}, rule.SeveralOfIOMMUGroup, nil,
		},
		"two devices of a group by iommufd": {
			situation{ask: []pci.Address{firstGPU, secondGPU}, iommufd: true},
			rule.SeveralOfIOMMUGroup,
			[]string{"the claim has 0000:a1:00.0 and 0000:a1:00.1", "group 60", "claim one of the two"},
		},
		"two devices of a group by iommufd, hot plug": {
			situation{ask: []pci.Address{firstGPU, secondGPU}, iommufd: true, hotPlug: true}, rule.SeveralOfIOMMUGroup, nil,
		},
		"two devices of a group by its node": {
			situation{ask: []pci.Address{firstGPU, secondGPU}}, rule.SeveralOfIOMMUGroup, []string{"0000:a1:00.0", "0000:a1:00.1"},
		},
		"the second function by the group's node": {
			situation{ask: []pci.Address{secondGPU}},
			rule.OtherOfIOMMUGroup,
			[]string{"0000:a1:00.1 by the node of IOMMU group 60", "the first function, 0000:a1:00.0", "a kernel with iommufd"},
		},
		"the second function by the group's node, which the claim wants": {
			situation{ask: []pci.Address{secondGPU}, iommufd: true, backend: group},
			rule.OtherOfIOMMUGroup,
			[]string{"leave `backend: Group` out"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.plan()
			refused, ok := errors.AsType[*rule.RefusedError](err)
			if !ok || len(refused.Verdicts) != 1 || !refused.Has(c.want) {
				t.Fatalf("Make = %v; want %s", err, c.want)
			}
			ruletest.VerdictsAt(t, rule.AtPrepare, refused.Verdicts)
			for _, name := range c.names {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("Make = %q, want it to say %q", err, name)
				}
			}
		})
	}
}

func TestHotPlugAcceptsWhatKataCanPlug(t *testing.T) {
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
	if refused, ok := errors.AsType[*rule.RefusedError](err); !ok || !refused.Has(rule.Held) {
		t.Errorf("Make = %v; want %s", err, rule.Held)
	}
}

// What a slice says of a function is what its claim meets.
func TestSecondOfAGroupIsAssessedAsItsClaim(t *testing.T) {
	s := withSharedGroup()
	for _, hot := range []bool{false, true} {
		n := node(s)
		n.HotPlug = hot
		f, _ := s.Function(secondGPU)
		as := plan.NewAssessor(n).Assess(f)
		refused := slices.ContainsFunc(as.Faults(), func(r rule.Verdict) bool { return r.Code == rule.OtherOfIOMMUGroup })
		if refused == hot {
			t.Errorf("hot plug %t: refused with %+v, want %s: %t", hot, as.Refusals, rule.OtherOfIOMMUGroup, !hot)
		}
	}
}

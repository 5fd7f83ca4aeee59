package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// A function that its VM gets while it runs has to fit into the window below the port; one that its VM boots with need not.
func TestAFunctionThatDoesNotFitBelowAHotPlugPortIsRefused(t *testing.T) {
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
			refused, ok := errors.AsType[*plan.RefusedError](err)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want == "":
			case !ok || !refused.Has(plan.WindowTooSmall):
				t.Errorf("Make = %v, want %s", err, plan.WindowTooSmall)
			default:
				for _, word := range []string{tt.want, `cold_plug_vfio = "root-port"`, "--hot-plug-window"} {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("the message lacks %q: %v", word, err)
					}
				}
			}
		})
	}
}

// What is published says it before a claim meets it.
func TestTheJudgementOnAFunctionHasItsWindow(t *testing.T) {
	s := fixture()
	f, _ := s.Function(gpuAddr)
	f.BARs = []device.BAR{{Size: 16 * mib}}
	n := node(s)
	n.HotPlugWindow = plan.FirmwareWindow
	as := plan.NewAssessor(n).Assess(f)
	if faults := as.Faults(); len(faults) != 1 || faults[0].Code != plan.WindowTooSmall {
		t.Errorf("faults %+v, want %s", faults, plan.WindowTooSmall)
	}
}

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
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

func askEndpoint(d *claim.Device) {
	d.VF = &v1alpha1.VFConfig{
		Attachment: v1alpha1.AttachPhysicalEndpoint, Network: &v1alpha1.GuestNetwork{Addresses: []string{"192.0.2.10/24"}},
	}
}

// TestAnEndpointEndsOnItsKernelDriver, by way of VFIO, with iommufd too.
func TestAnEndpointEndsOnItsKernelDriver(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*device.Snapshot)
		want   string
	}{
		"that it has":     {want: "igbvf"},
		"with iommufd":    {change: func(s *device.Snapshot) { s.Host.IOMMUFD = true }, want: "igbvf"},
		"that is unknown": {change: func(s *device.Snapshot) { f, _ := s.Function(nicVF); f.Driver = "" }, want: plan.FindDriver},
		"bound to VFIO": {
			change: func(s *device.Snapshot) {
				f, _ := s.Function(nicVF)
				f.Driver, f.DriverOverride = "vfio-pci", "vfio-pci"
			},
			want: plan.FindDriver,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture()
			req := asking(s, nicVF)
			askEndpoint(&req.Devices[0])
			if tt.change != nil {
				tt.change(s)
			}
			got, err := plan.Make(req, node(s))
			if err != nil {
				t.Fatal(err)
			}
			fn, _ := got.Function(nicVF)
			if diff := cmp.Diff(&plan.Binding{Driver: tt.want, Override: tt.want}, fn.Endpoint); diff != "" {
				t.Errorf("endpoint (-want +got):\n%s", diff)
			}
			if d := got.Devices[0]; d.Attachment != v1alpha1.AttachPhysicalEndpoint || d.Backend != v1alpha1.BackendGroup || fn.Target.Driver != "vfio-pci" {
				t.Errorf("device %+v, target %+v", d, fn.Target)
			}
			if last := got.Steps[len(got.Steps)-1].String(); last != "probe 0000:21:10.0 for "+tt.want {
				t.Errorf("the last step is %q", last)
			}
			if first := got.StepsOf(plan.AtPrepared, slices.Concat(plan.Cleaning(), plan.GivingBack())...)[0].String(); first != "unbind 0000:21:10.0 from "+tt.want {
				t.Errorf("the first step back is %q", first)
			}
		})
	}
}

func TestWhatCannotBeAnEndpoint(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*device.Snapshot, *claim.Device)
		code   plan.Code
		says   string
	}{
		"InfiniBand": {
			change: func(s *device.Snapshot, _ *claim.Device) { f, _ := s.Function(nicVF); f.Class = 0x020700 },
			code:   plan.Unsupported, says: "no virtual function of an Ethernet controller",
		},
		"without an address by its PF": {
			change: func(s *device.Snapshot, d *claim.Device) { withoutInterface(s); d.VFIO.AllowUnisolated = new(true) },
			code:   plan.Unsupported, says: "can't be set by its PF",
		},
		"by iommufd": {
			change: func(s *device.Snapshot, d *claim.Device) {
				s.Host.IOMMUFD, d.VFIO.Backend = true, v1alpha1.BackendIOMMUFD
			},
			code: plan.Unsupported, says: "by its group",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture()
			req := asking(s, nicVF)
			askEndpoint(&req.Devices[0])
			tt.change(s, &req.Devices[0])
			_, err := plan.Make(req, node(s))
			refused, ok := errors.AsType[*plan.RefusedError](err)
			if !ok || !refused.Has(tt.code) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Make = %v, want a refusal %s that says %q", err, tt.code, tt.says)
			}
		})
	}
}

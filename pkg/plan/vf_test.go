package plan_test

import (
	"errors"
	"net"
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

// withoutInterface takes the PF's interface away, as when it is in another
// network namespace.
func withoutInterface(s *device.Snapshot) {
	pf, _ := s.Function(nic)
	pf.Children.Net = nil
}

func TestPlanVFSettingsOfPF(t *testing.T) {
	guarded := device.VFSettings{MAC: plan.Choose, SpoofCheck: new(true), Trust: new(false)}
	for name, tt := range map[string]struct {
		change func(*device.Snapshot, *claim.Device)
		want   *device.VFSettings
	}{
		"nothing said": {want: &guarded},
		"everything said": {
			change: func(_ *device.Snapshot, d *claim.Device) {
				d.VF = &v1alpha1.VFConfig{
					MAC: "02:00:5E:10:00:01", VLAN: new(100), VLANQoS: new(3), VLANProtocol: v1alpha1.VLAN8021ad,
					SpoofCheck: new(false), Trust: new(true), MinTxRate: new(10), MaxTxRate: new(1000), LinkState: v1alpha1.LinkEnable,
				}
			},
			want: &device.VFSettings{
				MAC: "02:00:5e:10:00:01", VLAN: &device.VLAN{ID: 100, QoS: 3, Protocol: "802.1ad"},
				SpoofCheck: new(false), Trust: new(true), Rate: &device.TxRate{Min: 10, Max: 1000}, LinkState: "enable",
			},
		},
		"one rate": {
			change: func(_ *device.Snapshot, d *claim.Device) { d.VF = &v1alpha1.VFConfig{MaxTxRate: new(1000)} },
			want: &device.VFSettings{
				MAC: plan.Choose, SpoofCheck: new(true), Trust: new(false), Rate: &device.TxRate{Min: device.AsFound, Max: 1000},
			},
		},
		"the guest's network is none of the PF's": {
			change: func(_ *device.Snapshot, d *claim.Device) {
				d.VF = &v1alpha1.VFConfig{Network: &v1alpha1.GuestNetwork{Interface: "net1"}}
			},
			want: &guarded,
		},
		"InfiniBand has other addresses": {
			change: func(s *device.Snapshot, _ *claim.Device) {
				f, _ := s.Function(nicVF)
				f.Class = pci.ClassInfiniBand << 8
			},
			want: &device.VFSettings{NodeGUID: plan.Choose, PortGUID: plan.Choose},
		},
		"InfiniBand with everything said": {
			change: func(s *device.Snapshot, d *claim.Device) {
				f, _ := s.Function(nicVF)
				f.Class = pci.ClassInfiniBand << 8
				d.VF = &v1alpha1.VFConfig{NodeGUID: "02:00:5E:10:00:00:00:01", PortGUID: "02:00:5e:10:00:00:00:02", LinkState: v1alpha1.LinkAuto}
			},
			want: &device.VFSettings{NodeGUID: "02:00:5e:10:00:00:00:01", PortGUID: "02:00:5e:10:00:00:00:02", LinkState: "auto"},
		},
		"InfiniBand of a class that says that no VLAN is meant": {
			change: func(s *device.Snapshot, d *claim.Device) {
				f, _ := s.Function(nicVF)
				f.Class = pci.ClassInfiniBand << 8
				d.VF = &v1alpha1.VFConfig{AllowUntagged: new(true)}
			},
			want: &device.VFSettings{NodeGUID: plan.Choose, PortGUID: plan.Choose},
		},
		"the hash key": {
			change: func(_ *device.Snapshot, d *claim.Device) { d.VF = &v1alpha1.VFConfig{RSSQuery: new(true)} },
			want:   &device.VFSettings{MAC: plan.Choose, SpoofCheck: new(true), Trust: new(false), RSSQuery: new(true)},
		},
		"a VF that is no NIC": {
			change: func(s *device.Snapshot, _ *claim.Device) {
				f, _ := s.Function(nicVF)
				f.Class = 0x010802
				withoutInterface(s)
			},
		},
		"an unguarded VF that the class accepts": {
			change: func(s *device.Snapshot, d *claim.Device) {
				withoutInterface(s)
				d.VFIO.AllowUnisolated = new(true)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture()
			req := asking(s, nicVF)
			if tt.change != nil {
				tt.change(s, &req.Devices[0])
			}
			got, err := plan.Make(req, node(s))
			if err != nil {
				t.Fatal(err)
			}
			fn, _ := got.Function(nicVF)
			switch {
			case tt.want == nil && fn.VF != nil:
				t.Errorf("imposes %s, want nothing", fn.VF.Want.String())
			case tt.want != nil && fn.VF == nil:
				t.Errorf("imposes nothing, want %s", tt.want)
			case tt.want != nil:
				if diff := cmp.Diff(*tt.want, fn.VF.Want); diff != "" {
					t.Errorf("imposed (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestGeneratedAddresses(t *testing.T) {
	seen := map[string]bool{}
	for _, uid := range []string{"uid-1", "uid-2"} {
		for _, name := range []string{"a", "b"} {
			for try := range 2 {
				text := plan.GenerateMAC(uid, name, try)
				mac, err := net.ParseMAC(text)
				if err != nil || mac[0]&0x03 != 0x02 {
					t.Errorf("GenerateMAC = %q, want a unicast, locally administered address", text)
				}
				if text != plan.GenerateMAC(uid, name, try) {
					t.Errorf("GenerateMAC = %q, want the same address the second time", text)
				}
				guid, err := net.ParseMAC(plan.GenerateGUID(uid, name, try))
				if err != nil || len(guid) != 8 || guid[0]&0x03 != 0x02 {
					t.Errorf("GenerateGUID = %s, %v; want a locally administered EUI-64", guid, err)
				}
				seen[text], seen[guid.String()] = true, true
			}
		}
	}
	if len(seen) != 16 {
		t.Errorf("%d different addresses, want 16", len(seen))
	}
}

// TestRateIsSettledByWhatIsFound: who says one bound does not lift the other, and a claim by itself lifts none.
func TestRateIsSettledByWhatIsFound(t *testing.T) {
	const kept = device.AsFound
	limited := &device.TxRate{Min: 20, Max: 1000}
	for name, tt := range map[string]struct {
		said  device.TxRate
		own   bool
		found *device.TxRate
		want  string // "" is an error
	}{
		"a minimum alone":               {device.TxRate{Min: 100, Max: kept}, false, limited, "100 to 1000 Mbit/s"},
		"a maximum alone":               {device.TxRate{Min: kept, Max: 500}, false, limited, "20 to 500 Mbit/s"},
		"both":                          {device.TxRate{Min: 0, Max: 0}, false, limited, "any to any Mbit/s"},
		"a class lifts it":              {device.TxRate{Min: kept, Max: 2000}, false, limited, "20 to 2000 Mbit/s"},
		"a claim lowers it":             {device.TxRate{Min: kept, Max: 500}, true, limited, "20 to 500 Mbit/s"},
		"a claim that lifts it":         {device.TxRate{Min: kept, Max: 2000}, true, limited, "20 to 1000 Mbit/s"},
		"a claim that wants none":       {device.TxRate{Min: kept, Max: 0}, true, limited, "20 to 1000 Mbit/s"},
		"a claim where there was none":  {device.TxRate{Min: kept, Max: 500}, true, &device.TxRate{}, "any to 500 Mbit/s"},
		"a driver without rates":        {device.TxRate{Min: kept, Max: 500}, true, nil, "any to 500 Mbit/s"},
		"a minimum over the one found":  {device.TxRate{Min: 1001, Max: kept}, false, limited, ""},
		"a maximum under the one found": {device.TxRate{Min: kept, Max: 10}, true, limited, ""},
		"a minimum where no maximum is": {device.TxRate{Min: 100, Max: kept}, false, &device.TxRate{}, "100 to any Mbit/s"},
		"a class without a limit":       {device.TxRate{Min: kept, Max: 0}, false, limited, "20 to any Mbit/s"},
	} {
		t.Run(name, func(t *testing.T) {
			change := plan.VFChange{Want: device.VFSettings{Rate: &tt.said}, OwnMaxTxRate: tt.own}
			err := change.SettleRate(tt.found)
			if (err != nil) != (tt.want == "") {
				t.Fatalf("SettleRate = %v, want an error: %t", err, tt.want == "")
			}
			if got := change.Want.Rate.String(); err == nil && got != tt.want || change.OwnMaxTxRate {
				t.Errorf("settled %q, want %q", got, tt.want)
			}
		})
	}
}

func askEndpoint(d *claim.Device) {
	d.VF = &v1alpha1.VFConfig{
		Attachment: v1alpha1.AttachPhysicalEndpoint, Network: &v1alpha1.GuestNetwork{Addresses: []string{"192.0.2.10/24"}},
	}
}

// TestEndpointEndsOnItsKernelDriver, by way of VFIO, with iommufd too.
func TestEndpointEndsOnItsKernelDriver(t *testing.T) {
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
				t.Errorf("device %+v, target %+v; want a physical endpoint by its group, with target vfio-pci", d, fn.Target)
			}
			if last := got.Steps[len(got.Steps)-1].String(); last != "probe 0000:21:10.0 for "+tt.want {
				t.Errorf("the last step is %q, want a probe for %s", last, tt.want)
			}
			if first := got.StepsFor(plan.AtPrepared, slices.Concat(plan.Cleaning(), plan.GivingBack())...)[0].String(); first != "unbind 0000:21:10.0 from "+tt.want {
				t.Errorf("the first step back is %q, want an unbind from %s", first, tt.want)
			}
		})
	}
}

func TestWhatCannotBeAnEndpoint(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*device.Snapshot, *claim.Device)
		code   rule.Code
		says   string
	}{
		"InfiniBand": {
			change: func(s *device.Snapshot, _ *claim.Device) { f, _ := s.Function(nicVF); f.Class = 0x020700 },
			code:   rule.UnsupportedSetting, says: "not a virtual function of an Ethernet controller",
		},
		"without an address by its PF": {
			change: func(s *device.Snapshot, d *claim.Device) { withoutInterface(s); d.VFIO.AllowUnisolated = new(true) },
			code:   rule.UnsupportedSetting, says: "can't be set by its PF",
		},
		"by iommufd": {
			change: func(s *device.Snapshot, d *claim.Device) {
				s.Host.IOMMUFD, d.VFIO.Backend = true, v1alpha1.BackendIOMMUFD
			},
			code: rule.UnsupportedSetting, says: "Kata uses the IOMMU group",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture()
			req := asking(s, nicVF)
			askEndpoint(&req.Devices[0])
			tt.change(s, &req.Devices[0])
			_, err := plan.Make(req, node(s))
			refused, ok := errors.AsType[*rule.RefusedError](err)
			if !ok || !refused.Has(tt.code) || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("Make = %v, want a refusal %s that says %q", err, tt.code, tt.says)
			}
			ruletest.VerdictsAt(t, rule.AtPrepare, refused.Verdicts)
		})
	}
}

// pooled asks for a VF with addresses from a pool, of a node that has two.
func pooled(pool, ifname string) (*claim.Request, plan.Node) {
	s := fixture()
	req := asking(s, nicVF)
	req.UID, req.Namespace, req.Pods = "0f8fad5b", "team-a", []claim.Pod{{UID: "7c9e", Name: "train"}}
	req.Devices[0].VF = &v1alpha1.VFConfig{Network: &v1alpha1.GuestNetwork{AddressPool: pool, Interface: ifname}}
	n := node(s)
	for _, name := range []string{"tenants", "storage"} {
		n.AddressPools = append(n.AddressPools, v1alpha1.AddressPool{Name: name, CNIVersion: "1.0.0", IPAM: []byte(`{"type":"host-local"}`)})
	}
	return req, n
}

// TestPoolsAddressesAreAStep: the plan has all that its plugin is told.
func TestPoolsAddressesAreAStep(t *testing.T) {
	req, n := pooled("storage", "net1")
	got, err := plan.Make(req, n)
	if err != nil {
		t.Fatal(err)
	}
	container := "0f8fad5b-" + req.Devices[0].Name
	want := &plan.Lease{
		Pool: "storage", Plugin: "host-local", Config: []byte(`{"cniVersion":"1.0.0","ipam":{"type":"host-local"},"name":"kata-vfio-storage"}`),
		Container: container, Interface: "net1",
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=team-a;K8S_POD_NAME=train;K8S_POD_UID=7c9e;K8S_POD_INFRA_CONTAINER_ID=" + container,
	}
	if diff := cmp.Diff(want, got.Devices[0].Lease); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if last := got.Steps[len(got.Steps)-1]; last.String() != "take addresses for "+nicVF.String()+" from pool storage" {
		t.Errorf("the last step is %s, want the addresses taken from pool storage", last)
	}
	release := got.StepsFor(plan.AtPrepared, slices.Concat(plan.Cleaning(), plan.GivingBack())...)
	if last := release[len(release)-1]; last.String() != "give the addresses of "+nicVF.String()+" back to pool storage" {
		t.Errorf("the last step of the way back is %s, want the addresses given back to pool storage", last)
	}
}

// TestPlanVFOfClaimByHand: no pod, no name of an interface, and
// nothing that could be read as one more argument.
func TestPlanVFOfClaimByHand(t *testing.T) {
	req, n := pooled("tenants", "")
	req.Namespace, req.Pods[0].Name = "a;IP=192.0.2.1", "x=y"
	got, err := plan.Make(req, n)
	if err != nil {
		t.Fatal(err)
	}
	l := got.Devices[0].Lease
	if want := "IgnoreUnknown=1;K8S_POD_UID=7c9e;K8S_POD_INFRA_CONTAINER_ID=" + l.Container; l.Args != want || l.Interface != "vf" {
		t.Errorf("the arguments are %q of interface %q, want %q", l.Args, l.Interface, want)
	}
}

func TestPoolThatTheNodeHasNot(t *testing.T) {
	for pools, want := range map[int]string{2: "has tenants, storage", 0: "has no addressPools"} {
		req, n := pooled("tenant", "net1")
		n.AddressPools = n.AddressPools[:pools]
		_, err := plan.Make(req, n)
		refused, ok := errors.AsType[*rule.RefusedError](err)
		if !ok || !refused.Has(rule.NoAddressPool) || !strings.Contains(err.Error(), want) {
			t.Errorf("Make = %v, want a refusal that says %q", err, want)
		}
	}
}

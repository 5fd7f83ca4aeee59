package plan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
)

// bindSteps are the steps that bring a function from its driver to vfio-pci.
func bindSteps(a pci.Address, driver string) []plan.Step {
	return []plan.Step{
		{Operation: plan.Unbind, Address: a, DriverBefore: driver},
		{Operation: plan.Override, Address: a, Value: "vfio-pci"},
		{Operation: plan.Probe, Address: a, DriverAfter: "vfio-pci"},
	}
}

func TestMakeSteps(t *testing.T) {
	give := true
	tests := map[string]struct {
		ask    []pci.Address
		change func(*device.Snapshot, *claim.Request)
		want   []plan.Step
		roles  []plan.Role
	}{
		"a GPU alone": {
			ask:   []pci.Address{gpuAddr},
			want:  bindSteps(gpuAddr, "nvidia"),
			roles: []plan.Role{plan.RoleDevice},
		},
		"a GPU with its audio in the group": {
			ask:   []pci.Address{audioGPU},
			want:  append(bindSteps(audioGPU, "nvidia"), bindSteps(audio, "snd_hda_intel")...),
			roles: []plan.Role{plan.RoleDevice, plan.RoleGroupMate},
		},
		"a GPU with its USB in another group": {
			ask:   []pci.Address{splitGPU},
			want:  append(bindSteps(splitGPU, "nvidia"), bindSteps(splitUSB, "xhci_hcd")...),
			roles: []plan.Role{plan.RoleDevice, plan.RoleCompanion},
		},
		"two devices": {
			ask: []pci.Address{nicVF, gpuAddr},
			want: slices.Concat(bindSteps(nicVF, "igbvf"), bindSteps(gpuAddr, "nvidia"), []plan.Step{{
				Operation: plan.ConfigureVF, Address: nicVF, DriverBefore: "vfio-pci", DriverAfter: "vfio-pci",
				Value: "spoofCheck on, trust off, mac generated",
			}}),
			roles: []plan.Role{plan.RoleDevice, plan.RoleDevice},
		},
		"bound before": {
			ask:   []pci.Address{boundGPU},
			want:  []plan.Step{},
			roles: []plan.Role{plan.RoleDevice},
		},
		"without a driver": {
			ask:   []pci.Address{emptyGPU},
			want:  bindSteps(emptyGPU, "")[1:],
			roles: []plan.Role{plan.RoleDevice},
		},
		"an override found is kept for the way back": {
			ask: []pci.Address{gpuAddr},
			change: func(s *device.Snapshot, _ *claim.Request) {
				f, _ := s.Function(gpuAddr)
				f.DriverOverride = "nvidia"
			},
			want: []plan.Step{
				{Operation: plan.Unbind, Address: gpuAddr, DriverBefore: "nvidia"},
				{Operation: plan.Override, Address: gpuAddr, Value: "vfio-pci", Former: "nvidia"},
				{Operation: plan.Probe, Address: gpuAddr, DriverAfter: "vfio-pci"},
			},
			roles: []plan.Role{plan.RoleDevice},
		},
		"vfio-pci is not loaded": {
			ask:    []pci.Address{emptyGPU},
			change: func(s *device.Snapshot, _ *claim.Request) { s.Host.Drivers = []string{"nvidia"} },
			want:   append([]plan.Step{{Operation: plan.Load, Value: "vfio_pci"}}, bindSteps(emptyGPU, "")[1:]...),
			roles:  []plan.Role{plan.RoleDevice},
		},
		"the most specific VFIO driver": {
			ask: []pci.Address{variantGP},
			change: func(s *device.Snapshot, _ *claim.Request) {
				s.Host.VFIOAliases = []device.Alias{
					{Pattern: "vfio_pci:v*d*sv*sd*bc*sc*i*", Module: "vfio_pci"},
					{Pattern: "vfio_pci:v000010DEd00002342sv*sd*bc*sc*i*", Module: "nvgrace_gpu_vfio_pci"},
					{Pattern: "vfio_pci:v000010DEd*sv*sd*bc*sc*i*", Module: "other_vfio_pci"},
				}
				s.Host.Drivers = append(s.Host.Drivers, "nvgrace-gpu-vfio-pci")
			},
			want: []plan.Step{
				{Operation: plan.Unbind, Address: variantGP, DriverBefore: "nvidia"},
				{Operation: plan.Override, Address: variantGP, Value: "nvgrace-gpu-vfio-pci"},
				{Operation: plan.Probe, Address: variantGP, DriverAfter: "nvgrace-gpu-vfio-pci"},
			},
			roles: []plan.Role{plan.RoleDevice},
		},
		"no isolation, which the class allows": {
			ask: []pci.Address{gpuAddr},
			change: func(s *device.Snapshot, r *claim.Request) {
				s.Host.IRQChips = []string{"PCI-MSI"}
				r.Devices[0].VFIO.AllowUnisolated = &give
			},
			want:  bindSteps(gpuAddr, "nvidia"),
			roles: []plan.Role{plan.RoleDevice},
		},
		"no reset, which the class allows": {
			ask:    []pci.Address{noReset},
			change: func(_ *device.Snapshot, r *claim.Request) { r.Devices[0].VFIO.Reset = v1alpha1.ResetSkip },
			want:   bindSteps(noReset, "nvidia"),
			roles:  []plan.Role{plan.RoleDevice},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := fixture()
			req := asking(s, tt.ask...)
			if tt.change != nil {
				tt.change(s, req)
			}
			got, err := plan.Make(req, node(s))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.Steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			var roles []plan.Role
			for _, fn := range got.Functions {
				roles = append(roles, fn.Role)
			}
			if diff := cmp.Diff(tt.roles, roles); diff != "" {
				t.Errorf("roles (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMakeRefuses(t *testing.T) {
	tests := map[string]struct {
		ask    pci.Address
		change func(*device.Snapshot, *claim.Request, *plan.Node)
		want   rule.Code
		// names are what the message must tell: culprit, driver, way out.
		names []string
	}{
		"absent": {
			ask: pci.Address{Bus: 0xee}, want: rule.Absent, names: []string{"0000:ee:00.0", "a new one is allocated"},
		},
		"another type by now": {
			ask: gpuAddr, want: rule.WrongType,
			change: func(_ *device.Snapshot, r *claim.Request, _ *plan.Node) { r.Devices[0].Name = "vf-0000-3b-00-0" },
			names:  []string{"gpu", "10de:2330"},
		},
		"a PF without config": {
			ask: nic, want: rule.Forbidden, names: []string{"0000:21:00.0", "igb", "VFs"},
		},
		"not ours": {
			ask: audio, want: rule.NotOurs, names: []string{"0000:62:00.1", "snd_hda_intel", "node config"},
		},
		"a PF that stays on its host driver": {
			ask: gpuAddr, want: rule.PFStaysOnHost, names: []string{"0000:3b:00.0", "gim", "claim one of its VFs"},
			change: func(s *device.Snapshot, _ *claim.Request, n *plan.Node) {
				f, _ := s.Function(gpuAddr)
				f.Driver = "gim"
				n.Selection = nodeconfig.Select(nil, s)
			},
		},
		"a slice of a GPU that no rule names": {
			ask: nicVF, want: rule.GPUNotSliced, names: []string{"0000:21:10.0", "slice of GPU 0000:21:00.0", "gpuSlices"},
			change: func(s *device.Snapshot, r *claim.Request, n *plan.Node) {
				f, _ := s.Function(nicVF)
				f.Class, f.Type = 0x030200, device.GPUVF
				r.Devices[0].Name = f.Name()
				n.Selection = nodeconfig.Select(&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{{Match: v1alpha1.DeviceMatch{Types: []string{"gpuvf"}}}}}, s)
			},
		},
		"the console": {
			ask: hostVGA, want: rule.Forbidden, names: []string{"0000:04:00.0", "console"},
		},
		"a bridge in the group": {
			ask: bridged, want: rule.GroupNotViable, names: []string{"0000:7f:00.0", "shpchp", "unbind"},
		},
		"a busy group mate": {
			ask: audioGPU, want: rule.GroupNotViable, names: []string{"0000:62:00.1", "snd_hda_intel", "/data"},
			change: func(s *device.Snapshot, _ *claim.Request, _ *plan.Node) {
				f, _ := s.Function(audio)
				f.Uses = []device.Use{{Kind: device.UseMount, Name: "nvme0n1", Detail: "/data"}}
			},
		},
		"a busy companion in another group": {
			ask: splitGPU, want: rule.Forbidden, names: []string{"0000:70:00.1", "xhci_hcd", "/data"},
			change: func(s *device.Snapshot, _ *claim.Request, n *plan.Node) {
				f, _ := s.Function(splitUSB)
				f.Uses = []device.Use{{Kind: device.UseMount, Name: "sda1", Detail: "/data"}}
				n.Selection = nodeconfig.Select(nil, s)
			},
		},
		"held by another claim": {
			ask: gpuAddr, want: rule.Held, names: []string{"uid-2 of another namespace", "status"},
			change: func(_ *device.Snapshot, _ *claim.Request, n *plan.Node) {
				n.Owners[gpuAddr] = plan.Owner{Claim: plan.Ref{UID: "uid-2", Namespace: "tenant-b", Name: "other"}}
			},
		},
		"a group mate held by another claim": {
			ask: audioGPU, want: rule.Held, names: []string{"0000:62:00.1", "uid-2"},
			change: func(_ *device.Snapshot, _ *claim.Request, n *plan.Node) {
				n.Owners[audio] = plan.Owner{Claim: plan.Ref{UID: "uid-2"}}
			},
		},
		"quarantined": {
			ask: gpuAddr, want: rule.Quarantined, names: []string{"reset timed out", "unprepare uid-2"},
			change: func(_ *device.Snapshot, _ *claim.Request, n *plan.Node) {
				n.Owners[gpuAddr] = plan.Owner{Claim: plan.Ref{UID: "uid-2"}, Quarantined: "reset timed out"}
			},
		},
		"a damaged record may own it": {
			ask: boundGPU, want: rule.DamagedRecord, names: []string{"vfio-pci", "uid-9.json"},
			change: func(_ *device.Snapshot, _ *claim.Request, n *plan.Node) { n.Damaged = "uid-9.json" },
		},
		"a damaged record may have borrowed it": {
			ask: boundGPU, want: rule.DamagedRecord, names: []string{"vfio-pci", "uid-9.json"},
			change: func(_ *device.Snapshot, _ *claim.Request, n *plan.Node) {
				n.Owners[boundGPU] = plan.Owner{Claim: plan.Ref{UID: "standing"}, Bound: true}
				n.Damaged = "uid-9.json"
			},
		},
		"an operation hangs on it": {
			ask: gpuAddr, want: rule.Locked, names: []string{"0000:3b:00.0", "hangs"},
			change: func(s *device.Snapshot, _ *claim.Request, _ *plan.Node) {
				f, _ := s.Function(gpuAddr)
				f.Locked = true
			},
		},
		"a mate that is a PF with VFs": {
			ask: audioGPU, want: rule.PFBusy, names: []string{"0000:62:00.1", "a PF with 1 VF enabled", "if no claim has a VF"},
			change: func(s *device.Snapshot, _ *claim.Request, n *plan.Node) {
				f, _ := s.Function(audio)
				f.Class, f.Type, f.PF = 0x020000, device.PFType, &device.PF{TotalVFs: 4, NumVFs: 1}
				n.Selection = nodeconfig.Select(nil, s)
			},
		},
		"an operation hangs on a mate": {
			ask: audioGPU, want: rule.Locked, names: []string{"0000:62:00.1", "hangs"},
			change: func(s *device.Snapshot, _ *claim.Request, _ *plan.Node) {
				f, _ := s.Function(audio)
				f.Locked = true
			},
		},
		"a quarantined mate": {
			ask: audioGPU, want: rule.Quarantined, names: []string{"0000:62:00.1", "unprepare uid-2"},
			change: func(_ *device.Snapshot, _ *claim.Request, n *plan.Node) {
				n.Owners[audio] = plan.Owner{Claim: plan.Ref{UID: "uid-2"}, Quarantined: "reset timed out"}
			},
		},
		"a damaged record may own a mate": {
			ask: audioGPU, want: rule.DamagedRecord, names: []string{"0000:62:00.1", "uid-9.json"},
			change: func(s *device.Snapshot, _ *claim.Request, n *plan.Node) {
				f, _ := s.Function(audio)
				f.Driver, n.Damaged = "vfio-pci", "uid-9.json"
			},
		},
		"a mate that its driver does not let go of": {
			ask: audioGPU, want: rule.Forbidden, names: []string{"0000:62:00.1", "modeset"},
			change: func(s *device.Snapshot, _ *claim.Request, _ *plan.Node) {
				f, _ := s.Function(audio)
				f.Class, f.Driver, s.Host.NVIDIAModeset = 0x030000, "nvidia", true
			},
		},
		"a companion for the VM that is not isolated": {
			ask: splitGPU, want: rule.NotIsolated, names: []string{"0000:70:00.1", "all ones"},
			change: func(s *device.Snapshot, r *claim.Request, _ *plan.Node) {
				f, _ := s.Function(splitUSB)
				f.ConfigDead, s.Host.IOMMUFD = true, true
				r.Devices[0].VFIO.Companions = v1alpha1.CompanionsGive
			},
		},
		"a mate that is the host's disk": {
			ask: audioGPU, want: rule.GroupMateNotSelected, names: []string{"0000:62:00.1", "must be assigned with 0000:62:00.0", `addresses: ["0000:62:00.1"]`},
			change: func(s *device.Snapshot, _ *claim.Request, n *plan.Node) { become(s, n, 0x010802) },
		},
		"a mate that is the host's NIC": {
			ask: audioGPU, want: rule.GroupMateNotSelected, names: []string{"0000:62:00.1"},
			change: func(s *device.Snapshot, _ *claim.Request, n *plan.Node) { become(s, n, 0x020000) },
		},
		"a companion without a group": {
			ask: splitGPU, want: rule.NotIsolated, names: []string{"0000:70:00.1", "no IOMMU group"},
			change: func(s *device.Snapshot, _ *claim.Request, _ *plan.Node) {
				f, _ := s.Function(splitUSB)
				f.Group = nil
			},
		},
		"a member of the group that is no PCI function": {
			ask: gpuAddr, want: rule.GroupNotViable, names: []string{"fe800000.usb", "not a PCI function"},
			change: func(s *device.Snapshot, _ *claim.Request, _ *plan.Node) {
				g, _ := s.Group(10)
				g.Others = []string{"fe800000.usb"}
			},
		},
		"a link that is down": {
			ask: gpuAddr, want: rule.LinkLost, names: []string{"0000:3b:00.0", "x16"},
			change: func(s *device.Snapshot, _ *claim.Request, _ *plan.Node) {
				f, _ := s.Function(gpuAddr)
				f.Link = &device.Link{MaxWidth: 16}
			},
		},
		"the link of its PF is down": {
			ask: nicVF, want: rule.LinkLost, names: []string{"0000:21:00.0"},
			change: func(s *device.Snapshot, _ *claim.Request, _ *plan.Node) {
				f, _ := s.Function(nic)
				f.Link = &device.Link{MaxWidth: 8}
			},
		},
		"fatal errors": {
			ask: gpuAddr, want: rule.FatalErrors, names: []string{"0000:3b:00.0", "aer_dev_fatal"},
			change: func(_ *device.Snapshot, _ *claim.Request, n *plan.Node) {
				n.FatalErrors = map[pci.Address]bool{gpuAddr: true}
			},
		},
		"a stage that it waits for": {
			ask: gpuAddr, want: rule.NotSanitized, names: []string{"0000:3b:00.0 waits for its sanitizing stage", "kata-vfio-controller"},
			change: func(_ *device.Snapshot, _ *claim.Request, n *plan.Node) {
				n.Sanitizing = map[pci.Address]plan.Sanitizing{gpuAddr: {Code: rule.NotSanitized, Profile: "memory", Text: "waits for its sanitizing stage"}}
			},
		},
		"a stage that failed, also for the claim that had it": {
			ask: gpuAddr, want: rule.SanitizeFailed, names: []string{"was not proven clean", "quarantine explain 0000:3b:00.0"},
			change: func(_ *device.Snapshot, r *claim.Request, n *plan.Node) {
				n.Sanitizing = map[pci.Address]plan.Sanitizing{gpuAddr: {Code: rule.SanitizeFailed, Text: "was not proven clean", Claim: r.UID}}
			},
		},
		"a stage that the claim requires": {
			ask: gpuAddr, want: rule.NotSanitized, names: []string{"the claim requires a sanitized device", "when: BeforeClaim"},
			change: func(_ *device.Snapshot, r *claim.Request, _ *plan.Node) {
				r.Devices[0].VFIO.Sanitized = v1alpha1.SanitizedRequired
			},
		},
		"a profile that does not exist": {
			ask: gpuAddr, want: rule.SanitizerUnknown, names: []string{"0000:3b:00.0", "devices[].sanitize.profile"},
			change: func(_ *device.Snapshot, _ *claim.Request, n *plan.Node) {
				n.Sanitizing = map[pci.Address]plan.Sanitizing{gpuAddr: {Code: rule.SanitizerUnknown, Text: "needs a profile"}}
			},
		},
		"a stage's class in a tenant's namespace": {
			ask: gpuAddr, want: rule.NotAStage, names: []string{"stage.kata-vfio.dev", "namespace stages"},
			change: func(_ *device.Snapshot, r *claim.Request, n *plan.Node) {
				n.Stages = plan.Stages{Namespace: "stages", DeviceClass: "stage.kata-vfio.dev"}
				r.Devices[0].Class = "stage.kata-vfio.dev"
			},
		},
		"a stage without need": {
			ask: gpuAddr, want: rule.NothingToSanitize, names: []string{"0000:3b:00.0"},
			change: func(_ *device.Snapshot, r *claim.Request, n *plan.Node) {
				n.Stages = plan.Stages{Namespace: r.Namespace, DeviceClass: "stage.kata-vfio.dev"}
				r.Devices[0].Class = "stage.kata-vfio.dev"
			},
		},
		"its PF is with a tenant": {
			ask: nicVF, want: rule.Forbidden, names: []string{"0000:21:00.0", "vfio-pci"},
			change: func(s *device.Snapshot, _ *claim.Request, n *plan.Node) {
				f, _ := s.Function(nic)
				f.Driver = "vfio-pci"
				n.Selection = nodeconfig.Select(nil, s)
			},
		},
		"its PF is with a tenant since the selection was made": {
			ask: nicVF, want: rule.PFBusy, names: []string{"0000:21:00.0", "vfio-pci", "back to its driver"},
			change: func(s *device.Snapshot, _ *claim.Request, _ *plan.Node) {
				f, _ := s.Function(nic)
				f.Driver = "vfio-pci"
			},
		},
		"the PF of a mate is with a tenant": {
			ask: audioGPU, want: rule.PFBusy, names: []string{"0000:62:00.1 is a VF of 0000:21:00.0"},
			change: func(s *device.Snapshot, _ *claim.Request, _ *plan.Node) {
				f, _ := s.Function(nic)
				f.Driver = "vfio-pci"
				mate, _ := s.Function(audio)
				mate.VF = &device.VF{PF: nic}
			},
		},
		"no interrupt remapping": {
			ask: gpuAddr, want: rule.NotIsolated, names: []string{"remapping"},
			change: func(s *device.Snapshot, _ *claim.Request, _ *plan.Node) { s.Host.IRQChips = []string{"PCI-MSI"} },
		},
		"no group, whatever the class allows": {
			ask: looseGPU, want: rule.NotIsolated, names: []string{"0000:94:00.0", "IOMMU"},
			change: func(_ *device.Snapshot, r *claim.Request, _ *plan.Node) {
				allow := true
				r.Devices[0].VFIO.AllowUnisolated = &allow
			},
		},
		"dead": {
			ask: deadGPU, want: rule.ConfigSpaceDead, names: []string{"0000:91:00.0", "all ones"},
		},
		"no reset": {
			ask: noReset, want: rule.NoReset, names: []string{"0000:90:00.0", "reset: Skip"},
		},
		"iommufd without the kernel's": {
			ask: gpuAddr, want: rule.BackendUnavailable, names: []string{"/dev/iommu", "backend: Auto"},
			change: func(_ *device.Snapshot, r *claim.Request, _ *plan.Node) {
				r.Devices[0].VFIO.Backend = v1alpha1.BackendIOMMUFD
			},
		},
		"companions through a group's node": {
			ask: splitGPU, want: rule.BackendUnavailable, names: []string{"Withhold"},
			change: func(_ *device.Snapshot, r *claim.Request, _ *plan.Node) {
				r.Devices[0].VFIO.Companions = v1alpha1.CompanionsGive
			},
		},
		"admin access": {
			ask: gpuAddr, want: rule.AdminAccess, names: []string{"adminAccess"},
			change: func(_ *device.Snapshot, r *claim.Request, _ *plan.Node) { r.Devices[0].AdminAccess = true },
		},
		"VF settings without the PF's interface": {
			ask: nicVF, want: rule.UnsupportedSetting, names: []string{"0000:21:00.0", "mac, vlan", "network namespace"},
			change: func(s *device.Snapshot, r *claim.Request, _ *plan.Node) {
				withoutInterface(s)
				r.Devices[0].VF = &v1alpha1.VFConfig{VLAN: new(100), MAC: "02:00:00:00:00:01"}
			},
		},
		"a rate of an InfiniBand VF": {
			ask: nicVF, want: rule.UnsupportedSetting, names: []string{"InfiniBand", "can't set maxTxRate"},
			change: func(s *device.Snapshot, r *claim.Request, _ *plan.Node) {
				f, _ := s.Function(nicVF)
				f.Class = pci.ClassInfiniBand << 8
				r.Devices[0].VF = &v1alpha1.VFConfig{MaxTxRate: new(1000), LinkState: v1alpha1.LinkAuto}
			},
		},
		"a VF that nobody can guard": {
			ask: nicVF, want: rule.UnsupportedSetting, names: []string{"0000:21:00.0", "spoof check"},
			change: func(s *device.Snapshot, _ *claim.Request, _ *plan.Node) { withoutInterface(s) },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := fixture()
			req, n := asking(s, tt.ask), node(s)
			if tt.change != nil {
				tt.change(s, req, &n)
			}
			_, err := plan.Make(req, n)
			var refused *rule.RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("Make = %v; want a RefusedError", err)
			}
			ruletest.VerdictsAt(t, rule.AtPrepare, refused.Verdicts)
			if !refused.Has(tt.want) {
				t.Errorf("refused with %+v; want %s", refused.Verdicts, tt.want)
			}
			for _, name := range tt.names {
				if !strings.Contains(err.Error(), name) {
					t.Errorf("Make = %q, want it to say %q", err, name)
				}
			}
		})
	}
}

// become turns the GPU's mate into a function of another class.
func become(s *device.Snapshot, n *plan.Node, class pci.Class) {
	f, _ := s.Function(audio)
	f.Class, f.Type = class, device.Classify(class, "", false, false)
	n.Selection = nodeconfig.Select(nil, s)
}

// TestMateThatTheConfigNames goes with the device, and one that a rule excludes does not.
func TestMateThatTheConfigNames(t *testing.T) {
	s := fixture()
	n := node(s)
	become(s, &n, 0x010802)
	gpus := v1alpha1.DeviceRule{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}}}
	mate := v1alpha1.DeviceRule{Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{audio}}}
	f, _ := s.Function(audio)
	f.ResetMethods = []string{"flr"}
	n.Selection = nodeconfig.Select(&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{gpus, mate}}, s)
	if _, err := plan.Make(asking(s, audioGPU), n); err != nil {
		t.Errorf("with a rule for the mate: Make = %v, want nil", err)
	}
	mate.Exclude, f.Class = true, 0x088000
	n.Selection = nodeconfig.Select(&v1alpha1.NodeConfig{Devices: []v1alpha1.DeviceRule{mate, gpus}}, s)
	if _, err := plan.Make(asking(s, audioGPU), n); err == nil || !strings.Contains(err.Error(), "excludes it") {
		t.Errorf("excluded: %v, want a refusal that names the rule", err)
	}
}

// TestRefusalDoesNotNameOthersClaims: it is shown to the tenant, to which the names
// in another namespace tell what others run.
func TestRefusalDoesNotNameOthersClaims(t *testing.T) {
	for name, h := range map[string]plan.Owner{
		"held":        {},
		"quarantined": {Quarantined: "the reset failed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture()
			n := node(s)
			h.Claim = plan.Ref{UID: "uid-2", Namespace: "tenant-b", Name: "payroll"}
			n.Owners[gpuAddr] = h
			_, err := plan.Make(asking(s, gpuAddr), n)
			if err == nil || !strings.Contains(err.Error(), "uid-2") {
				t.Fatalf("Make = %v; want a refusal that names uid-2", err)
			}
			for _, secret := range []string{"tenant-b", "payroll"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("Make = %q, want it without %q", err, secret)
				}
			}
		})
	}
}

// TestMakeRefusesAllAtOnce checks that each device's reason is told, not the
// first device's alone.
func TestMakeRefusesAllAtOnce(t *testing.T) {
	s := fixture()
	_, err := plan.Make(asking(s, noReset, gpuAddr, hostVGA), node(s))
	var refused *rule.RefusedError
	if !errors.As(err, &refused) || len(refused.Verdicts) != 2 {
		t.Fatalf("Make = %v; want two refusals", err)
	}
}

// TestMakeOwnClaimIsNoObstacle lets a claim plan again what it holds.
func TestMakeOwnClaimIsNoObstacle(t *testing.T) {
	s := fixture()
	n := node(s)
	n.Owners[gpuAddr] = plan.Owner{Claim: plan.Ref{UID: "uid-1"}}
	n.Owners[boundGPU] = plan.Owner{Claim: plan.Ref{UID: "standing"}, Bound: true}
	if _, err := plan.Make(asking(s, gpuAddr, boundGPU), n); err != nil {
		t.Errorf("Make = %v; want a plan", err)
	}
}

func TestMakeSameInputSameBytes(t *testing.T) {
	var first []byte
	for range 20 {
		s := fixture()
		p, err := plan.Make(asking(s, audioGPU, splitGPU, nicVF, gpuAddr), node(s))
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = data
		}
		if !bytes.Equal(first, data) {
			t.Fatalf("the same input gives another plan: got\n%s\nwant\n%s", data, first)
		}
	}
}

func TestResetsCoverWhatTheVMReaches(t *testing.T) {
	s := fixture()
	p, err := plan.Make(asking(s, audioGPU), node(s))
	if err != nil {
		t.Fatal(err)
	}
	want := []isolation.Reset{{Method: isolation.HotReset, Set: []pci.Address{audioGPU, audio}}}
	if diff := cmp.Diff(want, p.Resets()); diff != "" {
		t.Errorf("the audio function has no reset of its own (-want +got):\n%s", diff)
	}
}

// TestCompanionWithAnotherDeviceNumber: the ninth function of a card (ARI) goes with its GPU, and the plan names the card.
func TestCompanionWithAnotherDeviceNumber(t *testing.T) {
	ninth := pci.Address{Bus: splitGPU.Bus, Device: 1}
	s := fixture()
	s = assemble(append(s.Functions, on(ninth, 0x0c0330, "xhci_hcd", 22)))
	p, err := plan.Make(asking(s, splitGPU), node(s))
	if err != nil {
		t.Fatal(err)
	}
	fn, ok := p.Function(ninth)
	if !ok || fn.Role != plan.RoleCompanion || fn.Card() != splitGPU {
		t.Errorf("%+v, %t; want a companion on card %s", fn, ok, splitGPU)
	}
	if fn, _ := p.Function(splitUSB); fn.FirstFunction != nil || fn.Card() != splitGPU {
		t.Errorf("%+v, want its card by its own address", fn)
	}
}

func TestGiveCompanions(t *testing.T) {
	s := fixture()
	s.Host.IOMMUFD = true
	req := asking(s, splitGPU)
	p, err := plan.Make(req, node(s))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]pci.Address{splitGPU}, p.Devices[0].Give); diff != "" {
		t.Errorf("withheld (-want +got):\n%s", diff)
	}
	req.Devices[0].VFIO.Companions = v1alpha1.CompanionsGive
	if p, err = plan.Make(req, node(s)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]pci.Address{splitGPU, splitUSB}, p.Devices[0].Give); diff != "" {
		t.Errorf("given (-want +got):\n%s", diff)
	}
}

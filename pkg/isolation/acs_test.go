package isolation_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func TestJudgePeerToPeer(t *testing.T) {
	peer := func(culprit string) []string { return []string{"PeerToPeerPossible " + culprit} }
	unproven := func(culprit string) []string { return []string{"ACSUnproven " + culprit} }
	runJudgeCases(t, []judgeCase{
		{name: "all switches on", node: node(below(acs(fullACS, fullACS))...), of: gpuAt},
		{name: "translation blocking on top", node: node(below(acs(0x7f, fullACS|pci.ACSTranslationBlocking))...), of: gpuAt},
		{name: "switch absent from the capability counts as on", node: node(below(acs(pci.ACSSourceValidation, pci.ACSSourceValidation))...), of: gpuAt},
		{name: "empty capability counts as all on", node: node(below(acs(0, 0))...), of: gpuAt},
		{name: "all switches cleared", node: node(below(acs(fullACS, 0))...), of: gpuAt, reasons: peer(rp)},
		{name: "request redirect cleared", node: node(below(acs(fullACS, fullACS&^pci.ACSRequestRedirect))...), of: gpuAt, reasons: peer(rp)},
		{name: "upstream forwarding cleared", node: node(below(acs(fullACS, fullACS&^pci.ACSUpstreamForwarding))...), of: gpuAt, reasons: peer(rp)},
		{name: "no capability, but the kernel vouches", node: node(below(noACS)...), of: gpuAt, notes: unproven(rp)},
		{
			name:    "no capability and no group",
			node:    node(port(rp, -1, noACS), gpu(gpuAt, 2, under(rp))),
			of:      gpuAt,
			reasons: peer(rp),
		},
		{name: "no group but switches on", node: node(port(rp, -1), gpu(gpuAt, 2, under(rp))), of: gpuAt},
		{name: "capabilities not readable", node: node(below(truncated)...), of: gpuAt, notes: []string{"ACSUnreadable " + rp}},
		{name: "header only", node: node(below(truncated, conventional)...), of: gpuAt, notes: []string{"ACSUnreadable " + rp}},
		{name: "PCH port with odd registers", node: node(below(ids(0x8086, 0xa167), acs(fullACS, 0))...), of: gpuAt, notes: []string{"ACSUnreadable " + rp}},
		{name: "other Intel port with the same registers", node: node(below(ids(0x8086, 0x2030), acs(fullACS, 0))...), of: gpuAt, reasons: peer(rp)},
		{
			name:  "port inside the group promises nothing",
			node:  node(port(rp, 2, noACS), gpu(gpuAt, 2, under(rp))),
			of:    gpuAt,
			notes: []string{"GroupMates"},
		},
		{name: "port that the scan missed", node: node(gpu(gpuAt, 2, under(rp))), of: gpuAt},
	})
}

func TestJudgePeerToPeerBelowSwitch(t *testing.T) {
	cleared := acs(fullACS, pci.ACSSourceValidation)
	one := func(edits ...edit) []device.Function {
		return []device.Function{
			port(rp, 1),
			switchPort("0000:21:00.0", 2, pci.UpstreamPort, under(rp), noACS),
			switchPort("0000:22:00.0", 2, pci.DownstreamPort, under(rp, "0000:21:00.0"), noACS),
			switchPort("0000:22:01.0", 2, pci.DownstreamPort, under(rp, "0000:21:00.0"), noACS),
			gpu("0000:23:00.0", 2, under(rp, "0000:21:00.0", "0000:22:00.0")),
			gpu("0000:24:00.0", 2, append(edits, under(rp, "0000:21:00.0", "0000:22:01.0"))...),
		}
	}
	// What Linux 6.12 makes of a switch without ACS: each port and its device.
	split := func() []device.Function {
		return []device.Function{
			port(rp, 1),
			switchPort("0000:21:00.0", 2, pci.UpstreamPort, under(rp), noACS),
			switchPort("0000:22:00.0", 3, pci.DownstreamPort, under(rp, "0000:21:00.0"), noACS),
			switchPort("0000:22:01.0", 4, pci.DownstreamPort, under(rp, "0000:21:00.0"), noACS),
			gpu("0000:23:00.0", 3, under(rp, "0000:21:00.0", "0000:22:00.0")),
			gpu("0000:24:00.0", 4, under(rp, "0000:21:00.0", "0000:22:01.0")),
		}
	}
	runJudgeCases(t, []judgeCase{
		{
			name: "switch without ACS, a group for each port", node: node(split()...), of: "0000:23:00.0",
			reasons: []string{"PeerToPeerPossible 0000:22:00.0"}, notes: []string{"GroupMates"},
		},
		{name: "switch without ACS, nobody else below", node: node(split()[:5]...), of: "0000:23:00.0", notes: []string{"GroupMates"}},
		{name: "switch with ACS", node: node(switched()...), of: "0000:23:00.0"},
		{name: "cleared on my own port", node: node(switched(cleared)...), of: "0000:23:00.0", reasons: []string{"PeerToPeerPossible 0000:22:00.0"}},
		{name: "cleared on a sibling's port", node: node(switched(cleared)...), of: "0000:24:00.0"},
		{name: "switch without ACS makes one group", node: node(one()...), of: "0000:23:00.0", notes: []string{"GroupMates"}},
		{
			name: "busy sibling below a switch without ACS", node: node(one(busy)...), of: "0000:23:00.0",
			reasons: []string{"GroupNotViable 0000:24:00.0"}, notes: []string{"GroupMates"},
		},
		{
			name: "multifunction upstream port without ACS",
			node: node(append(switched(),
				function("0000:21:00.1", 0x088000, 8, under(rp), resets("flr")))...),
			of: "0000:23:00.0", notes: []string{"ACSUnproven 0000:21:00.0"},
		},
		{
			name: "conventional bridge that the kernel keeps apart",
			node: node(port(rp, 1), port("0000:21:00.0", 2, under(rp), express(pci.PCIeToPCI)), gpu("0000:22:00.0", 3, under(rp, "0000:21:00.0"), conventional)),
			of:   "0000:22:00.0", notes: []string{"ACSUnproven 0000:21:00.0"},
		},
		{
			name: "both ports cleared, nearest first",
			node: node(
				port(rp, 1, acs(fullACS, 0)),
				switchPort("0000:21:00.0", 2, pci.UpstreamPort, under(rp), noACS),
				switchPort("0000:22:00.0", 3, pci.DownstreamPort, under(rp, "0000:21:00.0"), acs(fullACS, 0)),
				gpu("0000:23:00.0", 5, under(rp, "0000:21:00.0", "0000:22:00.0")),
			),
			of:      "0000:23:00.0",
			reasons: []string{"PeerToPeerPossible 0000:22:00.0", "PeerToPeerPossible " + rp},
		},
	})
}

func TestJudgePeerToPeerWithinDevice(t *testing.T) {
	dual := func(second int, edits ...edit) *device.Snapshot {
		return node(port(rp, 1),
			nic("0000:21:00.0", 2, append(edits, under(rp))...),
			nic("0000:21:00.1", second, under(rp), acs(fullACS, fullACS)))
	}
	const first = "0000:21:00.0"
	runJudgeCases(t, []judgeCase{
		{name: "two ports with ACS", node: dual(3, acs(0x0c, 0x0c)), of: first},
		{name: "switches off", node: dual(3, acs(0x0c, 0)), of: first, reasons: []string{"PeerToPeerPossible"}},
		{name: "no ACS, kept apart by a quirk", node: dual(3), of: first, notes: []string{"ACSUnproven " + first}},
		{name: "not readable", node: dual(3, truncated), of: first, notes: []string{"ACSUnreadable " + first}},
		{name: "one group for both", node: dual(2), of: first, notes: []string{"GroupMates"}},
		{
			name: "VFs don't make a device multifunction",
			node: node(port(rp, 1),
				nic("0000:21:00.0", 2, under(rp), pfOf("0000:21:00.2")),
				nic("0000:21:00.2", 3, under(rp), vfOf21)),
			of: first,
		},
		{
			name: "a VF in another group does not split a device",
			node: node(port(rp, 1),
				nic("0000:21:00.0", 2, under(rp), pfOf("0000:21:00.2")), nic("0000:21:00.1", 2, under(rp)),
				nic("0000:21:00.2", 3, under(rp), vfOf21)),
			of: first, notes: []string{"GroupMates"},
		},
		{
			name: "nor is a VF part of one",
			node: node(port(rp, 1),
				nic("0000:21:00.0", 2, under(rp), acs(0x0c, 0x0c)), nic("0000:21:00.1", 4, under(rp), acs(0x0c, 0x0c)),
				nic("0000:21:00.2", 3, under(rp), vfOf21)),
			of: "0000:21:00.2",
		},
		{
			name: "conventional functions of one device, kept apart by a quirk",
			node: node(
				function("0000:00:14.0", 0x0c0330, 5, conventional, resets("flr")),
				function("0000:00:14.2", 0x050000, 6, conventional, resets("flr"))),
			of: "0000:00:14.0", notes: []string{"ACSUnproven 0000:00:14.0"},
		},
	})
}

func TestJudgeTranslation(t *testing.T) {
	direct := acs(0x5f, fullACS|pci.ACSDirectTranslated)
	withATS := func(portEdits ...edit) *device.Snapshot {
		return node(port(rp, 1, portEdits...), gpu(gpuAt, 2, under(rp), ats(true)))
	}
	runJudgeCases(t, []judgeCase{
		{name: "ATS off", node: node(plainGPU(ats(false))...), of: gpuAt},
		{name: "ATS on", node: withATS(), of: gpuAt, notes: []string{"ATSEnabled"}},
		{name: "ATS on below direct translated", node: withATS(direct), of: gpuAt, notes: []string{"ATSEnabled " + rp}},
		{name: "direct translated without ATS", node: node(below(direct)...), of: gpuAt},
	})
	s := withATS(direct)
	f, _ := s.Function(addr(t, gpuAt))
	if got := isolation.Judge(s, f).Notes[0].Severity; got != rule.High {
		t.Errorf("ATS below DirectTrans is %s, want %s", got, rule.High)
	}
}

func TestPeerToPeerFixRestoresTheRegister(t *testing.T) {
	s := node(below(acs(0x5f, pci.ACSSourceValidation|pci.ACSDirectTranslated))...)
	f, _ := s.Function(addr(t, gpuAt))
	v := isolation.Judge(s, f)
	if len(v.Reasons) != 1 {
		t.Fatalf("reasons are %v, want one", summary(v.Reasons))
	}
	r := v.Reasons[0]
	for _, want := range []string{rp, gpuAt, "ReqRedir, CmpltRedir, UpstreamFwd"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("text lacks %q: %s", want, r.Text)
		}
	}
	if want := "setpci -s " + rp + " ECAP_ACS+6.w=005d"; !strings.Contains(r.Fix, want) {
		t.Errorf("fix lacks %q: %s", want, r.Fix)
	}
	if want := (rule.Evidence{Path: "/sys/bus/pci/devices/" + rp + "/config", Value: "ACS capability 0x005f, control 0x0041"}); r.Evidence[0] != want {
		t.Errorf("evidence = %+v, want %+v", r.Evidence[0], want)
	}
}

// The kernel arguments of a fix do what it says: config_acs switches on what is missing,
// disable_acs_redir is to go.
func TestSeparateNamesTheKernelArguments(t *testing.T) {
	port := device.Function{Address: pci.Address{Device: 1}, Class: 0x060400, Capabilities: pci.Capabilities{
		Express: &pci.Express{Type: pci.RootPort}, ACS: &pci.ACS{Capability: 0x1d, Control: 0x01},
	}}
	vf := device.Function{Address: pci.Address{Bus: 1}, Class: 0x020000, Upstream: []pci.Address{port.Address}}
	for name, tt := range map[string]struct {
		acs  *pci.ACS
		want []string
	}{
		"redirection is off": {&pci.ACS{Capability: 0x1d, Control: 0x01}, []string{"take `pci=disable_acs_redir=` off", "`pci=config_acs=xx111xx@0000:00:01.0`"}},
		"all of it is off":   {&pci.ACS{Capability: 0x1d}, []string{"`pci=config_acs=xx111x1@0000:00:01.0`"}},
		"no ACS":             {nil, []string{"move 0000:01:00.0 to a slot whose ports have ACS"}},
	} {
		t.Run(name, func(t *testing.T) {
			port.Capabilities.ACS = tt.acs
			fix := isolation.Separate(&device.Snapshot{Functions: []device.Function{port, vf}}, &vf)
			for _, word := range tt.want {
				if !strings.Contains(fix, word) {
					t.Errorf("Separate = %q, want it to say %q", fix, word)
				}
			}
			if value, ok := strings.CutPrefix(fix[max(0, strings.Index(fix, "pci=config_acs=")):], "pci="); ok {
				value, _, _ = strings.Cut(value, "`")
				if why := isolation.WeakensACS(value); why != "" {
					t.Errorf("WeakensACS(%q) = %q, want \"\"", value, why)
				}
			}
		})
	}
}

package isolation_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const (
	rp    = "0000:20:01.0"
	gpuAt = "0000:21:00.0"
)

// plainGPU is a GPU below a root port, each in a group of its own.
func plainGPU(edits ...edit) []device.Function {
	return []device.Function{port(rp, 1), gpu(gpuAt, 2, slices.Concat([]edit{under(rp)}, edits)...)}
}

// below returns a GPU below a root port that was changed.
func below(edits ...edit) []device.Function {
	return []device.Function{port(rp, 1, edits...), gpu(gpuAt, 2, under(rp))}
}

// switched returns two GPUs below one switch, all in groups of their own. The
// edits go to the downstream port of the first.
func switched(edits ...edit) []device.Function {
	return []device.Function{
		port(rp, 1),
		switchPort("0000:21:00.0", 2, pci.UpstreamPort, under(rp), noACS),
		switchPort("0000:22:00.0", 3, pci.DownstreamPort, slices.Concat([]edit{under(rp, "0000:21:00.0")}, edits)...),
		switchPort("0000:22:01.0", 4, pci.DownstreamPort, under(rp, "0000:21:00.0")),
		gpu("0000:23:00.0", 5, under(rp, "0000:21:00.0", "0000:22:00.0")),
		gpu("0000:24:00.0", 6, under(rp, "0000:21:00.0", "0000:22:01.0")),
	}
}

// bridged is a conventional bridge and two devices in one group, as behind a
// PCIe-to-PCI bridge.
func bridged(bridgeDriver string, edits ...edit) []device.Function {
	return []device.Function{
		port(rp, 1),
		function("0000:21:00.0", 0x060400, 2, under(rp), express(pci.PCIeToPCI), driver(bridgeDriver)),
		function("0000:22:01.0", 0x030000, 2, under(rp, "0000:21:00.0"), conventional),
		nic("0000:22:02.0", 2, slices.Concat([]edit{under(rp, "0000:21:00.0"), conventional, resets()}, edits)...),
	}
}

// judgeCase is one node, the function judged, and the codes that must come
// out, each followed by the culprit where there is one.
type judgeCase struct {
	name    string
	node    *device.Snapshot
	of      string
	reasons []string
	notes   []string
}

func runJudgeCases(t *testing.T, cases []judgeCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, ok := c.node.Function(addr(t, c.of))
			if !ok {
				t.Fatalf("the node has no function %s, want it", c.of)
			}
			v := isolation.Judge(c.node, f)
			if diff := cmp.Diff(c.reasons, summary(v.Reasons)); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.notes, summary(v.Notes)); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
			if v.Isolated != (len(c.reasons) == 0) {
				t.Errorf("Isolated = %t, want %t for reasons %v", v.Isolated, len(c.reasons) == 0, c.reasons)
			}
			checkWording(t, slices.Concat(v.Reasons, v.Notes))
			if diff := cmp.Diff(v, isolation.Judge(c.node, f), listEvidence()); diff != "" {
				t.Errorf("a second look differs (-want the first +got the second):\n%s", diff)
			}
		})
	}
}

// listEvidence has the facts of judgments compared.
func listEvidence() cmp.Option {
	return cmp.Transformer("List", func(e isolation.Evidence) []rule.Evidence { return e.List() })
}

func summary(reasons []rule.Verdict) []string {
	var codes []string
	for _, r := range reasons {
		code := string(r.Code)
		if r.Culprit != nil {
			code += " " + r.Culprit.String()
		}
		codes = append(codes, code)
	}
	return codes
}

// checkWording holds every reason to what an operator needs of it.
func checkWording(t *testing.T, reasons []rule.Verdict) {
	t.Helper()
	for _, r := range reasons {
		if r.Text == "" || r.Fix == "" || len(r.Evidence) == 0 || r.Severity == "" {
			t.Errorf("%s is %+v, want text, fix, severity and evidence", r.Code, r)
		}
		if r.Culprit != nil && !strings.Contains(r.Text, r.Culprit.String()) {
			t.Errorf("text of %s is %q, want it to name the culprit %s", r.Code, r.Text, r.Culprit)
		}
		if strings.HasSuffix(r.Text, ".") || strings.Contains(r.Text+r.Fix, "%!") {
			t.Errorf("%s has text %q and fix %q, want well-formed ones, the text without a full stop", r.Code, r.Text, r.Fix)
		}
		for _, e := range r.Evidence {
			if !strings.HasPrefix(e.Path, "/sys/") {
				t.Errorf("%s has evidence of %q, want a path below /sys", r.Code, e.Path)
			}
		}
	}
}

func TestJudgeGroups(t *testing.T) {
	runJudgeCases(t, []judgeCase{
		{name: "own group below a root port", node: node(plainGPU()...), of: gpuAt},
		{
			name:    "no IOMMU on the node",
			node:    host(node(gpu(gpuAt, -1)), func(h *device.Host) { h.IOMMUs = nil }),
			of:      gpuAt,
			reasons: []string{"NoIOMMUGroup"},
		},
		{name: "outside every IOMMU", node: node(gpu(gpuAt, -1)), of: gpuAt, reasons: []string{"NoIOMMUGroup"}},
		{
			name:    "group vanished while reading",
			node:    &device.Snapshot{Functions: []device.Function{gpu(gpuAt, 7)}, Host: device.Host{IRQChips: []string{"IR-PCI-MSI"}}},
			of:      gpuAt,
			reasons: []string{"NoIOMMUGroup"},
		},
		{
			name:    "no-IOMMU group",
			node:    group(node(plainGPU()...), func(g *device.Group) { g.NoIOMMU = true }),
			of:      gpuAt,
			reasons: []string{"NoIOMMUMode"},
		},
		{
			name:  "no-IOMMU mode beside a real group",
			node:  host(node(plainGPU()...), func(h *device.Host) { h.NoIOMMUMode = true }),
			of:    gpuAt,
			notes: []string{"NoIOMMUMode"},
		},
		{
			name:  "identity default domain",
			node:  group(node(plainGPU()...), func(g *device.Group) { g.Type = "identity" }),
			of:    gpuAt,
			notes: []string{"IdentityDefaultDomain"},
		},
		{
			name: "direct region",
			node: group(node(plainGPU()...), func(g *device.Group) {
				g.Reserved = []device.Region{{Start: 0xbdf6f000, End: 0xbdf7efff, Type: "direct"}, {Start: 0xfee00000, End: 0xfeefffff, Type: "msi"}}
			}),
			of:      gpuAt,
			reasons: []string{"DirectMappedRegion"},
		},
		{
			name: "relaxable direct region",
			node: group(node(plainGPU()...), func(g *device.Group) {
				g.Reserved = []device.Region{{Start: 0xbdf6f000, End: 0xbdf7efff, Type: "direct-relaxable"}}
			}),
			of: gpuAt,
		},
		{name: "all ones", node: node(plainGPU(dead)...), of: gpuAt, reasons: []string{"ConfigSpaceDead"}},
		{name: "a bridge", node: node(plainGPU()...), of: rp, reasons: []string{"Bridge"}},
	})
}

func TestJudgeViability(t *testing.T) {
	pair := func(edits ...edit) *device.Snapshot {
		return node(port(rp, 1), gpu(gpuAt, 2, under(rp)), audio("0000:21:00.1", 2, slices.Concat([]edit{under(rp)}, edits)...))
	}
	mates := []string{"GroupMates"}
	notViable := func(culprit string) []string { return []string{"GroupNotViable " + culprit} }
	runJudgeCases(t, []judgeCase{
		{name: "mate on a host driver is taken along", node: pair(), of: gpuAt, notes: mates},
		{name: "mate without a driver", node: pair(driver("")), of: gpuAt, notes: mates},
		{name: "mate on vfio-pci", node: pair(driver("vfio-pci")), of: gpuAt, notes: mates},
		{name: "busy mate", node: pair(busy), of: gpuAt, reasons: notViable("0000:21:00.1"), notes: mates},
		{name: "busy itself is not a matter of isolation", node: node(plainGPU(busy)...), of: gpuAt},
		{name: "bridge without driver", node: node(bridged("")...), of: "0000:22:01.0", notes: mates},
		{name: "bridge on pcieport", node: node(bridged("pcieport")...), of: "0000:22:01.0", notes: mates},
		{name: "bridge on pci-stub", node: node(bridged("pci-stub")...), of: "0000:22:01.0", notes: mates},
		{name: "bridge on vfio-pci", node: node(bridged("vfio-pci")...), of: "0000:22:01.0", notes: mates},
		{
			name: "bridge on shpchp", node: node(bridged("shpchp")...), of: "0000:22:01.0",
			reasons: notViable("0000:21:00.0"), notes: mates,
		},
		{
			name: "bridge on shpchp and a busy mate", node: node(bridged("shpchp", busy)...), of: "0000:22:01.0",
			reasons: []string{"GroupNotViable 0000:21:00.0", "GroupNotViable 0000:22:02.0"}, notes: mates,
		},
		{
			name: "ISA bridge on a driver of its own",
			node: node(
				function("0000:00:1f.0", 0x060100, 9, driver("lpc_ich"), conventional),
				function("0000:00:1f.3", 0x040300, 9, driver("snd_hda_intel"), conventional, resets("pm")),
			),
			of: "0000:00:1f.3", reasons: notViable("0000:00:1f.0"), notes: []string{"WeakReset", "GroupMates"},
		},
		{
			name: "member that the scan missed",
			node: group(node(plainGPU()...), func(g *device.Group) {
				g.Members = append(g.Members, pci.Address{Bus: 0x21, Function: 1})
			}),
			of: gpuAt, reasons: notViable("0000:21:00.1"),
		},
		{
			name: "VF in one group with its PF",
			node: node(
				port(rp, 1),
				nic("0000:21:00.0", 2, under(rp), pfOf("0000:21:10.0")),
				nic("0000:21:10.0", 2, under(rp), vfOf21),
			),
			of: "0000:21:10.0", reasons: notViable("0000:21:00.0"), notes: mates,
		},
		{
			name: "PF with its VFs in the group",
			node: node(
				port(rp, 1),
				nic("0000:21:00.0", 2, under(rp), pfOf("0000:21:10.0")),
				nic("0000:21:10.0", 2, under(rp), vfOf21),
			),
			of: "0000:21:00.0", notes: mates,
		},
	})
}

func TestJudgeInterrupts(t *testing.T) {
	gpuOn := func(change func(*device.Host)) *device.Snapshot { return host(node(plainGPU()...), change) }
	unsafe := func(names ...string) func(*device.Host) {
		return func(h *device.Host) {
			h.IRQChips = names
			h.UnsafeInterrupts = []string{
				"/sys/module/iommufd/parameters/allow_unsafe_interrupts",
				"/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts",
			}
		}
	}
	none := []string{"NoInterruptRemapping"}
	runJudgeCases(t, []judgeCase{
		{name: "no chip known", node: gpuOn(chips()), of: gpuAt, reasons: none},
		{name: "only the IOMMU's own interrupts", node: gpuOn(chips("DMAR-MSI", "HPET-MSI")), of: gpuAt, reasons: none},
		{name: "remapped", node: gpuOn(chips("DMAR-MSI", "IR-PCI-MSI")), of: gpuAt},
		{name: "remapped, with functions in the names", node: gpuOn(chips("IR-PCI-MSI-0000:00:1c.4")), of: gpuAt},
		{name: "not remapped", node: gpuOn(chips("DMAR-MSI", "PCI-MSI")), of: gpuAt, reasons: none},
		{name: "not remapped, with functions in the names", node: gpuOn(chips("PCI-MSIX-0000:99:00.0")), of: gpuAt, reasons: none},
		{name: "one plain chip among remapped ones", node: gpuOn(chips("IR-PCI-MSI", "PCI-MSI")), of: gpuAt, reasons: none},
		{name: "Arm GIC ITS before 6.11", node: gpuOn(chips("ITS-MSI")), of: gpuAt},
		{name: "Arm GIC ITS", node: gpuOn(chips("ITS-PCI-MSIX-0000:21:00.0")), of: gpuAt},
		{name: "Arm without ITS", node: gpuOn(chips("PCI-MSI", "GICv2m")), of: gpuAt, reasons: none},
		{name: "Hyper-V guest", node: gpuOn(chips("Hyper-V PCIe MSI")), of: gpuAt, reasons: none},
		{name: "VMD elsewhere", node: gpuOn(chips("IR-PCI-MSI", "VMD-MSI")), of: gpuAt},
		{name: "VMD elsewhere, with functions in the names", node: gpuOn(chips("IR-PCI-MSI", "VMD-PCI-MSIX-10000:01:00.0")), of: gpuAt},
		{
			name: "VMD beside a second domain of the firmware's",
			node: host(node(function("0001:01:00.0", 0x010802, 3, resets("flr"))), chips("IR-PCI-MSI", "VMD-MSI")),
			of:   "0001:01:00.0",
		},
		{
			name:    "function below a VMD",
			node:    host(node(function("10000:01:00.0", 0x010802, 3, resets("flr"))), chips("IR-PCI-MSI", "VMD-MSI")),
			of:      "10000:01:00.0",
			reasons: none,
		},
		{
			name:    "function below a VMD, with functions in the names",
			node:    host(node(function("10000:01:00.0", 0x010802, 3, resets("flr"))), chips("IR-PCI-MSI", "VMD-PCI-MSIX-10000:01:00.0")),
			of:      "10000:01:00.0",
			reasons: none,
		},
		{
			name: "unsafe parameters without remapping", node: gpuOn(unsafe("PCI-MSI")), of: gpuAt,
			reasons: []string{"NoInterruptRemapping", "UnsafeInterruptsAllowed", "UnsafeInterruptsAllowed"},
		},
		{
			name: "unsafe parameters with remapping", node: gpuOn(unsafe("IR-PCI-MSI")), of: gpuAt,
			notes: []string{"UnsafeInterruptsAllowed", "UnsafeInterruptsAllowed"},
		},
	})
}

// Operators act on these sentences, so the ones that matter most are pinned.
func TestReasonsTellWhatToDo(t *testing.T) {
	unsafe := host(node(plainGPU()...), func(h *device.Host) {
		h.IRQChips = []string{"PCI-MSI"}
		h.UnsafeInterrupts = []string{"module/iommufd/parameters/allow_unsafe_interrupts"}
	})
	cases := []struct {
		name string
		node *device.Snapshot
		of   string
		code rule.Code
		want rule.Verdict
	}{
		{
			"a bridge's driver", node(bridged("shpchp")...), "0000:22:01.0", rule.GroupNotViable,
			rule.Verdict{
				Severity: rule.High, Text: "bridge 0000:21:00.0 in IOMMU group 2 is bound to shpchp, which keeps the group's DMA for the host",
				Fix:      "unbind 0000:21:00.0 from shpchp: `echo 0000:21:00.0 > /sys/bus/pci/drivers/shpchp/unbind`",
				Evidence: []rule.Evidence{{Path: "/sys/bus/pci/devices/0000:21:00.0/driver", Value: "shpchp"}},
			},
		},
		{
			"a busy mate", node(bridged("", busy)...), "0000:22:01.0", rule.GroupNotViable,
			rule.Verdict{
				Severity: rule.High, Text: "0000:22:02.0 (ice) in IOMMU group 2 is used by the node itself: netdev eth0 has address 10.0.0.5/24",
				Fix:      "stop that use, or move 0000:22:01.0 to a slot whose ports have ACS, or enable ACS (for VFs also ARI) in the firmware setup",
				Evidence: []rule.Evidence{{Path: "/sys/bus/pci/devices/0000:22:02.0/driver", Value: "ice"}},
			},
		},
		{
			"unsafe interrupts", unsafe, gpuAt, rule.UnsafeInterruptsAllowed,
			rule.Verdict{
				Severity: rule.Critical, Text: "/sys/module/iommufd/parameters/allow_unsafe_interrupts is on: VFIO assigns functions although they can forge interrupts",
				Fix:      "`echo N > /sys/module/iommufd/parameters/allow_unsafe_interrupts`, and remove allow_unsafe_interrupts from /etc/modprobe.d and the kernel command line",
				Evidence: []rule.Evidence{{Path: "/sys/module/iommufd/parameters/allow_unsafe_interrupts", Value: "Y"}},
			},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, _ := c.node.Function(addr(t, c.of))
			v := isolation.Judge(c.node, f)
			if !v.Has(c.code) {
				t.Fatalf("reasons are %v, want %s among them", summary(v.Reasons), c.code)
			}
			for _, r := range v.Reasons {
				if r.Code != c.code {
					continue
				}
				r.Code, r.Culprit = "", nil
				if diff := cmp.Diff(c.want, r); diff != "" {
					t.Errorf("reason (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestReasonsAreWorstFirst(t *testing.T) {
	s := host(node(plainGPU(dead, resets())...), chips("PCI-MSI"))
	s = group(s, func(g *device.Group) { g.Reserved = []device.Region{{Type: "direct"}} })
	f, _ := s.Function(addr(t, gpuAt))
	var got []string
	for _, r := range isolation.Judge(s, f).Reasons {
		got = append(got, string(r.Severity)+" "+string(r.Code))
	}
	want := []string{"critical NoInterruptRemapping", "critical NoReset", "high DirectMappedRegion", "high ConfigSpaceDead"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// A verdict that finds nothing wrong must still show what it looked at.
func TestEvidenceOfAGoodVerdict(t *testing.T) {
	s := node(plainGPU()...)
	f, _ := s.Function(addr(t, gpuAt))
	v := isolation.Judge(s, f)
	want := []rule.Evidence{
		{Path: "/sys/bus/pci/devices/0000:21:00.0/iommu_group", Value: "../../kernel/iommu_groups/2"},
		{Path: "/sys/kernel/irq/*/chip_name", Value: "IR-PCI-MSI IR-PCI-MSIX"},
		{Path: "/sys/bus/pci/devices/0000:20:01.0/config", Value: "ACS capability 0x001d, control 0x001d"},
		{Path: "/sys/kernel/iommu_groups/2/type", Value: "DMA"},
		{Path: "/sys/bus/pci/devices/0000:21:00.0/reset_method", Value: "flr bus"},
	}
	if diff := cmp.Diff(want, v.Evidence.List()); diff != "" {
		t.Errorf("evidence (-want +got):\n%s", diff)
	}
}

// TestEvidenceHasTheMatesOnly: judgments on functions of a group share what shows its members' drivers, and each leaves out its own function's.
func TestEvidenceHasTheMatesOnly(t *testing.T) {
	s := node(gpu("0000:21:00.0", 2), audio("0000:21:00.1", 2), nic("0000:21:00.2", 2))
	drivers := map[string]string{
		"/sys/bus/pci/devices/0000:21:00.0/driver": "nvidia", "/sys/bus/pci/devices/0000:21:00.1/driver": "snd_hda_intel", "/sys/bus/pci/devices/0000:21:00.2/driver": "ice",
	}
	judger := isolation.NewJudger(s)
	for i := range s.Functions {
		f := &s.Functions[i]
		v := judger.Judge(f)
		got := map[string]string{}
		all := v.Evidence.List()
		if first := all[0].Path; first != "/sys/bus/pci/devices/"+f.Address.String()+"/iommu_group" {
			t.Errorf("the evidence of %s begins with %s, want the link to its group", f.Address, first)
		}
		for _, e := range all {
			if strings.HasSuffix(e.Path, "/driver") {
				got[e.Path] = e.Value
			}
		}
		want := maps.Clone(drivers)
		delete(want, "/sys/bus/pci/devices/"+f.Address.String()+"/driver")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("drivers in the evidence of %s (-want +got):\n%s", f.Address, diff)
		}
	}
}

func TestSeverityCompare(t *testing.T) {
	got := []rule.Severity{rule.Low, rule.Critical, rule.Medium, rule.High}
	slices.SortFunc(got, rule.Severity.Compare)
	want := []rule.Severity{rule.Critical, rule.High, rule.Medium, rule.Low}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// With ARI, a device's ninth function has another device number. It reaches the others all the same.
func TestJudgeFunctionsBeyondTheEighth(t *testing.T) {
	card := func(control uint16) *device.Snapshot {
		fns := []device.Function{port("0000:00:01.0", 1)}
		for i := range 9 {
			fns = append(fns, nic(fmt.Sprintf("0000:21:%02x.%d", i/8, i%8), 10+i, under("0000:00:01.0"), acs(fullACS, control)))
		}
		return node(fns...)
	}
	for _, text := range []string{"0000:21:00.0", "0000:21:01.0"} {
		s := card(0)
		f, _ := s.Function(addr(t, text))
		if v := isolation.Judge(s, f); !v.Has(rule.PeerToPeerPossible) {
			t.Errorf("%s, whose ACS is off as that of its card's other functions: reasons are %+v, want %s", text, v.Reasons, rule.PeerToPeerPossible)
		}
		bypasses := isolation.Bypasses(s, f)
		if len(bypasses) != 1 || bypasses[0].Domain.String() != "device 0000:21:00.0" {
			t.Errorf("%s reaches %+v; want its card", text, bypasses)
		}
		s = card(fullACS)
		f, _ = s.Function(addr(t, text))
		if v := isolation.Judge(s, f); !v.Isolated || isolation.ReadACS(s, f) != isolation.ACSOn {
			t.Errorf("%s with its ACS on: reasons are %+v, want it isolated", text, v.Reasons)
		}
	}
}

// Tenants of a card's first and ninth function meet on the card.
func TestTenantsOfOneCardMeet(t *testing.T) {
	s := node(port("0000:00:01.0", 1),
		nic("0000:21:00.0", 2, under("0000:00:01.0"), acs(fullACS, 0)), nic("0000:21:01.0", 3, under("0000:00:01.0"), acs(fullACS, 0)))
	var held []isolation.Assigned
	var bypasses []isolation.Bypass
	for i, tenant := range []string{"a", "b"} {
		f := &s.Functions[i+1]
		held = append(held, isolation.Assigned{Function: f, Tenants: []string{tenant}})
		bypasses = append(bypasses, isolation.Bypasses(s, f)...)
	}
	if shared := isolation.SharedDomains(held, bypasses); len(shared) != 1 || len(shared[0].Tenants) != 2 {
		t.Errorf("shared domains %+v, want the card", shared)
	}
}

// twoBelow is a GPU and a second function below two ports of one switch that have no ACS. Each function is in a group with its
// port.
func twoBelow(second func(at string, group int, edits ...edit) device.Function) *device.Snapshot {
	beside := []string{"0000:00:01.0", "0000:20:00.0"}
	below := func(port string) edit { return under(append(slices.Clone(beside), port)...) }
	return node(port("0000:00:01.0", 0), switchPort("0000:20:00.0", 1, pci.UpstreamPort, under(beside[0]), noACS),
		switchPort("0000:21:00.0", 2, pci.DownstreamPort, under(beside...), noACS), gpu("0000:22:00.0", 2, below("0000:21:00.0")),
		switchPort("0000:21:01.0", 3, pci.DownstreamPort, under(beside...), noACS), second("0000:23:00.0", 3, below("0000:21:01.0")))
}

// ofClass builds functions of a class with a header.
func ofClass(class pci.Class, header pci.HeaderType) func(string, int, ...edit) device.Function {
	return func(at string, group int, edits ...edit) device.Function {
		return function(at, class, group, append(edits, func(f *device.Function) { f.Capabilities.Header = header })...)
	}
}

// What has an endpoint's header sends and gets requests of its own, whatever its class.
func TestJudgeBesideAnEndpointOfABridgesClass(t *testing.T) {
	for name, c := range map[string]struct {
		second func(string, int, ...edit) device.Function
		peer   bool
	}{
		"a NIC":                                         {nic, true},
		"an NVSwitch":                                   {ofClass(0x068000, pci.HeaderNormal), true},
		"an NVSwitch without its header":                {ofClass(0x068000, ""), true},
		"a switch's management function":                {ofClass(0x058000, pci.HeaderNormal), true},
		"an endpoint that calls itself a bridge":        {ofClass(0x060400, pci.HeaderNormal), true},
		"a host bridge's class below a switch":          {ofClass(0x060000, pci.HeaderNormal), true},
		"a port with nothing below":                     {ofClass(0x060400, pci.HeaderBridge), false},
		"a port with nothing below, without its header": {ofClass(0x060400, ""), false},
		"a forwarding bridge of the class of others":    {ofClass(0x068000, pci.HeaderBridge), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := twoBelow(c.second)
			f, _ := s.Function(addr(t, "0000:22:00.0"))
			if v := isolation.Judge(s, f); v.Has(rule.PeerToPeerPossible) != c.peer || v.Isolated == c.peer {
				t.Errorf("the GPU beside it: reasons are %+v, want %s: %t", v.Reasons, rule.PeerToPeerPossible, c.peer)
			}
		})
	}
}

// inSwitchesGroup is a GPU and an NVSwitch in one IOMMU group, the NVSwitch with the driver.
func inSwitchesGroup(text string) *device.Snapshot {
	return node(port(rp, 1, noACS), gpu(gpuAt, 1, under(rp), driver("vfio-pci")),
		ofClass(0x068000, pci.HeaderNormal)("0000:22:00.0", 1, under(rp), resets("flr"), driver(text)))
}

// TestJudgeNVSwitchInAGPUsGroup: the host's driver of an NVSwitch serves the GPUs of the whole board, so it is not to be unbound
// for one of them.
func TestJudgeNVSwitchInAGPUsGroup(t *testing.T) {
	s := inSwitchesGroup("nvidia-nvswitch")
	f, _ := s.Function(addr(t, gpuAt))
	v := isolation.Judge(s, f)
	if len(v.Reasons) != 1 || v.Reasons[0].Code != rule.GroupNotViable || strings.Contains(v.Reasons[0].Fix, "unbind") || !strings.Contains(v.Reasons[0].Fix, "ACS") {
		t.Errorf("a GPU beside an NVSwitch of the host: reasons are %+v, want %s alone, fixed by ACS", v.Reasons, rule.GroupNotViable)
	}
	second, _ := s.Function(addr(t, "0000:22:00.0"))
	if v := isolation.Judge(s, second); !v.Isolated {
		t.Errorf("the NVSwitch: reasons are %+v, want it isolated", v.Reasons)
	}
	for _, driver := range []string{"", "vfio-pci"} {
		s := inSwitchesGroup(driver)
		f, _ := s.Function(addr(t, gpuAt))
		if v := isolation.Judge(s, f); !v.Isolated {
			t.Errorf("a GPU beside an NVSwitch on driver %q: reasons are %+v, want it isolated", driver, v.Reasons)
		}
		if set := isolation.AssignmentSet(s, f); len(set) != 2 {
			t.Errorf("%d functions are assigned with the GPU, want the NVSwitch too", len(set))
		}
	}
}

// A function without power needs other advice than one that fell off the bus.
func TestFixOfAFunctionThatDoesNotAnswer(t *testing.T) {
	const attributes = "/sys/bus/pci/devices/"
	cold := func(f *device.Function) { f.ConfigDead, f.D3cold = true, true }
	for name, tt := range map[string]struct {
		functions []device.Function
		text      string
		fix       []string
		never     string
	}{
		"no answer": {
			plainGPU(dead), "configuration space of " + gpuAt + " reads all ones: the function does not answer",
			[]string{"check its power and seating"},
			"D3cold",
		},
		"in D3cold": {
			plainGPU(cold), gpuAt + " is in D3cold and does not come back: configuration space reads all ones",
			[]string{
				"`echo 0 | tee " + attributes + gpuAt + "/d3cold_allowed " + attributes + rp + "/d3cold_allowed`", "`vfio_pci.disable_idle_d3=1`", "power-cycle the node",
			},
			"seating",
		},
		"in D3cold on a root bus": {
			[]device.Function{gpu(gpuAt, 2, cold)},
			gpuAt + " is in D3cold and does not come back: configuration space reads all ones",
			[]string{"`echo 0 | tee " + attributes + gpuAt + "/d3cold_allowed`"},
			"seating",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := node(tt.functions...)
			f, _ := s.Function(addr(t, gpuAt))
			reasons := isolation.Judge(s, f).Reasons
			i := slices.IndexFunc(reasons, func(r rule.Verdict) bool { return r.Code == rule.ConfigSpaceDead })
			if i < 0 || reasons[i].Text != tt.text {
				t.Fatalf("reasons are %+v, want %q", reasons, tt.text)
			}
			for _, want := range tt.fix {
				if !strings.Contains(reasons[i].Fix, want) {
					t.Errorf("fix %q does not say %q", reasons[i].Fix, want)
				}
			}
			if strings.Contains(reasons[i].Fix, tt.never) {
				t.Errorf("fix is %q, want it without %q", reasons[i].Fix, tt.never)
			}
		})
	}
}

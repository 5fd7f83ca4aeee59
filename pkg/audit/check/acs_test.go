package check_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// ACS control words: what the kernel wants without redirection, and with direct
// translated requests.
const (
	acsNoRR   = 0x11
	acsDirect = 0x5d
)

func acsFaults() []fault {
	clear := func(port string) func(*board.Tree) {
		return func(t *board.Tree) { t.SetACS(t.Devices[port], acsNoRR) }
	}
	return slices.Concat([]fault{
		{rule: "ACS-001", about: "cleared on a switch port", board: board.Switch, plant: clear("left/port")},
		{rule: "ACS-001", about: "cleared on a root port", board: board.Switch, plant: clear("port")},
		{rule: "ACS-001", about: "not readable", board: board.Switch, state: finding.Unknown, plant: func(t *board.Tree) {
			t.CutConfig(t.Devices["left/port"])
		}},
		{rule: "ACS-008", about: "a quirk", board: board.Server, state: finding.Manual, device: "gpu1", plant: func(*board.Tree) {}},
		{rule: "ACS-008", about: "the override's word", board: board.Server, device: "gpu1", plant: func(t *board.Tree) {
			t.Put("proc/cmdline", "ro pcie_acs_override=downstream,multifunction\n")
		}},
		{rule: "ACS-002", about: "a device whose functions reach each other", board: dualPort, device: "nic1", plant: func(*board.Tree) {}},
		{rule: "ACS-002", about: "not readable", board: dualPort, device: "nic1", state: finding.Unknown, plant: func(t *board.Tree) {
			t.CutConfig(t.Devices["nic1"])
		}},
		{rule: "ACS-008", about: "not readable", board: dualPort, device: "nic1", state: finding.Unknown, plant: func(t *board.Tree) {
			t.CutConfig(t.Devices["nic1"])
		}},
		{rule: "ACS-003", about: "ATS and DirectTrans", board: board.Switch, device: "left", plant: func(t *board.Tree) {
			t.EnableATS(t.Devices["left"])
			t.SetACS(t.Devices["left/port"], acsDirect)
		}},
		{rule: "ACS-003", about: "not readable", board: board.Switch, state: finding.Unknown, plant: func(t *board.Tree) {
			t.CutConfig(t.Devices["left"])
		}},
		{rule: "ACS-009", about: "one way", board: board.Switch, device: "left", plant: clear("left/port")},
		{rule: "ACS-009", about: "not readable", board: board.Switch, state: finding.Unknown, plant: func(t *board.Tree) {
			t.CutConfig(t.Devices["right/port"])
		}},
		{rule: "ACS-017", about: "cleared since boot", board: board.Switch, device: "port", plant: clear("port")},
		{rule: "ACS-017", about: "more than before", board: board.Switch, device: "left/port", plant: func(t *board.Tree) {
			t.SetACS(t.Devices["left/port"], acsDirect)
		}},
		{rule: "ACS-017", about: "no baseline", board: board.Switch, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Delete("run/kata-vfio/acs.json")
		}},
		{rule: "ACS-017", about: "a damaged baseline", board: board.Switch, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put("run/kata-vfio/acs.json", "{")
		}},
		{rule: "ACS-019", about: "two tenants below a switch", board: board.Switch, state: finding.Manual, plant: func(*board.Tree) {}},
	}, acsArgumentFaults(), portFaults(), nodeACSFaults(), exclusiveFaults())
}

func acsArgumentFaults() []fault {
	cmdline := func(id, about, args string) fault {
		return fault{rule: id, about: about, board: board.Server, plant: func(t *board.Tree) { t.Put("proc/cmdline", args+"\n") }}
	}
	return []fault{
		cmdline("ACS-006", "in use", "ro pcie_acs_override=downstream"),
		cmdline("ACS-006", "in use, in other letters", "ro pcie-acs-override"),
		{rule: "ACS-006", about: "after the next boot", board: board.Server, plant: func(t *board.Tree) {
			t.Put("etc/default/grub", "GRUB_CMDLINE_LINUX=\"pcie_acs_override=downstream\"\n")
		}},
		cmdline("ACS-007", "redirection off", "ro pci=realloc,disable_acs_redir=pci:0:0"),
		cmdline("ACS-007", "upstream forwarding off", "ro pci=config_acs=x0xxxx@pci:0:0"),
	}
}

// TestArgumentsAgainstACSConcernWhatTheyName: an argument concerns the functions below the ports that it names, and no
// others. What the kernel could not read counts as naming all.
func TestArgumentsAgainstACSConcernWhatTheyName(t *testing.T) {
	both := []string{"left", "right"}
	all := []string{"left", "right", "spare"}
	for name, tt := range map[string]struct {
		argument string
		want     []string
	}{
		"a switch's port":               {"disable_acs_redir=0000:22:00.0", []string{"left"}},
		"in the kernel's short form":    {"disable_acs_redir=22:0.0", []string{"left"}},
		"by its way from the root port": {"disable_acs_redir=20:01.0/00.0/01.0", []string{"right"}},
		"a way that leads elsewhere":    {"disable_acs_redir=20:02.0/00.0/01.0", nil},
		"two ports":                     {"noats,disable_acs_redir=0000:22:00.0;0000:22:01.0", both},
		"the root port above":           {"config_acs=xx000xx@0000:20:01.0", both},
		"any port, by IDs":              {"disable_acs_redir=pci:0:0", all},
		"IDs that no function has":      {"disable_acs_redir=pci:10b5:9797", nil},
		"a port that the node lacks":    {"disable_acs_redir=0000:fe:1f.7", nil},
		"another domain":                {"disable_acs_redir=0001:22:00.0", nil},
		"a second entry":                {"config_acs=1111111@0000:22:00.0;xxx0xxx@0000:22:01.0", []string{"right"}},
		"controls that are switched on": {"config_acs=xx111xx@0000:22:00.0", nil},
		"what the kernel can't read":    {"disable_acs_redir=downstream", all},
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.Switch(t)
			tree.Boot("pci=" + tt.argument)
			var got, want []pci.Address
			for _, f := range audit(t, tree).Findings {
				if f.ID == "ACS-007" && f.State == finding.Fail {
					got = append(got, f.Devices...)
					if len(f.Devices) == 0 {
						t.Errorf("fails for the whole node: %s", f.Text)
					}
				}
			}
			for _, d := range tt.want {
				want = append(want, tree.Devices[d])
			}
			if !slices.Equal(got, want) {
				t.Errorf("concerns %v, want %v", got, want)
			}
		})
	}
}

func portFaults() []fault {
	withPort := func(change func(*sysfstest.Port)) func(testing.TB) *board.Tree {
		return func(tb testing.TB) *board.Tree { return portBoard(tb, change) }
	}
	nothing := func(*board.Tree) {}
	return []fault{
		{rule: "ACS-004", about: "could block and doesn't", plant: nothing, board: withPort(func(p *sysfstest.Port) {
			p.ACS = &pci.ACS{Capability: 0x1f, Control: 0x1d}
		})},
		{rule: "ACS-004", about: "not readable", board: board.Switch, state: finding.Unknown, plant: func(t *board.Tree) { t.CutConfig(t.Devices["upstream"]) }},
		{rule: "ACS-005", about: "egress control", plant: nothing, board: withPort(func(p *sysfstest.Port) {
			p.ACS = &pci.ACS{Capability: 0x3d, Control: 0x3d}
		})},
		{rule: "ACS-010", about: "a shared bus", board: board.New, plant: func(t *board.Tree) {
			gpu, _ := t.AddBehindBridge(0x71, 71)
			t.Give("t1", "old", gpu)
		}},
		{rule: "ACS-014", about: "containment off", board: portWithDPC, plant: nothing},
	}
}

// portBoard has one GPU below a root port that is changed.
func portBoard(tb testing.TB, change func(*sysfstest.Port)) *board.Tree {
	tb.Helper()
	t := board.New(tb)
	t.AddRoot(sysfstest.Root{Bus: 0x60})
	p := sysfstest.Port{Address: pci.Address{Bus: 0x60, Device: 1}, Secondary: 0x61}
	change(&p)
	t.AddPort(p)
	gpu := sysfstest.GPU(pci.Address{Bus: 0x61})
	gpu.Driver = "vfio-pci"
	t.Add(gpu)
	t.Devices["gpu"] = gpu.Address
	return t
}

func portWithDPC(tb testing.TB) *board.Tree {
	tb.Helper()
	return portBoard(tb, func(p *sysfstest.Port) { p.DPC = &pci.Switchable{} })
}

// changeBaseline changes a function's part of the baseline.
func changeBaseline(t *board.Tree, name string, change func(*facts.Registers)) {
	t.TB.Helper()
	var b facts.Baseline
	if err := json.Unmarshal([]byte(t.Text("run/kata-vfio/"+facts.BaselineFile)), &b); err != nil {
		t.TB.Fatal(err)
	}
	r := b.Functions[t.Devices[name]]
	change(&r)
	b.Functions[t.Devices[name]] = r
	putJSON(t, "run/kata-vfio/"+facts.BaselineFile, &b)
}

func nodeACSFaults() []fault {
	attribute := func(t *board.Tree, name, file, value string) {
		t.Put("sys/bus/pci/devices/"+t.Devices[name].String()+"/"+file, value)
	}
	return []fault{
		{rule: "ACS-011", about: "published", board: board.Server, device: "nic0", plant: func(t *board.Tree) {
			attribute(t, "nic0", "p2pmem/published", "1\n")
		}},
		{rule: "ACS-012", about: "a device that came", board: board.Switch, plant: func(t *board.Tree) { t.AddGPU(0x81) }},
		{rule: "ACS-012", about: "another device at a known address", board: board.Switch, plant: func(t *board.Tree) {
			was := earlier(t, "left")
			was.Device++
			changeBaseline(t, "left", func(r *facts.Registers) { r.Identity = was })
		}},
		{rule: "ACS-012", about: "a device that left and came back", board: board.Switch, plant: func(t *board.Tree) {
			changeBaseline(t, "left", func(r *facts.Registers) { r.Identity.Inode++ })
		}},
		{rule: "ACS-012", about: "the baseline of an earlier plugin", board: board.Switch, state: finding.Pass, plant: func(t *board.Tree) {
			changeBaseline(t, "left", func(r *facts.Registers) { r.Identity = device.Identity{} })
		}},
		{rule: "ACS-012", about: "a copy, whose files have other inodes", board: board.Switch, state: finding.Pass, plant: func(t *board.Tree) {
			changeBaseline(t, "left", func(r *facts.Registers) { r.Identity.Inode = 0 })
		}},
		{rule: "ACS-017", about: "other registers of another device", board: board.Switch, state: finding.Pass, plant: func(t *board.Tree) {
			t.SetACS(t.Devices["left/port"], acsDirect)
			changeBaseline(t, "left/port", func(r *facts.Registers) { r.Identity.Device++ })
		}},
		{rule: "ACS-012", about: "no baseline", board: board.Switch, state: finding.Unknown, plant: func(t *board.Tree) { t.Delete("run/kata-vfio/acs.json") }},
		{rule: "ACS-013", about: "not confined", board: board.Server, plant: func(t *board.Tree) {
			t.Put("sys/bus/thunderbolt/devices/domain0/iommu_dma_protection", "0\n")
		}},
		{rule: "ACS-013", about: "not told", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put("sys/bus/thunderbolt/devices/domain0/security", "user\n")
		}},
		{rule: "ACS-015", about: "fatal errors", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			attribute(t, "gpu0", "aer_dev_fatal", "Undefined 0\nDLP 2\nTOTAL_ERR_FATAL 2\n")
		}},
		{rule: "ACS-015", about: "rubbish", board: board.Server, device: "gpu0", state: finding.Unknown, plant: func(t *board.Tree) {
			attribute(t, "gpu0", "aer_dev_fatal", "many\n")
		}},
		{rule: "ACS-016", about: "panic", board: board.Server, plant: func(t *board.Tree) { t.Put("proc/sys/kernel/unknown_nmi_panic", "1\n") }},
		{rule: "ACS-018", about: "DMA of nobody's", board: board.Switch, device: "spare", plant: func(t *board.Tree) {
			t.SetConfig(t.Devices["spare"], 4, 0x06)
		}},
	}
}

// dualPort has a NIC with two ports, each in a group of its own, whose ACS is off.
func dualPort(tb testing.TB) *board.Tree {
	tb.Helper()
	t := board.New(tb)
	t.AddRootPort(0x51)
	for fn := range uint8(2) {
		t.Add(dualFunction(pci.Address{Bus: 0x51, Function: fn}))
	}
	t.Devices["nic1"] = pci.Address{Bus: 0x51, Function: 1}
	t.Give("t1", "port1", t.Devices["nic1"])
	return t
}

func dualFunction(a pci.Address) sysfstest.Function {
	f := sysfstest.NIC(a)
	f.Driver, f.SRIOV, f.Capabilities.SRIOV = "vfio-pci", nil, nil
	f.Capabilities.ACS = &pci.ACS{Capability: 0x1f}
	return f
}

// of returns the findings of one rule.
func of(r *finding.Report, id string) []finding.Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f finding.Finding) bool { return f.ID != id })
}

func TestMeetingTenantsAreToldWithTheirDevicesAndWays(t *testing.T) {
	for _, c := range []struct {
		name  string
		plant func(*board.Tree)
		want  string
	}{
		{
			"one way",
			func(t *board.Tree) { t.SetACS(t.Devices["left/port"], acsNoRR) },
			"paths of t1, t2 meet at switch or bridge 0000:21:00.0: 0000:22:00.0 does not redirect, so requests bypass the IOMMU from t1 to t2 only",
		},
		{"both ways", func(t *board.Tree) {
			t.SetACS(t.Devices["left/port"], acsNoRR)
			t.SetACS(t.Devices["right/port"], acsNoRR)
		}, "paths of t1, t2 meet at switch or bridge 0000:21:00.0: 0000:22:00.0 does not redirect, 0000:22:01.0 does not redirect, so requests bypass the IOMMU in both directions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := board.Switch(t)
			c.plant(tree)
			found := of(audit(t, tree), "ACS-009")
			if len(found) != 1 {
				t.Fatalf("%d findings, want one", len(found))
			}
			f := found[0]
			if f.Text != c.want {
				t.Errorf("it says\n%s, want\n%s", f.Text, c.want)
			}
			want := []pci.Address{tree.Devices["left"], tree.Devices["right"]}
			if diff := cmp.Diff(want, f.Devices); diff != "" || !slices.Equal(f.Tenants, []string{"t1", "t2"}) || f.Exposure != finding.CrossTenant {
				t.Errorf("devices (-want +got):\n%stenants %v, exposure %s", diff, f.Tenants, f.Exposure)
			}
		})
	}
}

func TestDirectTranslationWeighsByWhoIsInReach(t *testing.T) {
	for _, c := range []struct {
		name, device, port string
		want               rule.Severity
	}{
		{"another tenant", "left", "left/port", rule.Critical},
		{"nobody", "spare", "spare/port", rule.Medium},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := board.Switch(t)
			tree.Devices["spare/port"] = pci.Address{Bus: 0x20, Device: 2}
			tree.EnableATS(tree.Devices[c.device])
			tree.SetACS(tree.Devices[c.port], acsDirect)
			found := of(audit(t, tree), "ACS-003")
			if len(found) != 1 || found[0].State != finding.Fail || found[0].Severity != c.want {
				t.Errorf("found %+v, want one that fails as %s", found, c.want)
			}
		})
	}
}

func TestDriftIsToldWithTheWayBack(t *testing.T) {
	tree := board.Switch(t)
	tree.SetACS(tree.Devices["port"], acsNoRR)
	found := of(audit(t, tree), "ACS-017")
	if len(found) != 1 {
		t.Fatalf("%d findings, want one", len(found))
	}
	want := "the ACS control of 0000:20:01.0 changed from 0x001d to 0x0011: ReqRedir, CmpltRedir was disabled"
	if found[0].Text != want || !strings.Contains(found[0].Remediation, "setpci -s 0000:20:01.0 ECAP_ACS+6.w=001d") {
		t.Errorf("it says %s; %s", found[0].Text, found[0].Remediation)
	}
	if len(found[0].Devices) != 3 {
		t.Errorf("blast radius %v, want the port and both GPUs below it", found[0].Devices)
	}
}

func TestOnePortIsNamedInTheSingular(t *testing.T) {
	tree := portBoard(t, func(p *sysfstest.Port) { p.ACS = &pci.ACS{Capability: 0x1f, Control: 0x1d} })
	found := of(audit(t, tree), "ACS-004")
	if len(found) != 1 || !strings.HasPrefix(found[0].Text, "0000:60:01.0 doesn't block translated requests, though") {
		t.Errorf("found %+v", found)
	}
}

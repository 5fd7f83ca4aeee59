package check_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// IDs of tenants, as the controller makes them.
const blue, red = "0123456789abcdef", "fedcba9876543210"

// exclusive has the GPUs' rule make domains exclusive.
func exclusive(t *board.Tree, kinds string) {
	t.TB.Helper()
	t.Put("etc/kata-vfio/node.yaml", "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\ndevices:\n- {name: gpus, match: {types: [gpu]}, exclusive: ["+kinds+"]}\n- {match: {types: [pf, vf]}}\n")
}

// identify gives the record of a tenant's claim an ID of the tenant.
func identify(t *board.Tree, namespace, claim, id string) {
	t.TB.Helper()
	rec := record(t, namespace, claim)
	rec.Plan.Claim.Tenant = id
	t.Save(rec)
}

// ofTenants makes domains of [board.Switch] exclusive, and says whose its two GPUs below the switch are.
func ofTenants(kinds, left, right string) func(*board.Tree) {
	return func(t *board.Tree) {
		exclusive(t, kinds)
		identify(t, "t1", "left", left)
		identify(t, "t2", "right", right)
	}
}

// created gives both claims of [board.Switch] one namespace, whose IDs differ: it was deleted and created again.
func created(t *board.Tree) {
	t.TB.Helper()
	rec := record(t, "t2", "right")
	rec.Plan.Claim.Namespace = "t1"
	t.Save(rec)
}

// redirectsNothing clears ACS at the port above the left GPU.
func redirectsNothing(t *board.Tree) { t.TB.Helper(); t.SetACS(t.Devices["left/port"], acsNoRR) }

// all plants several faults.
func all(plants ...func(*board.Tree)) func(*board.Tree) {
	return func(t *board.Tree) {
		for _, plant := range plants {
			plant(t)
		}
	}
}

// tenure is a claim's time with a function, by the ledger.
type tenure struct {
	claim, tenant, device string // the device's name in the board
	ended                 bool   // before the next begins
}

// pastOf makes the switch exclusive, releases all claims, and has the ledger say who had what since the plugin's start with the config; before
// says what was before that.
func pastOf(before []tenure, since ...tenure) func(*board.Tree) {
	return func(t *board.Tree) {
		t.TB.Helper()
		exclusive(t, "Switch")
		for _, c := range []string{"t1/left", "t2/right"} {
			namespace, name, _ := strings.Cut(c, "/")
			t.Delete("var/lib/kata-vfio/journal/" + record(t, namespace, name).ID() + ".json")
		}
		text, err := os.ReadFile(t.Path("etc/kata-vfio/node.yaml"))
		if err != nil {
			t.TB.Fatal(err)
		}
		config, err := v1alpha1.DecodeNodeConfig(text)
		if err != nil {
			t.TB.Fatal(err)
		}
		digest, err := nodeconfig.Digest(config)
		if err != nil {
			t.TB.Fatal(err)
		}
		t.Record(tenures(t, before)...)
		t.Record(ledger.Event{Type: ledger.Start, Config: digest})
		t.Record(tenures(t, since)...)
	}
}

func tenures(t *board.Tree, all []tenure) []ledger.Event {
	var events []ledger.Event
	for _, one := range all {
		claim := &ledger.Claim{UID: "past-" + one.claim, Namespace: "t", Name: one.claim, Tenant: one.tenant}
		devices := []ledger.Device{{Address: t.Devices[one.device]}}
		events = append(events, ledger.Event{Type: ledger.Prepare, Claim: claim, Devices: devices})
		if one.ended {
			events = append(events, ledger.Event{Type: ledger.Unprepare, Claim: claim, Devices: devices})
		}
	}
	return events
}

func exclusiveFaults() []fault {
	of := func(id, about string, state finding.State, plant func(*board.Tree)) fault {
		return fault{rule: id, about: about, board: board.Switch, state: state, plant: plant}
	}
	return []fault{
		of("ACS-019", "two tenants below an exclusive switch", finding.Fail, ofTenants("Switch", blue, red)),
		of("ACS-019", "one tenant with two namespaces below an exclusive switch", finding.Pass, ofTenants("Switch", blue, blue)),
		of("ACS-019", "two namespaces of unknown tenants below an exclusive switch", finding.Unknown, ofTenants("Switch", "", "")),
		of("ACS-019", "one tenant with two namespaces below a switch that two may share", finding.Pass, ofTenants("Card", blue, blue)),
		of("ACS-019", "two tenants below a switch that they may share", finding.Manual, ofTenants("Card", blue, red)),
		of("ACS-009", "one tenant with two namespaces", finding.NotApplicable, all(ofTenants("Card", blue, blue), redirectsNothing)),
		of("ACS-009", "two tenants with IDs", finding.Fail, all(ofTenants("Card", blue, red), redirectsNothing)),
		of("ACS-009", "a namespace that was created again", finding.Fail, all(ofTenants("Card", blue, red), created, redirectsNothing)),
		of("ACS-020", "two tenants below an exclusive root port", finding.Fail, ofTenants("RootPort", blue, red)),
		of("ACS-020", "one tenant on an exclusive node", finding.Pass, ofTenants("Node", blue, blue)),
		of("ACS-020", "two tenants were below an exclusive switch before", finding.Fail, pastOf(nil, tenure{"a", blue, "left", false}, tenure{"b", red, "right", false})),
		of("ACS-020", "one tenant was below it after the other", finding.NotApplicable, pastOf(nil, tenure{"a", blue, "left", true}, tenure{"b", red, "right", true})),
		of("ACS-020", "two claims of one tenant were below it", finding.NotApplicable, pastOf(nil, tenure{"a", blue, "left", false}, tenure{"b", blue, "right", false})),
		of("ACS-020", "two tenants were below it before it was exclusive", finding.NotApplicable, pastOf([]tenure{{"a", blue, "left", false}, {"b", red, "right", false}})),
		of("ACS-020", "the other tenant came after it was exclusive", finding.Fail, pastOf([]tenure{{"a", blue, "left", false}}, tenure{"b", red, "right", true})),
		of("ACS-020", "a claim without the ID of its tenant was below it", finding.NotApplicable, pastOf(nil, tenure{"a", "", "left", false}, tenure{"b", red, "right", true})),
		of("VFIO-024", "a free device that is kept for a tenant", finding.Pass, ofTenants("Node", blue, blue)),
		of("ACS-020", "a damaged record", finding.Unknown, func(t *board.Tree) {
			exclusive(t, "Node")
			t.Put("var/lib/kata-vfio/journal/damaged.json", "{")
		}),
	}
}

// TestExclusiveDomains holds the domains of each kind against the journal: the states are those of ACS-019 and ACS-020, each once, in
// the order of the findings.
func TestExclusiveDomains(t *testing.T) {
	free := func(t *board.Tree, namespace, claim string) {
		t.Delete("var/lib/kata-vfio/journal/" + record(t, namespace, claim).ID() + ".json")
	}
	none, fails, passes, can := []finding.State{finding.NotApplicable}, []finding.State{finding.Fail}, []finding.State{finding.Pass}, []finding.State{finding.Unknown}
	manual := []finding.State{finding.Manual}
	for name, tt := range map[string]struct {
		plant            func(*board.Tree)
		switches, others []finding.State
	}{
		"no domain is exclusive":           {func(*board.Tree) {}, manual, none},
		"switch of two tenants":            {ofTenants("Switch", blue, red), fails, none},
		"switch of one tenant":             {ofTenants("Switch", blue, blue), passes, none},
		"switch of an unknown tenant, too": {ofTenants("Switch", blue, ""), fails, none},
		"switch with one claim": {func(b *board.Tree) {
			ofTenants("Switch", blue, red)(b)
			free(b, "t2", "right")
		}, passes, none},
		"switch with one claim of an unknown tenant": {func(b *board.Tree) {
			exclusive(b, "Switch")
			free(b, "t2", "right")
		}, passes, none},
		"switch that is free": {func(b *board.Tree) {
			exclusive(b, "Switch")
			free(b, "t1", "left")
			free(b, "t2", "right")
		}, passes, none},
		"claims of another boot": {func(b *board.Tree) {
			ofTenants("Switch", blue, red)(b)
			rec := record(b, "t2", "right")
			rec.BootID = "earlier"
			b.Save(rec)
		}, passes, none},
		"quarantined since another boot": {func(b *board.Tree) {
			ofTenants("Switch", blue, red)(b)
			rec := record(b, "t2", "right")
			rec.BootID, rec.State, rec.Reason = "earlier", journal.Quarantined, "no reset"
			b.Save(rec)
		}, fails, none},
		"node of two tenants":                     {ofTenants("Node", blue, red), manual, fails},
		"NUMA node of two tenants":                {ofTenants("NUMA", blue, red), manual, fails},
		"fabric of two tenants":                   {ofTenants("Fabric", blue, red), manual, fails},
		"cards of one tenant each":                {ofTenants("Card, PF", blue, red), manual, passes},
		"cards of one tenant each, switch of two": {ofTenants("Card, Switch", blue, red), fails, passes},
		"node and its root ports":                 {ofTenants("Node, RootPort", blue, red), manual, []finding.State{finding.Fail, finding.Fail, finding.Pass}},
		"config that is wrong":                    {func(b *board.Tree) { exclusive(b, "Socket") }, manual, can},
		"journal with a damaged record": {func(b *board.Tree) {
			ofTenants("Switch", blue, blue)(b)
			b.Put("var/lib/kata-vfio/journal/x.json", "{")
		}, can, can},
		"two tenants and a damaged record": {func(b *board.Tree) { ofTenants("Switch", blue, red)(b); b.Put("var/lib/kata-vfio/journal/x.json", "{") }, fails, can},
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.Switch(t)
			tt.plant(tree)
			report := audit(t, tree)
			for id, want := range map[string][]finding.State{"ACS-019": tt.switches, "ACS-020": tt.others} {
				var got []finding.State
				for _, f := range of(report, id) {
					got = append(got, f.State)
					hasEvidence(t, &f)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s%+v", id, diff, of(report, id))
				}
			}
		})
	}
}

// TestExclusiveSwitchNamesItsTenants: the failure names the functions and their tenants, and shows records and rule.
func TestExclusiveSwitchNamesItsTenants(t *testing.T) {
	tree := board.Switch(t)
	ofTenants("Switch", blue, "")(tree)
	f := found(t, tree, "ACS-019")
	left, right := tree.Devices["left"], tree.Devices["right"]
	want := fmt.Sprintf("the exclusive domain switch 0000:21:00.0 has several tenants: %s is tenant %s's, %s is an unknown tenant's", left, blue, right)
	if f.Text != want || f.Object != "switch 0000:21:00.0" || f.Severity != rule.High || f.Exposure != finding.CrossTenant {
		t.Errorf("it says\n%s, %s, %s, %s, want\n%s", f.Text, f.Object, f.Severity, f.Exposure, want)
	}
	if diff := cmp.Diff([]pci.Address{left, right}, f.Devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	var shown []string
	for _, e := range f.Evidence {
		shown = append(shown, e.Path+": "+e.Value)
	}
	const dir = "/var/lib/kata-vfio/journal/"
	evidence := []string{
		"/etc/kata-vfio/node.yaml: rule 1 (gpus): exclusive: [Switch]",
		dir + record(tree, "t1", "left").ID() + ".json: " + left.String() + ": tenant " + blue + ", prepared",
		dir + record(tree, "t2", "right").ID() + ".json: " + right.String() + ": tenant unknown, prepared",
	}
	if diff := cmp.Diff(evidence, shown); diff != "" {
		t.Errorf("evidence (-want +got):\n%s", diff)
	}
}

// TestLastTenantKeepsItsDomain: a device that waits for its sanitizing stage is still its last tenant's.
func TestLastTenantKeepsItsDomain(t *testing.T) {
	for name, tt := range map[string]struct {
		after string
		want  finding.State
	}{
		"the same tenant":   {blue, finding.Pass},
		"another tenant":    {red, finding.Fail},
		"an unknown tenant": {"", finding.Fail},
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.Switch(t)
			ofTenants("Switch", blue, red)(tree)
			tree.Put("etc/kata-vfio/node.yaml", strings.Replace(tree.Text("etc/kata-vfio/node.yaml"), "exclusive:", "sanitize: {profile: nvme}, exclusive:", 1))
			tree.Put("etc/kata-vfio/sanitizers.yaml", "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: Sanitizers\nnamespace: kata-vfio-sanitizing\n"+
				"deviceClass: sanitize.kata-vfio.dev\nprofiles:\n- {name: nvme, image: registry.example/s@sha256:"+strings.Repeat("0", 64)+"}\n")
			right := tree.Devices["right"]
			tree.Delete("var/lib/kata-vfio/journal/" + record(tree, "t2", "right").ID() + ".json")
			putJSON(tree, markDir+right.String()+".json", journal.SanitizeMark{
				Address: right, Identity: driveIdentity(tree, right), Since: "2026-11-22T08:00:00Z", Claim: journal.ClaimName{UID: "u", Tenant: tt.after},
			})
			f := found(t, tree, "ACS-019")
			if f.State != tt.want {
				t.Fatalf("%s: %s, want %s", f.State, f.Text, tt.want)
			}
			if !slices.ContainsFunc(f.Evidence, func(e rule.Evidence) bool { return strings.Contains(e.Value, "not sanitized since") }) {
				t.Errorf("no evidence of the mark: %+v", f.Evidence)
			}
		})
	}
}

// TestSwitchBelowAnExclusiveSwitch: two tenants below one switch are never in order, if one of them has a switch in between, too.
func TestSwitchBelowAnExclusiveSwitch(t *testing.T) {
	tree := board.New(t)
	at := func(bus, dev uint8) pci.Address { return pci.Address{Bus: bus, Device: dev} }
	tree.AddRoot(sysfstest.Root{Bus: 0x20})
	tree.AddPort(sysfstest.Port{Address: at(0x20, 1), Secondary: 0x21, Subordinate: 0x26})
	tree.AddSwitch(sysfstest.Switch{Upstream: at(0x21, 0), Secondary: 0x22, Ports: []sysfstest.Port{
		{Address: at(0x22, 0), Secondary: 0x23}, {Address: at(0x22, 1), Secondary: 0x24, Subordinate: 0x26},
	}})
	tree.AddSwitch(sysfstest.Switch{Upstream: at(0x24, 0), Secondary: 0x25, Ports: []sysfstest.Port{{Address: at(0x25, 0), Secondary: 0x26}}})
	for claim, a := range map[string]pci.Address{"left": at(0x23, 0), "right": at(0x26, 0)} {
		tree.Add(sysfstest.GPU(a))
		tree.Give("of-"+claim, claim, a)
	}
	exclusive(tree, "Switch")
	identify(tree, "of-left", "left", blue)
	identify(tree, "of-right", "right", red)
	if findings := of(audit(t, tree), "ACS-019"); !slices.ContainsFunc(findings, func(f finding.Finding) bool {
		return f.Object == "switch 0000:21:00.0" && f.State != finding.Pass && len(f.Devices) == 2
	}) {
		t.Errorf("nothing says that two tenants are below the outer switch: %+v", findings)
	}
}

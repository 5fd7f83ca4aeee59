package guestnet_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/network/guestnet"
)

func report() *guestnet.Report {
	return &guestnet.Report{Changed: true, Interfaces: []guestnet.Interface{
		{
			Claim: "nic", Request: "vf", Device: "node/vf-1", FoundBy: "mac", MAC: macA, PCI: "0000:02:00.0", Carrier: true,
			Name: changed("eth1", "net1"), MTU: changed(1500, 9000), Up: changed(false, true),
			Addresses: []guestnet.Address{{Address: prefix("192.0.2.10/24"), Changed: true}, {Address: prefix("2001:db8::10/64")}},
			Routes: []guestnet.RouteResult{
				{Route: guestnet.Route{To: prefix("0.0.0.0/0"), Via: netip.MustParseAddr("192.0.2.1"), Table: 100, Metric: 5}, Changed: true},
			},
			Rules: []guestnet.RuleResult{{Rule: guestnet.Rule{From: netip.MustParseAddr("192.0.2.10"), Table: 100, Priority: 1000}, Changed: true}},
		},
		{
			Device: "node/vf-2", FoundBy: "pci", MAC: macB, Name: guestnet.Setting[string]{Value: "e\x1b[2J"}, MTU: guestnet.Setting[int]{Value: 1500},
			Routes: []guestnet.RouteResult{{Route: guestnet.Route{To: prefix("10.0.0.0/8"), Table: 254}}, {Route: guestnet.Route{To: prefix("2001:db8::/32"), Table: 254, Metric: 1024}}},
		},
	}}
}

func TestTableShowsWhatIsAndWhatWasChanged(t *testing.T) {
	var out strings.Builder
	if err := report().WriteTable(&out, 0); err != nil {
		t.Fatal(err)
	}
	want := `INTERFACE   MAC                PCI           MTU   LINK  ADDRESSES        ROUTES                                    CHANGED
net1        02:00:5e:10:00:01  0000:02:00.0  9000  up    192.0.2.10/24    default via 192.0.2.1 table 100 metric 5  name (was eth1)
                                                         2001:db8::10/64                                            MTU (was 1500)
                                                                                                                    up
                                                                                                                    192.0.2.10/24
                                                                                                                    default via 192.0.2.1 table 100 metric 5
                                                                                                                    from 192.0.2.10 lookup 100
"e\x1b[2J"  02:00:5e:10:00:02  -             1500  none  -                10.0.0.0/8                                nothing
                                                                          2001:db8::/32
`
	if strings.Contains(out.String(), " \n") {
		t.Errorf("lines end in spaces:\n%q", out.String())
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	dry := report()
	dry.DryRun = true
	out.Reset()
	if err := dry.WriteTable(&out, 0); err != nil || !strings.Contains(out.String(), "WOULD CHANGE") {
		t.Errorf("err %v, table of a dry run:\n%s", err, &out)
	}
}

// TestTableFitsTheTerminal: long routes and changes are wrapped.
func TestTableFitsTheTerminal(t *testing.T) {
	r := report()
	r.Interfaces[0].Routes[0].Metric = 4294967295
	for _, limit := range []int{0, 160} {
		var out strings.Builder
		if err := r.WriteTable(&out, limit); err != nil {
			t.Fatal(err)
		}
		widest := 0
		for line := range strings.Lines(out.String()) {
			widest = max(widest, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
		}
		if limit == 0 && widest < 160 || limit > 0 && widest > limit {
			t.Errorf("limit %d: the widest line has %d characters:\n%s", limit, widest, out.String())
		}
	}
}

func TestDocumentsSayForEachItemWhetherItWasChanged(t *testing.T) {
	var out strings.Builder
	if err := report().WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	wantWords(t, out.String(), `"changed": true,
  "dryRun": false`, `"name": {
        "value": "net1",
        "was": "eth1",
        "changed": true
      }`, `"address": "2001:db8::10/64",
          "changed": false`, `"to": "0.0.0.0/0",
          "via": "192.0.2.1",
          "table": 100,
          "metric": 5,
          "changed": true`, `"from": "192.0.2.10",`, `"unmanaged": {`)
	out.Reset()
	if err := report().WriteYAML(&out); err != nil {
		t.Fatal(err)
	}
	wantWords(t, out.String(), "changed: true\ndryRun: false\n", "    via: 192.0.2.1\n")
}

// full is a disk without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestReportThatCannotBeWrittenIsAnError(t *testing.T) {
	r := report()
	for name, err := range map[string]error{"table": r.WriteTable(full{}, 0), "JSON": r.WriteJSON(full{}), "YAML": r.WriteYAML(full{})} {
		if err == nil || !strings.Contains(err.Error(), "write report") {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

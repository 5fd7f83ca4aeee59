package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	model "github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestNodeReportsAreReadAsTheyCome: as files, as a directory, as a stream, and as
// a log with lines that are cut off.
func TestNodeReportsAreReadAsTheyCome(t *testing.T) {
	tree := unsafeServer(t)
	tree.Put(hostnameFile, "n1\n")
	_, pretty := code(t, "node", "--root", tree.Root(), "-o", "json")
	var line bytes.Buffer
	if err := json.Compact(&line, []byte(pretty)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"a.json": pretty, "b.ndjson": line.String() + "\n" + line.String() + "\n", "c.txt": "nothing"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := line.String()[100:] + "\nI1122 somebody else's line\n" + line.String() + "\n"
	for about, c := range map[string]struct {
		names []string
		stdin string
		want  int
	}{
		"a file":            {[]string{filepath.Join(dir, "a.json")}, "", 1},
		"a directory":       {[]string{dir}, "", 3},
		"a stream":          {[]string{"-"}, pretty + pretty, 2},
		"a log":             {[]string{"-"}, log, 1},
		"several arguments": {[]string{"-", dir}, log, 4},
	} {
		reports, err := fleet.ReadReports(strings.NewReader(c.stdin), c.names, "")
		if err != nil || len(reports) != c.want {
			t.Errorf("%s: %d reports, %v; want %d", about, len(reports), err, c.want)
			continue
		}
		for _, r := range reports {
			if r.Subject.Name != "n1" || r.NodeRecords == nil || len(r.NodeRecords.Claims) != 2 || r.Summary.Verdict != finding.Fail || len(r.Findings) == 0 {
				t.Errorf("%s: %+v", about, r)
			}
		}
	}
	for about, text := range map[string]string{
		"nothing": "", "no JSON": "hello", "a cluster's report": strings.Replace(pretty, `"kind": "node"`, `"kind": "cluster"`, 1),
		"no time": strings.Replace(pretty, `"time": "2`, `"time": "x`, 1), "an unknown state": strings.ReplaceAll(pretty, `"fail"`, `"fails"`),
	} {
		if reports, err := fleet.ReadReports(strings.NewReader(text), []string{"-"}, ""); err == nil {
			t.Errorf("%s: %d reports", about, len(reports))
		}
	}
	if _, err := fleet.ReadReports(nil, []string{t.TempDir()}, ""); err == nil || exitCode(err) != exitUsage {
		t.Errorf("an empty directory: %v", err)
	}
}

func TestReadNamesReportsWithoutAName(t *testing.T) {
	const named, nameless = `{"subject":{"kind":"node","name":"n1","time":"2026-11-22T08:00:00Z"},"findings":[{"id":"OBS-001","state":"fail","severity":"critical"}]}`,
		`{"subject":{"kind":"node","name":"","time":"2026-11-22T08:00:00Z"},"findings":[{"id":"OBS-001","state":"fail","severity":"critical"}]}`
	for about, c := range map[string]struct {
		text, nodeName string
		want           []string
	}{
		"a name is given":       {named + "\n" + nameless, "n2", []string{"n1", "n2"}},
		"of a log":              {"a line\n" + nameless, "n2", []string{"n2"}},
		"no name":               {nameless, "", nil},
		"no name in a log":      {"a line\n" + nameless, "", nil},
		"a name that is a path": {nameless, "../n2", nil},
	} {
		reports, err := fleet.ReadReports(strings.NewReader(c.text), []string{"-"}, c.nodeName)
		if c.want == nil && (exitCode(err) != exitUsage || !strings.Contains(err.Error(), "--node-name")) {
			t.Errorf("%s: %v", about, err)
		}
		var names []string
		for _, r := range reports {
			names = append(names, r.Subject.Name)
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%s: %q, want %q", about, names, c.want)
		}
	}
}

// FuzzNodeReports: what a node says of itself may be anything, and is rolled up or
// refused.
func FuzzNodeReports(f *testing.F) {
	const good = `{"subject":{"kind":"node","name":"n1","time":"2026-11-22T08:00:00Z"},"findings":[{"id":"OBS-001","state":"fail","severity":"critical"}],` +
		`"books":{"claims":[{"uid":"u","since":"x","devices":["0000:3b:00.0"]}],"ledger":{"checkpoint":"kata-vfio.dev/n1 1 AAAA","key":"x"}}}`
	for _, seed := range []string{"", good, good + "\n" + good, good[7:] + "\n" + good, `{"findings":[{}]}`, "[]"} {
		f.Add([]byte(seed))
	}
	profile, _ := finding.ProfileNamed(finding.MultiTenant)
	rules, err := rule.ReadCatalogue()
	if err != nil {
		f.Fatal(err)
	}
	checks, err := cluster.Catalogue(rules)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		reports, err := fleet.ReadReports(bytes.NewReader(data), []string{"-"}, "")
		if err != nil {
			return
		}
		s := &cluster.State{Cluster: &model.Cluster{}, Reports: reports, Nodes: map[string]bool{"n1": true}, Now: time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)}
		if r := cluster.Run(s, checks, finding.Options{Profile: profile, Today: "2026-11-22"}); len(r.Findings) < len(checks) {
			t.Errorf("%d findings", len(r.Findings))
		}
	})
}

// TestPrefixesSayWhichPodWroteAReport: kubectl writes them, before whatever a pod writes. Where it wrote none, a pod could write that of
// another.
func TestPrefixesSayWhichPodWroteAReport(t *testing.T) {
	report := func(node string) string {
		return `{"subject":{"kind":"node","name":"` + node + `","time":"2026-11-22T08:00:00Z"},"findings":[{"id":"OBS-001","state":"fail","severity":"critical"}]}` + "\n"
	}
	const a, b = "[pod/audit-a/audit] ", "[pod/audit-b/audit] "
	for about, c := range map[string]struct {
		log  string
		want []string // node and pod
	}{
		"with prefixes":                   {a + report("n1") + b + report("n2"), []string{"n1 audit-a", "n2 audit-b"}},
		"with lines of other programs":    {a + "a line\n" + a + report("n1"), []string{"n1 audit-a"}},
		"without prefixes":                {report("n1") + "a line\n" + report("n2"), []string{"n1 ", "n2 "}},
		"a prefix that a pod wrote":       {report("n2") + a + report("n1"), []string{"n2 ", "n1 "}},
		"a prefix behind that of its pod": {b + a + report("n1") + b + report("n2"), []string{"n2 audit-b"}},
	} {
		reports, err := fleet.ReadReports(strings.NewReader(c.log), []string{"-"}, "")
		var got []string
		for _, r := range reports {
			got = append(got, r.Subject.Name+" "+r.Source)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", about, got, err, c.want)
		}
	}
	reports, err := fleet.ReadReports(strings.NewReader(a+report("n1")+b+report("n2")+b+report("n1")), []string{"-"}, "")
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	credible, refused := fleet.CredibleReports(reports, now)
	if err != nil || len(credible) != 1 || credible[0].Source != "audit-a" || len(refused) != 2 {
		t.Errorf("%d reports count and %d don't, %v", len(credible), len(refused), err)
	}
	if credible, _ := fleet.CredibleReports(reports, now.Add(-2*time.Hour)); len(credible) > 0 {
		t.Errorf("%d reports from the future count", len(credible))
	}
}

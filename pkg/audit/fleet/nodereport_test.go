package fleet_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// document is a report of a node as JSON on one line, with a finding that has the state, severity and text.
func document(name, state, severity, text string) string {
	return fmt.Sprintf(`{"subject":{"kind":"node","name":%q,"time":"2026-11-22T10:00:00Z"},"findings":[{"id":"RT-001","state":%q,"severity":%q,"text":%q}]}`+"\n", name, state, severity, text)
}

func TestReportsThatAreNotUnderstoodAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want string // of the error; empty if there is none
	}{
		"a failure":                 {document("n1", "fail", "high", "x"), ""},
		"a state of tomorrow":       {document("n1", "maybe", "high", "x"), "state"},
		"a severity of tomorrow":    {document("n1", "fail", "extreme", "x"), "severity"},
		"a report without findings": {`{"subject":{"kind":"node","name":"n1","time":"2026-11-22T10:00:00Z"},"findings":[]}`, "no findings"},
		"a report without a time":   {strings.Replace(document("n1", "fail", "high", "x"), "2026-11-22T10:00:00Z", "yesterday", 1), "time is invalid"},
	} {
		reports, err := fleet.ReadReports(strings.NewReader(tt.text), []string{"-"}, "")
		if tt.want == "" && (err != nil || len(reports) != 1) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: Read = %v, %v, want %q", name, reports, err, tt.want)
		}
	}
}

// A report that has the form of a log's prefix in one of its texts is still one.
func TestTextLikeAPrefixIsText(t *testing.T) {
	log := "a line of another kind\n" + document("n1", "fail", "high", "see [pod/kata-vfio-audit-x/audit] ") + "[pod/audit-2/audit] " + document("n2", "fail", "high", "x")
	reports, err := fleet.ReadReports(strings.NewReader(log), []string{"-"}, "")
	if err != nil || len(reports) != 2 || reports[0].Subject.Name != "n1" || reports[1].Subject.Name != "n2" {
		t.Fatalf("Read = %v, %v, want the reports of n1 and n2", reports, err)
	}
	for _, r := range reports {
		if r.Source != "" {
			t.Errorf("the report of %s is of pod %s, though a line of the log has no prefix", r.Subject.Name, r.Source)
		}
	}
}

// Of a directory only regular files are read: a link may lead anywhere.
func TestDirectoryOfReportsHasFilesOnly(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{filepath.Join(outside, "other.json"): document("other", "fail", "high", "x"), filepath.Join(dir, "n1.json"): document("n1", "fail", "high", "x")} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(outside, "other.json"), filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "below.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	reports, err := fleet.ReadReports(nil, []string{dir}, "")
	if err != nil || len(reports) != 1 || reports[0].Subject.Name != "n1" {
		t.Errorf("Read = %v, %v, want the report of n1 alone", reports, err)
	}
}

// checkpoint is a signed one of a ledger, as a report has it.
func checkpoint(t *testing.T, origin string) string {
	t.Helper()
	secret, _, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := ledger.Chain{}.Checkpoint(origin).Sign(signer)
	if err != nil {
		t.Fatal(err)
	}
	return ledger.OneLine(signed)
}

// A report that was written under another name is of the node whose ledger it has, if the cluster has that node.
func TestReportIsOfTheNodeOfItsLedger(t *testing.T) {
	n1, gone := checkpoint(t, ledger.OriginPrefix+"n1"), checkpoint(t, ledger.OriginPrefix+"gone")
	for name, tt := range map[string]struct {
		subject, checkpoint, want string
	}{
		"its own name":           {"n2", n1, "n2"},
		"a host's name":          {"host.example.com", n1, "n1"},
		"a ledger of no node":    {"host.example.com", gone, "host.example.com"},
		"two checkpoints":        {"host.example.com", n1 + "\n" + checkpoint(t, ledger.OriginPrefix+"n2"), "host.example.com"},
		"no checkpoint":          {"host.example.com", "", "host.example.com"},
		"a text like checkpoint": {"host.example.com", "kata-vfio.dev/n1", "host.example.com"},
	} {
		r := &finding.Report{NodeRecords: &finding.NodeRecords{Ledger: &finding.LedgerRecord{Checkpoint: tt.checkpoint}}}
		r.Subject.Name = tt.subject
		if got := fleet.FindNode(r, func(name string) bool { return name == "n1" || name == "n2" }); got != tt.want {
			t.Errorf("%s: FindNode = %s, want %s", name, got, tt.want)
		}
	}
}

func TestReportIsOfItsTime(t *testing.T) {
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]string{
		0: "", fleet.MaxAge: "", fleet.MaxAge + time.Hour: "was audited 25h0m0s ago",
		-fleet.ClockSkew: "", -fleet.ClockSkew - time.Second: "from the future",
	} {
		at := now.Add(-age)
		r := fleet.NodeReport{At: at}
		if got := r.Untimely(now); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("of a report that is %s old: %q, want %q", age, got, want)
		}
		report := &finding.Report{}
		report.Subject.Time = at.Format(time.RFC3339)
		credible, refused := fleet.CredibleReports([]*finding.Report{report}, now)
		if future := age < -fleet.ClockSkew; len(refused) == 1 != future || len(credible) == 1 == future {
			t.Errorf("of a report that is %s old: %d credible, %d refused", age, len(credible), len(refused))
		}
	}
}

// A pod that writes reports of several nodes is believed for none of them; where it is not known who wrote them, all are.
func TestPodIsBelievedForOneNode(t *testing.T) {
	reportOf := func(node, source string) *finding.Report {
		r := &finding.Report{Source: source}
		r.Subject.Name, r.Subject.Time = node, "2026-11-22T10:00:00Z"
		return r
	}
	for name, tt := range map[string]struct {
		reports []*finding.Report
		refused int
	}{
		"each its own":   {[]*finding.Report{reportOf("n1", "a"), reportOf("n2", "b"), reportOf("n1", "a")}, 0},
		"one for two":    {[]*finding.Report{reportOf("n1", "a"), reportOf("n2", "a"), reportOf("n3", "b")}, 2},
		"unknown source": {[]*finding.Report{reportOf("n1", ""), reportOf("n2", "")}, 0},
	} {
		credible, refused := fleet.CredibleReports(tt.reports, time.Date(2026, 11, 22, 11, 0, 0, 0, time.UTC))
		if len(refused) != tt.refused || len(credible) != len(tt.reports)-tt.refused {
			t.Errorf("%s: %d credible, %d refused, want %d refused", name, len(credible), len(refused), tt.refused)
		}
	}
}

// TestPassesLeaveTheirIDs: without its finding, a check that passed is told from one that was not made.
func TestPassesLeaveTheirIDs(t *testing.T) {
	const text = `{"subject":{"kind":"node","name":"n1","time":"2026-11-22T10:00:00Z"},"findings":[{"id":"RT-001","state":"fail","severity":"high"},` +
		`{"id":"RT-003","state":"pass","severity":"high"},{"id":"RT-002","state":"notapplicable","severity":"high"},` +
		`{"id":"RT-003","state":"pass","severity":"high"}]}`
	reports, err := fleet.ReadReports(strings.NewReader(text), []string{"-"}, "")
	if err != nil || len(reports) != 1 {
		t.Fatalf("Read = %v, %v, want one report", reports, err)
	}
	if r := reports[0]; len(r.Findings) != 1 || !slices.Equal(r.Passed, []string{"RT-002", "RT-003"}) {
		t.Errorf("findings %v, passed %q; want the failure, and RT-002 and RT-003", r.Findings, r.Passed)
	}
}

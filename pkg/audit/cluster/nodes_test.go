package cluster_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// audited is when nodes are audited, an hour before the cluster is.
func audited() time.Time { return time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC) }

// readReport returns the report of a board's own audit, as a node of that name.
func reportOf(t *testing.T, tree *board.Tree, node string) *finding.Report {
	t.Helper()
	fsys, s := tree.Read()
	t.Cleanup(func() { _ = fsys.Close() })
	all, err := check.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	profile, _ := finding.ProfileNamed(finding.MultiTenant)
	r := check.Run(facts.New(fsys, s), all, check.Options{Profile: profile, Today: "2026-11-22"})
	r.Subject = finding.Subject{Kind: "node", Name: node, Time: audited().Format(time.RFC3339)}
	return r
}

// claims are a node's claims by the API server, ready since the morning, with
// the checkpoint that they were given.
func claimsOf(r *finding.Report, checkpoint string) []resourceapi.ResourceClaim {
	var claims []resourceapi.ResourceClaim
	for _, b := range r.NodeRecords.Claims {
		c := claim(b.Namespace, b.Name)
		c.UID = types.UID(b.UID)
		pool := r.Subject.Name
		c.Status.Devices, c.Status.Allocation.Devices.Results = nil, nil
		for i, a := range b.Devices {
			data, _ := json.Marshal(map[string]string{"address": a.String(), "ledger": checkpoint})
			name := fmt.Sprintf("device-%d", i)
			c.Status.Devices = append(c.Status.Devices, resourceapi.AllocatedDeviceStatus{
				Driver: driver, Pool: pool, Device: name, Data: &runtime.RawExtension{Raw: data},
				Conditions: []metav1.Condition{{Type: "Ready", Status: "True", LastTransitionTime: metav1.NewTime(audited().Add(-2 * time.Hour))}},
			})
			c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{Driver: driver, Pool: pool, Device: name})
		}
		claims = append(claims, c)
	}
	return claims
}

// withNodes is a good cluster of which two nodes have been audited.
func withNodes(t *testing.T) (s *world, server *board.Tree) {
	t.Helper()
	server = board.Server(t)
	empty := board.New(t)
	empty.Name = "n2"
	empty.Delete(ledger.DefaultDir)
	empty.NewLedger()
	empty.Record(ledger.Event{Type: ledger.Start})
	first, second := reportOf(t, server, "n1"), reportOf(t, empty, "n2")
	second.Findings = slices.DeleteFunc(second.Findings, func(f finding.Finding) bool { return f.State == finding.Fail }) // it has no IOMMU
	second.Finish()
	before := *second
	before.Subject.Time = audited().Add(-time.Hour).Format(time.RFC3339)
	s = good()
	s.Nodes["n2"] = true
	s.Now, s.Reports = audited().Add(time.Hour), []*finding.Report{second, &before, first}
	s.Written = map[types.UID]time.Time{}
	s.Claims = claimsOf(first, first.NodeRecords.Ledger.Checkpoint)
	for i := range s.Claims {
		s.Written[s.Claims[i].UID] = audited().Add(-2 * time.Hour)
	}
	s.Pods = nil
	return s, server
}

func statesOf(r *finding.Report) (states map[string]finding.State, texts map[string]string) {
	states, texts = map[string]finding.State{}, map[string]string{}
	for _, f := range slices.Backward(r.Findings) { // the worst last
		states[f.ID] = f.State
		texts[f.ID] += f.Object + ": " + f.Text + "; "
	}
	return states, texts
}

func TestGoodNodesOfAGoodCluster(t *testing.T) {
	s, _ := withNodes(t)
	states, texts := statesOf(judge(s))
	for _, id := range []string{"K8S-024", "K8S-025", "K8S-026", "K8S-027", "K8S-029"} {
		if states[id] != finding.Pass {
			t.Errorf("%s is %s: %s", id, states[id], texts[id])
		}
	}
	s.Reports = nil
	for _, id := range []string{"K8S-024", "K8S-025", "K8S-026", "K8S-027", "K8S-029"} {
		if states, _ := statesOf(judge(s)); states[id] != finding.NotApplicable {
			t.Errorf("without reports %s is %s", id, states[id])
		}
	}
}

// nodeFault is one thing that is wrong with the nodes of a cluster, or between them
// and the API server.
type nodeFault struct {
	rule, about string
	plant       func(t *testing.T, s *world, server *board.Tree)
	state       finding.State
	says        string
}

// reportNamed returns the report of a node.
func reportNamed(s *world, node string) *finding.Report {
	i := slices.IndexFunc(s.Reports, func(r *finding.Report) bool { return r.Subject.Name == node })
	return s.Reports[i]
}

func nodeFaults() []nodeFault {
	return []nodeFault{
		{rule: "K8S-024", about: "a node without a report", says: "node n1", plant: func(_ *testing.T, s *world, _ *board.Tree) { s.Reports = s.Reports[:2] }},
		{rule: "K8S-024", about: "an old report", says: "26h", plant: func(_ *testing.T, s *world, _ *board.Tree) { s.Now = audited().Add(26 * time.Hour) }},
		{rule: "K8S-024", about: "a report of tomorrow", says: "future", plant: func(_ *testing.T, s *world, _ *board.Tree) { s.Now = audited().Add(-time.Hour) }},
		{rule: "K8S-024", about: "a node that nobody knows", says: "is not in the cluster", plant: func(_ *testing.T, s *world, _ *board.Tree) { delete(s.Nodes, "n2") }},
		{rule: "K8S-024", about: "a report in another node's name", says: "node n2 wrote a report in the name of node n1, by its pod audit-2", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			s.Auditors = map[string]string{"audit-1": "n1", "audit-2": "n2"}
			s.Reports = append(s.Reports, inNameOf(s, "n1", "audit-2", 0))
		}},
		{rule: "K8S-024", about: "a report of an unknown pod", says: "pod gone", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			s.Reports = append(s.Reports, inNameOf(s, "n1", "gone", 0))
		}},
		{rule: "K8S-024", about: "a report of its own pod", state: finding.Pass, plant: func(_ *testing.T, s *world, _ *board.Tree) {
			s.Auditors = map[string]string{"audit-1": "n1"}
			reportNamed(s, "n1").Source = "audit-1"
		}},
		{rule: "K8S-024", about: "reports that contradict each other", says: "IOM-003 fails in one and not in the latest", plant: maskNoIOMMU("", "", time.Minute)},
		{rule: "IOM-003", about: "a failure that a later report hides", says: "n1", plant: maskNoIOMMU("", "", time.Minute)},
		{rule: "IOM-003", about: "a failure that another node's pod hides", says: "n1", plant: maskNoIOMMU("audit-1", "audit-2", time.Minute)},
		{rule: "IOM-003", about: "a failure that a report of the future hides", says: "n1", plant: maskNoIOMMU("", "", 3*time.Hour)},
		{rule: "K8S-024", about: "a failure that a failure of another device hides", says: "VFIO-001 fails in one and not in the latest", plant: maskDevice},
		{rule: "K8S-025", about: "a failure in place of what is unknown of its device alone", says: "has 2 failures: 2 critical; 1 unknown", plant: maskDevice},
		{rule: "K8S-024", about: "a repair that the node's own pod reports", state: finding.Pass, plant: maskNoIOMMU("audit-1", "audit-1", time.Minute)},
		{rule: "K8S-025", about: "a node that fails", says: "node n1: node n1 has 1 failure: 1 critical", plant: func(t *testing.T, s *world, server *board.Tree) {
			server.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
			*reportNamed(s, "n1") = *reportOf(t, server, "n1")
		}},
		{rule: "K8S-025", about: "a failure in place of what a later report can't tell", says: "node n1: node n1 has 1 failure: 1 critical; 0 unknown, 0 waived", plant: func(t *testing.T, s *world, server *board.Tree) {
			maskNoIOMMU("", "", time.Minute)(t, s, server)
			of := func(f finding.Finding) bool { return f.ID == "IOM-003" }
			failed, later := reportNamed(s, "n1"), s.Reports[len(s.Reports)-1]
			silent := failed.Findings[slices.IndexFunc(failed.Findings, of)]
			silent.State = finding.Unknown
			later.Findings = append(slices.DeleteFunc(later.Findings, of), silent)
			later.Finish()
		}},
		{rule: "K8S-025", about: "a node that can't tell", state: finding.Unknown, says: "node n1", plant: func(t *testing.T, s *world, server *board.Tree) {
			server.Delete("run/kata-vfio/acs.json")
			r := reportOf(t, server, "n1")
			r.Findings = slices.DeleteFunc(r.Findings, func(f finding.Finding) bool { return f.State == finding.Fail })
			r.Finish()
			*reportNamed(s, "n1") = *r
		}},
		{rule: "K8S-026", about: "the node does not know a claim", says: "journal does not know it", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			b := reportNamed(s, "n1").NodeRecords
			b.Claims = b.Claims[1:]
		}},
		{rule: "K8S-026", about: "other functions", says: "has other functions", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			reportNamed(s, "n1").NodeRecords.Claims[0].Devices = nil
		}},
		{rule: "K8S-026", about: "a quarantine", says: "quarantine", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			reportNamed(s, "n1").NodeRecords.Claims[0].State = "quarantined"
		}},
		{rule: "K8S-026", about: "another claim of the name", says: "had been deleted before", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			s.Claims[0].UID, s.Claims[0].Status.Devices = "new", nil
		}},
		{rule: "K8S-026", about: "a claim on two nodes", says: "at one time", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			reportNamed(s, "n2").NodeRecords.Claims = append(reportNamed(s, "n2").NodeRecords.Claims, reportNamed(s, "n1").NodeRecords.Claims[0])
		}},
		{rule: "K8S-026", about: "a claim that came since", state: finding.Pass, plant: func(_ *testing.T, s *world, _ *board.Tree) {
			b := reportNamed(s, "n1").NodeRecords
			gone := b.Claims[0]
			b.Claims = b.Claims[1:]
			for i := range s.Claims {
				for j := range s.Claims[i].Status.Devices {
					if string(s.Claims[i].UID) == gone.UID {
						s.Claims[i].Status.Devices[j].Conditions[0].LastTransitionTime = metav1.NewTime(audited().Add(time.Minute))
					}
				}
			}
		}},
		{rule: "K8S-026", about: "an older version's report", state: finding.Unknown, plant: func(_ *testing.T, s *world, _ *board.Tree) { reportNamed(s, "n1").NodeRecords = nil }},
		{rule: "K8S-029", about: "no overhead", says: "node n1 gives each VM of handler kata-gpu 8192 MiB", plant: func(_ *testing.T, s *world, _ *board.Tree) { s.RuntimeClasses[0].Overhead = nil }},
		{rule: "K8S-029", about: "an overhead of less than the VM takes", says: "the overhead of RuntimeClass kata-gpu is 8Gi", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			s.RuntimeClasses[0].Overhead.PodFixed["memory"] = resource.MustParse("8Gi")
		}},
		{rule: "K8S-029", about: "a VM of its own cgroup", state: finding.Pass, plant: func(t *testing.T, s *world, server *board.Tree) {
			s.RuntimeClasses[0].Overhead = nil
			server.AddToKata("[runtime]\nsandbox_cgroup_only = false\n")
			reportNamed(s, "n1").Kata = reportOf(t, server, "n1").Kata
		}},
		{rule: "K8S-029", about: "a handler that the node lacks", says: "node n1 has no handler kata-other", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			s.RuntimeClasses[0].Handler = "kata-other"
		}},
		{rule: "K8S-029", about: "settings that are not understood", state: finding.Unknown, says: "99-fault.toml", plant: func(t *testing.T, s *world, server *board.Tree) {
			server.AddToKata("=")
			reportNamed(s, "n1").Kata = reportOf(t, server, "n1").Kata
		}},
		{rule: "K8S-029", about: "an older version's report", state: finding.Unknown, plant: func(_ *testing.T, s *world, _ *board.Tree) { reportNamed(s, "n1").Kata = nil }},
		{rule: "K8S-029", about: "a node without devices", state: finding.NotApplicable, plant: func(_ *testing.T, s *world, _ *board.Tree) { s.Slices = nil }},
		{rule: "K8S-027", about: "no checkpoint anywhere", state: finding.Unknown, says: "node n1", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			for i := range s.Claims {
				for j := range s.Claims[i].Status.Devices {
					s.Claims[i].Status.Devices[j].Data = nil
				}
			}
		}},
		{rule: "K8S-027", about: "an older ledger was put back", says: "cut off", plant: func(t *testing.T, s *world, server *board.Tree) {
			server.Record(ledger.Event{Type: ledger.Start})
			s.Claims = claimsOf(reportNamed(s, "n1"), reportOf(t, server, "n1").NodeRecords.Ledger.Checkpoint)
		}},
		{rule: "K8S-027", about: "the ledger went on since", state: finding.Pass, plant: func(t *testing.T, s *world, server *board.Tree) {
			server.Record(ledger.Event{Type: ledger.Start})
			s.Claims = claimsOf(reportNamed(s, "n1"), reportOf(t, server, "n1").NodeRecords.Ledger.Checkpoint)
			for i := range s.Claims {
				s.Written[s.Claims[i].UID] = audited().Add(time.Minute)
			}
		}},
		{rule: "K8S-027", about: "a new key", says: "another key", plant: func(t *testing.T, s *world, server *board.Tree) {
			server.Delete(ledger.DefaultDir)
			server.NewLedger()
			server.Record(ledger.Event{Type: ledger.Start})
			*reportNamed(s, "n1") = *reportOf(t, server, "n1")
		}},
		{rule: "K8S-027", about: "a ledger written anew with the old key", says: "has other events", plant: func(t *testing.T, s *world, server *board.Tree) {
			rewrite(t, server)
			*reportNamed(s, "n1") = *reportOf(t, server, "n1")
		}},
		{rule: "K8S-027", about: "another node's words about its ledger", state: finding.Pass, plant: func(_ *testing.T, s *world, _ *board.Tree) {
			s.Claims = append(s.Claims, wordsOf("n2", "n1", s))
		}},
		{rule: "K8S-027", about: "its own words about its ledger", says: "another key", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			s.Claims = append(s.Claims, wordsOf("n1", "n1", s))
		}},
		{rule: "K8S-027", about: "no ledger any more", says: "node n2 has signed checkpoints, and its report has no ledger", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			setLedger(s, "n2", nil)
		}},
		{rule: "K8S-027", about: "a checkpoint that was edited", says: "node n2 has signed checkpoints", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			setLedger(s, "n2", &finding.LedgerRecord{Checkpoint: "edited"})
		}},
		{rule: "K8S-027", about: "no ledger in the only report, and a checkpoint in a claim", says: "node n2 has signed checkpoints", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			s.Claims = append(s.Claims, wordsOf("n2", "n2", s))
			setLedger(s, "n2", nil)
			s.Reports = slices.Delete(s.Reports, 1, 2)
		}},
		{rule: "K8S-027", about: "a ledger that is not read", state: finding.Unknown, says: "its audit could not read the ledger to compare them", plant: func(t *testing.T, s *world, _ *board.Tree) {
			tree := board.New(t)
			unreadLedger(t, tree)
			*reportNamed(s, "n2") = *reportOf(t, tree, "n2")
		}},
		{rule: "K8S-027", about: "a ledger that is deleted", says: "node n2 has signed checkpoints, and its report has no ledger", plant: func(t *testing.T, s *world, _ *board.Tree) {
			tree := board.New(t)
			tree.Delete(ledger.DefaultDir)
			*reportNamed(s, "n2") = *reportOf(t, tree, "n2")
		}},
		{rule: "K8S-027", about: "an archive without the ledger", state: finding.Unknown, says: "node n2 has signed checkpoints", plant: func(_ *testing.T, s *world, _ *board.Tree) {
			setLedger(s, "n2", nil)
			reportNamed(s, "n2").Subject.Kind = "archive"
		}},
		{rule: "K8S-027", about: "a node that never had a ledger", state: finding.Pass, plant: func(_ *testing.T, s *world, _ *board.Tree) {
			setLedger(s, "n2", nil)
			s.Reports = slices.Delete(s.Reports, 1, 2)
		}},
		{rule: "K8S-027", about: "an older report vouches for it", state: finding.Pass, plant: func(t *testing.T, s *world, server *board.Tree) {
			older := *reportNamed(s, "n1")
			older.Subject.Time = audited().Add(-time.Hour).Format(time.RFC3339)
			server.Record(ledger.Event{Type: ledger.Start})
			s.Reports, s.Claims = []*finding.Report{&older, reportOf(t, server, "n1")}, nil
		}},
	}
}

// setLedger changes the ledger of the latest report of a node; the node's older report keeps its own.
func setLedger(s *world, node string, to *finding.LedgerRecord) {
	r := reportNamed(s, node)
	records := *r.NodeRecords
	records.Ledger = to
	r.NodeRecords = &records
}

// unreadLedger makes an audit unable to read the events: they are a directory.
func unreadLedger(t *testing.T, tree *board.Tree) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(tree.Root(), ledger.DefaultDir, "*.jsonl"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("the ledger has the segments %q, %v", segments, err)
	}
	if err := errors.Join(os.Remove(segments[0]), os.Mkdir(segments[0], 0o700)); err != nil {
		t.Fatal(err)
	}
}

// inNameOf is a copy of a node's report that a pod wrote some time later.
func inNameOf(s *world, node, pod string, later time.Duration) *finding.Report {
	r := *reportNamed(s, node)
	r.Subject.Time, r.Source = audited().Add(later).Format(time.RFC3339), pod
	return &r
}

// maskNoIOMMU has node n1 report a critical failure by one pod, and another report in its name without the failure.
func maskNoIOMMU(by, masked string, later time.Duration) func(*testing.T, *world, *board.Tree) {
	return func(t *testing.T, s *world, server *board.Tree) {
		good := inNameOf(s, "n1", masked, later)
		server.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
		*reportNamed(s, "n1") = *reportOf(t, server, "n1")
		reportNamed(s, "n1").Source = by
		s.Auditors = map[string]string{"audit-1": "n1", "audit-2": "n2"}
		s.Reports = append(s.Reports, good)
	}
}

// maskDevice has node n1 report a failure of one device, and another report in its name with a failure of another device by the same rule.
func maskDevice(_ *testing.T, s *world, _ *board.Tree) {
	of := func(address string, state finding.State) finding.Finding {
		a, _ := pci.ParseAddress(address)
		return finding.Finding{ID: "VFIO-001", State: state, Severity: rule.Critical, Exposure: finding.Allocated, Device: &a}
	}
	failed, later := reportNamed(s, "n1"), inNameOf(s, "n1", "", time.Minute)
	failed.Findings = []finding.Finding{of("0000:3b:00.0", finding.Fail)}
	later.Findings = []finding.Finding{of("0000:41:00.0", finding.Fail), of("0000:3b:00.0", finding.Unknown), of("0000:5e:00.0", finding.Unknown)}
	failed.Finish()
	later.Finish()
	s.Reports = append(s.Reports, later)
}

// splitWords is a claim with a device of a node, whose status has a checkpoint of another node's ledger that no key has signed.
func wordsOf(node, about string, s *world) resourceapi.ResourceClaim {
	origin := strings.Fields(reportNamed(s, about).NodeRecords.Ledger.Checkpoint)[0]
	forged := origin + " 3 " + strings.Repeat("A", 43) + "= — " + origin + " " + strings.Repeat("A", 96)
	data, _ := json.Marshal(map[string]string{"address": "0000:01:00.0", "ledger": forged})
	c := claim("team-c", "bait")
	c.UID = "bait"
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: driver, Pool: node, Device: "gpu-0000-01-00-0", Data: &runtime.RawExtension{Raw: data},
		Conditions: []metav1.Condition{{Type: "Ready", Status: "True", LastTransitionTime: metav1.NewTime(s.Now)}},
	}}
	return c
}

// rewrite writes a ledger again with the same key, as root on the node can:
// as many events, and another tenant.
func rewrite(t *testing.T, tree *board.Tree) {
	t.Helper()
	var events []ledger.Event
	for e, err := range ledger.Events(os.DirFS(tree.Path(ledger.DefaultDir))) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Event.Claim != nil {
			e.Event.Claim.Namespace = "someone-else"
		}
		events = append(events, *e.Event)
	}
	keys := map[string]string{}
	for _, name := range []string{ledger.PrivateKeyFile, ledger.PublicKeyFile} {
		keys[name] = tree.Text(ledger.DefaultDir + "/" + name)
	}
	tree.Delete(ledger.DefaultDir)
	for name, text := range keys {
		tree.Put(ledger.DefaultDir+"/"+name, text)
	}
	tree.NewLedger()
	tree.Record(events...)
}

func TestNodesAndTheClusterTogether(t *testing.T) {
	for _, f := range nodeFaults() {
		t.Run(f.rule+"/"+f.about, func(t *testing.T) {
			s, server := withNodes(t)
			f.plant(t, s, server)
			want := finding.Fail
			if f.state != "" {
				want = f.state
			}
			states, texts := statesOf(judge(s))
			if states[f.rule] != want || !strings.Contains(texts[f.rule], f.says) {
				t.Errorf("%s is %s, want %s with %q: %s", f.rule, states[f.rule], want, f.says, texts[f.rule])
			}
		})
	}
}

// TestSameOnManyNodesIsSaidOnce: with the nodes' names, whose tenants add up, and
// waivers that are about a node's own object count.
func TestSameOnManyNodesIsSaidOnce(t *testing.T) {
	s, server := withNodes(t)
	server.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
	one := reportOf(t, server, "n1")
	s.Reports = nil
	for i := range 11 {
		r := *one
		r.Subject.Name = fmt.Sprintf("n%02d", i)
		s.Nodes[r.Subject.Name] = true
		s.Reports = append(s.Reports, &r)
	}
	of := func(r *finding.Report) []finding.Finding {
		return slices.DeleteFunc(slices.Clone(r.Findings), func(f finding.Finding) bool { return f.ID != "IOM-003" })
	}
	found := of(judge(s))
	if len(found) != 1 || !strings.HasPrefix(found[0].Object, "11 nodes (n00, n01") || !strings.Contains(found[0].Object, "and 3 more") || found[0].Exposure != finding.Allocated {
		t.Errorf("rolled up as %+v", found)
	}
	if states, texts := statesOf(judge(s)); states["OBS-002"] != "" {
		t.Errorf("what K8S-027 answers is asked of a person: %s", texts["OBS-002"])
	}
	profile, _ := finding.ProfileNamed(finding.MultiTenant)
	accepted := []finding.Waiver{{Rule: "IOM-003", Scope: "*", Until: "2026-12-31"}}
	if found := of(cluster.Run(s.state(), checks(), finding.Options{Profile: profile, Waivers: accepted, Today: "2026-11-22"})); len(found) != 1 || found[0].State != finding.Waived {
		t.Errorf("with a waiver %+v", found)
	}
}

// TestSummaryOfANodeExposesNoMoreThanItsReport, though the cluster has several tenants with devices.
func TestSummaryOfANodeExposesNoMoreThanItsReport(t *testing.T) {
	for name, tt := range map[string]struct {
		state finding.State
		want  finding.Exposure
	}{
		"fails":      {finding.Fail, finding.WouldBePublished},
		"can't tell": {finding.Unknown, finding.WouldBePublished},
		"an error":   {finding.Error, finding.WouldBePublished},
	} {
		s, _ := withNodes(t)
		r := reportNamed(s, "n1")
		r.Findings = []finding.Finding{
			{ID: "IOM-003", State: tt.state, Severity: rule.High, Exposure: finding.WouldBePublished},
			{ID: "IOM-004", State: tt.state, Severity: rule.High, Exposure: finding.Unexposed},
			{ID: "IOM-005", State: finding.Pass, Exposure: finding.CrossTenant},
		}
		r.Finish()
		got := finding.Exposure("no finding")
		for _, f := range judge(s).Findings {
			if f.ID == "K8S-025" && f.Object == "node n1" {
				got = f.Exposure
			}
		}
		if got != tt.want {
			t.Errorf("a node that %s: exposure %s, want %s", name, got, tt.want)
		}
		for i := range r.Findings {
			r.Findings[i].Exposure = ""
		}
		for _, f := range judge(s).Findings {
			if f.ID == "K8S-025" && f.Object == "node n1" && f.Exposure != finding.CrossTenant {
				t.Errorf("a node that %s, by a report without exposures: exposure %q, want %s", name, f.Exposure, finding.CrossTenant)
			}
		}
	}
}

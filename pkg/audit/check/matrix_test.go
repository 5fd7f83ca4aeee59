package check_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// fault is one thing that is wrong with a node, and which rule has to say so.
type fault struct {
	rule string
	// about is the fault in a few words.
	about string
	board func(testing.TB) *board.Tree
	plant func(*board.Tree)
	// device is the name of the device that the finding names; empty for any.
	device string
	// state is Fail if empty; Pass is for what looks like a fault and is none.
	state finding.State
}

// faults returns all faults, at least one for each rule that can fail.
func faults() []fault {
	return slices.Concat(iommuFaults(), acsFaults(), vfioFaults(), resetFaults(), gpuFaults(), sliceFaults(), fabricManagerFaults(), partitionFaults(),
		nicFaults(), nicPortFaults(), hostFaults(), runtimeFaults(), guestMemoryFaults(), cdiFaults(), confidentialFaults(), confidentialGuestFaults(), observationFaults(),
		romFaults(), bmcFaults(), numaFaults(), gpuNodeFaults(), gpuInContainerFaults(), vfioKataFaults(), runningFaults(), topologyFaults(), unseenFaults(), neighborFaults(),
		[]fault{kataFault("RT-011", "rootless", "[hypervisor.qemu]\nrootless = true\n")})
}

// audit judges the node of a tree.
func audit(tb testing.TB, tree *board.Tree) *finding.Report {
	tb.Helper()
	report, _ := auditNode(tb, tree)
	return report
}

// catalogue is parsed once for hundreds of nodes.
var catalogue = sync.OnceValues(check.Catalogue)

// checks returns all checks of a node.
func checks(tb testing.TB) []check.Check {
	tb.Helper()
	all, err := catalogue()
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// auditNode also returns the node, which has read the files of the checks.
func auditNode(tb testing.TB, tree *board.Tree) (*finding.Report, *facts.Node) {
	tb.Helper()
	fsys, err := sysfs.Open(tree.Root())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = fsys.Close() })
	s, err := inventory.Scan(tb.Context(), fsys)
	if err != nil {
		tb.Fatal(err)
	}
	profile, _ := finding.ProfileNamed(finding.MultiTenant)
	n := facts.New(fsys, s)
	return check.Run(n, checks(tb), check.Options{Profile: profile, Today: "2026-11-22"}), n
}

// TestMatrix: no rule fails on a board in good order, each that can pass does on
// one at least, and each finds what is planted. Each selected function that no claim can
// get has a failing finding. It prints which rule says what about which object.
func TestMatrix(t *testing.T) {
	good := map[string]map[string]finding.State{"planted": {}}
	for _, b := range board.All() {
		good[b.Name] = map[string]finding.State{}
		for _, f := range audit(t, b.Build(t)).Findings {
			hasEvidence(t, &f)
			if f.State == finding.Fail || f.State == finding.Error {
				t.Errorf("%s: %s cries wolf: %s", b.Name, f.ID, f.Text)
			}
			if was, ok := good[b.Name][f.ID]; !ok || f.State.Compare(was) < 0 {
				good[b.Name][f.ID] = f.State
			}
		}
	}
	found, refused := map[string]int{}, map[rule.Code]int{}
	for _, planted := range faults() {
		t.Run(planted.rule+"/"+planted.about, func(t *testing.T) {
			tree := planted.board(t)
			planted.plant(tree)
			report, n := auditNode(t, tree)
			eachRefusalIsFound(t, n, report.Findings, refused)
			switch {
			case !planted.find(t, tree, report.Findings):
			case planted.state == finding.Pass:
				good["planted"][planted.rule] = finding.Pass
			default:
				found[planted.rule]++
			}
		})
	}
	for _, code := range []rule.Code{rule.NotIsolated, rule.NoReset, rule.GroupNotViable} {
		if refused[code] == 0 {
			t.Errorf("no fault makes a function %s", code)
		}
	}
	printMatrix(t, good, found)
}

// find reports whether the fault's rule is among the findings of the tree that has it.
func (p *fault) find(t *testing.T, tree *board.Tree, findings []finding.Finding) bool {
	t.Helper()
	want := finding.Fail
	if p.state != "" {
		want = p.state
	}
	var said []string
	for _, f := range findings {
		hasEvidence(t, &f)
		saysWhatIsWrong(t, &f)
		if f.Exposure == finding.CrossTenant && len(f.Tenants) < 2 {
			t.Errorf("%s is said to be between tenants, and names %v: %s", f.ID, f.Tenants, f.Text)
		}
		if f.ID != p.rule {
			continue
		}
		right := p.device == "" || f.Device != nil && *f.Device == tree.Devices[p.device]
		if f.State == want && right {
			return true
		}
		said = append(said, fmt.Sprintf("%s: %s", f.State, f.Text))
	}
	t.Errorf("%s does not find it; it says %s", p.rule, strings.Join(said, "; "))
	return false
}

// saysWhatIsWrong holds that what fails says what is wrong in place of how it should be,
// and what to do.
func saysWhatIsWrong(t *testing.T, f *finding.Finding) {
	t.Helper()
	same := strings.EqualFold(strings.TrimSpace(f.Text), f.Title)
	if f.State == finding.Fail && (f.Text == "" || same) {
		t.Errorf("%s fails and shows its title: %q", f.ID, f.Text)
	}
	if f.State == finding.Fail && f.Remediation == "" {
		t.Errorf("%s fails and says nothing to do: %q", f.ID, f.Text)
	}
}

// hasEvidence holds that what passes or fails says by what, and by which privilege
// that was read.
func hasEvidence(t *testing.T, f *finding.Finding) {
	t.Helper()
	if (f.State == finding.Pass || f.State == finding.Fail) && len(f.Evidence) == 0 {
		t.Errorf("%s has no evidence: %s: %s", f.ID, f.State, f.Text)
	}
	const most = 64
	if f.State == finding.Pass && len(f.Evidence) > most {
		t.Errorf("%s has evidence without end: %d", f.ID, len(f.Evidence))
	}
	for _, e := range f.Evidence {
		beyondHead := e.How == "config" && strings.Contains(e.Value, "apability")
		others := strings.HasSuffix(e.Path, "/fd") || strings.HasSuffix(e.Path, "/maps")
		if (beyondHead || e.How == "process" && others) && e.Needs == "" {
			t.Errorf("%s does not say what it takes to read %s", f.ID, e.Path)
		}
	}
}

func printMatrix(t *testing.T, good map[string]map[string]finding.State, found map[string]int) {
	t.Helper()
	for _, c := range checks(t) {
		line, passes := c.ID, good["planted"][c.ID] == finding.Pass
		for _, b := range board.All() {
			line += fmt.Sprintf("  %s %s", b.Name, good[b.Name][c.ID])
			passes = passes || good[b.Name][c.ID] == finding.Pass || c.Rule.Static
		}
		t.Logf("%s  planted faults found: %d", line, found[c.ID])
		if !passes {
			t.Errorf("%s passes on no board", c.ID)
		}
		if found[c.ID] == 0 {
			t.Errorf("%s is never seen to fail; plant its fault in the faults of the group's test", c.ID)
		}
	}
}

func groupFile(group int, name string) string {
	return fmt.Sprintf("sys/kernel/iommu_groups/%d/%s", group, name)
}

package stage

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Facts are what the audit knows of the machine as it is now, as long as the test runs.
func Facts(t *testing.T) *facts.Node {
	t.Helper()
	fs, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() }) // it was only read
	n := facts.New(fs, Scan(t))
	n.ReadLinks(t.Context())
	return n
}

// Audit asks the machine as it is now all checks.
func Audit(t *testing.T) *finding.Report {
	t.Helper()
	begin := time.Now()
	checks, err := check.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	report := check.Run(Facts(t), checks, check.Options{Profile: finding.Profiles()[0], Today: begin.Format(time.DateOnly)})
	t.Logf("audited in %d ms", time.Since(begin).Milliseconds())
	return report
}

// unbounded is the rule that the cgroup of a VMM bounds the memory that the VMM pins. The machine's processes are in no pod's
// cgroup.
const unbounded = "VFIO-018"

// Findings returns the names of a report's findings that failed, are unknown or are errors, each by its state, rule, function
// and object. It leaves out the rule that no process of the machine can satisfy.
func Findings(report *finding.Report) []string {
	var names []string
	open := []finding.State{finding.Fail, finding.Unknown, finding.Error}
	for i := range report.Findings {
		if f := &report.Findings[i]; slices.Contains(open, f.State) && f.ID != unbounded {
			names = append(names, findingName(f))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func findingName(f *finding.Finding) string {
	words := []string{string(f.State), f.ID}
	if f.Device != nil {
		words = append(words, f.Device.String())
	}
	if f.Object != "" {
		words = append(words, f.Object)
	}
	return strings.Join(words, " ")
}

// FoundOnlyWhile plants a fault, and removes it again. It checks that the audit finds exactly this fault meanwhile, by the
// names of [Findings], that the fault hides no other finding, and that the audit finds the same before and afterwards. The
// names may be known only once the fault is planted. FoundOnlyWhile returns the audit's report with the fault.
func FoundOnlyWhile(t *testing.T, plant func() (want []string, mend func())) *finding.Report {
	t.Helper()
	before := Findings(Audit(t))
	want, mend := plant()
	report := Audit(t)
	meanwhile := Findings(report)
	mend()
	after := Findings(Audit(t))
	slices.Sort(want)
	if diff := cmp.Diff(want, without(meanwhile, before)); diff != "" {
		t.Errorf("what is found with the fault (-want +got):\n%s", diff)
	}
	if hidden := without(before, meanwhile); len(hidden) > 0 {
		t.Errorf("with the fault the audit does not say any more: %q", hidden)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("what is found once it is mended (-before +after):\n%s", diff)
	}
	for i := range report.Findings {
		if f := &report.Findings[i]; slices.Contains(want, findingName(f)) {
			t.Logf("%s: %s", findingName(f), f.Text)
		}
	}
	return report
}

func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

//go:build labhost

package lab_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/candidatetest"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/test/internal/compile"
	"github.com/kata-vfio/kata-vfio/test/lab"
	"github.com/kata-vfio/kata-vfio/test/lab/installed"
	"github.com/kata-vfio/kata-vfio/test/lab/labtest"
)

// bootstrapped is a machine whose kernel is started as its GRUB would.
type bootstrapped struct {
	*testing.T
	m *lab.Machine
}

// in runs a command in the node's root and returns what it says with its exit code.
func (b *bootstrapped) in(command string) (said, code string) {
	b.Helper()
	out := shell(b.T, b.m, installed.Line(command)+" 2>&1 && echo 0 || echo $?")
	said, code = "", out
	if i := strings.LastIndexByte(out, '\n'); i >= 0 {
		said, code = out[:i], out[i+1:]
	}
	b.Logf("node# %s (exit code %s)\n%s", command, code, said)
	return said, code
}

func (b *bootstrapped) want(code, command string) string {
	b.Helper()
	said, got := b.in(command)
	if got != code {
		b.Fatalf("%s: exit code %s, want %s", command, got, code)
	}
	return said
}

func (b *bootstrapped) arguments() string {
	b.Helper()
	words, err := installed.Arguments(b.Context(), b.m)
	if err != nil {
		b.Fatal(err)
	}
	return strings.Join(words, " ")
}

func (b *bootstrapped) reboot() {
	b.Helper()
	if err := installed.Reboot(b.Context(), b.m); err != nil {
		b.Fatal(err)
	}
}

// files are the node's own, with their modes and sums.
func (b *bootstrapped) files() string {
	b.Helper()
	return shell(b.T, b.m, "cd "+installed.Root+" && find etc boot var -xdev -not -path 'var/lib/kata-vfio*' -printf '%p %y %m %U:%G %l\\n' | sort && "+
		"find etc boot var -xdev -type f -not -path 'var/lib/kata-vfio*' | sort | xargs sha256sum")
}

func (b *bootstrapped) groups() string {
	b.Helper()
	return shell(b.T, b.m, "ls /sys/kernel/iommu_groups | wc -l")
}

// audit runs kata-vfio-audit in the node's root, and decodes what it writes.
func (b *bootstrapped) audit(arguments string, into any) {
	b.Helper()
	shell(b.T, b.m, "cp /host/kata-vfio-audit "+installed.Root+"/run/")
	b.want("3", "kata-vfio-audit "+arguments+" -o json --file /run/audit.json") // no machine of the lab is without failures
	shell(b.T, b.m, "cp "+installed.Root+"/run/audit.json /host/")
	text, err := os.ReadFile(filepath.Join(b.m.Share(), "audit.json"))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// keeps compares what the audit of a candidate said with the audit after bootstrap and the reboot.
func (b *bootstrapped) keeps(c *audit.Candidate, after *finding.Report) {
	b.Helper()
	for _, violation := range candidatetest.Violations(c, after) {
		b.Error(violation)
	}
	said := candidatetest.Said(c)
	for id, want := range map[string]string{"IOM-001": "repaired", "IOM-002": "repaired", "IOM-013": "repaired", "ACS-001": "open", "HOST-005": "remaining"} {
		if said[id] != want {
			b.Errorf("the candidate says %q of %s, want %q", said[id], id, want)
		}
	}
	kernel := slices.IndexFunc(c.Changes, func(change audit.CandidateChange) bool { return change.Part == "kernel" })
	if kernel < 0 || !slices.Contains(c.Changes[kernel].Repairs, "IOM-001") || !c.Reboot {
		b.Errorf("the candidate's changes are %+v, reboot %v", c.Changes, c.Reboot)
	}
}

// TestBootstrap makes a node fit whose kernel is started without its IOMMU, with GRUB's own tools: apply, reboot, verify, a claim
// that reaches its VM; and back: revert, reboot, as before to the byte. What the audit of the candidate says before holds after.
func TestBootstrap(t *testing.T) {
	b := &bootstrapped{T: t, m: labtest.Start(t, lab.Config{WithoutIOMMU: true})}
	for _, name := range []string{"kata-vfio-bootstrap", "kata-vfio-audit"} {
		if err := compile.Static(t.Context(), "github.com/kata-vfio/kata-vfio/cmd/"+name, filepath.Join(b.m.Share(), name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := installed.Enter(t.Context(), b.m); err != nil {
		t.Fatal(err)
	}
	before, without := b.files(), b.arguments()
	var foreseen audit.Candidate
	b.audit("node --candidate", &foreseen)
	b.want("3", "kata-vfio-audit node --candidate")
	const command = "kata-vfio-bootstrap "
	if said := b.want("3", command+"plan"); !strings.Contains(said, "intel_iommu=on") {
		t.Error("the plan does not switch the IOMMU on")
	}
	b.want("4", command+"apply")
	b.want("4", command+"apply")
	if got := b.arguments(); !strings.Contains(got, "intel_iommu=on iommu=nopt") {
		t.Errorf("GRUB starts the kernel with %q", got)
	}
	if b.groups() != "0" {
		t.Fatal("the IOMMU is on before it was switched on")
	}
	b.reboot()
	if b.groups() == "0" {
		t.Fatal("the IOMMU is off after the reboot")
	}
	b.want("0", command+"verify")
	var found finding.Report
	b.audit("node", &found)
	b.keeps(&foreseen, &found)
	suite.Run(t, b.m, "./tests/claims", "-test.run=^TestClaimReachesTheVM$")
	b.want("4", command+"revert")
	if after := b.files(); after != before {
		t.Errorf("after the way back the node has\n%s\nbefore it had\n%s", after, before)
	}
	if got := b.arguments(); got != without {
		t.Errorf("after the way back GRUB starts the kernel with %q, before with %q", got, without)
	}
	if testing.Short() {
		return // the arguments say what the boot would show
	}
	b.reboot()
	if b.groups() != "0" {
		t.Error("after the way back and a reboot the IOMMU is on")
	}
}

package scripted_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/docs"
	"github.com/kata-vfio/kata-vfio/test/docs/scripted"
)

const auditREADME = "cmd/kata-vfio-audit/README.md"

func TestMain(m *testing.M) {
	code := m.Run()
	if err := scripted.RemovePrograms(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// server is worker-1 in good order, with two tenants' pods.
func server(t *testing.T) *board.Tree {
	t.Helper()
	tree := board.Server(t)
	tree.Put("usr/share/misc/pci.ids", "10de  NVIDIA Corporation\n")
	tree.Put("proc/sys/kernel/hostname", "worker-1\n")
	return tree
}

// The first three commands of a security engineer.
func TestAuditBegins(t *testing.T) {
	n := scripted.Open(t, server(t).Root())
	for _, step := range docs.Steps(t, auditREADME, "") {
		n.Follow(step)
	}
	n.Follow(docs.Step{Command: "grep -c '<html' node.html", Output: "1"})
}

// The waiver is for a port whose redirection was off when the plugin first saw it.
func TestAuditTakesWaivers(t *testing.T) {
	tree := server(t)
	tree.SetACS(pci.Address{Bus: 0x3a, Device: 1}, 0)
	tree.KeepBaseline()
	n := scripted.Open(t, tree.Root())
	for _, step := range docs.Steps(t, auditREADME, "Waive a failure") {
		if !strings.Contains(step.Command, "2027-01-31") {
			t.Errorf("the waiver has another date:\n%s", step.Command)
		}
		// Whenever the test runs, the waiver has not expired.
		step.Command = strings.ReplaceAll(step.Command, "2027-01-31", time.Now().AddDate(0, 2, 0).Format(time.DateOnly))
		n.Follow(step)
	}
}

// What was copied on Monday is good; then a fault comes.
func TestAuditCopiesANode(t *testing.T) {
	tree := server(t)
	n := scripted.Open(t, tree.Root())
	n.Follow(docs.Step{Command: "kata-vfio-audit collect --file monday.tgz"})
	tree.SetParameter("vfio", "enable_unsafe_noiommu_mode", "Y")
	n.Follow(docs.Step{Command: "kata-vfio-audit collect --file tuesday.tgz"})
	for _, step := range docs.Steps(t, auditREADME, "Copy a node") {
		out := n.Follow(step, "3: kata-vfio-audit eval node7.tgz", "3: kata-vfio-audit diff monday.tgz tuesday.tgz")
		for _, want := range []string{"wrote node7.tgz", "new     critical  IOM-003", "1 new, 0 changed, 0 gone", "wrote support.tgz"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in the output:\n%s", want, out)
			}
		}
	}
}

// Each question to the ledger has an answer.
func TestAuditAsksTheLedger(t *testing.T) {
	tree := server(t)
	tree.ConfigureVFs(tree.Give("team-a", "train", tree.Devices["nic0/vf1"]))
	tree.ConfigureVFs(tree.Give("team-a", "gpu", tree.Devices["nic0/vf2"]))
	for range 40 { // so that there is the event that is to be proven
		tree.Record(ledger.Event{Type: ledger.Start})
	}
	n := scripted.Open(t, tree.Root())
	n.Script("usr/local/bin/kubectl", "cat anchors.json\n") // what an API server has: claims with a checkpoint
	n.Follow(docs.Step{Command: "kata-vfio-audit ledger prove 42 > anchors.json\ncat /var/lib/kata-vfio/ledger/*.pub > key.pub\nkata-vfio-audit who --pod team-a/train --bundle train.json"})
	section := docs.Section(t, auditREADME, "Ask the ledger")
	for _, m := range regexp.MustCompile("`(kata-vfio-audit [^`]+)`").FindAllStringSubmatch(section, -1) {
		out := n.Follow(docs.Step{Command: strings.ReplaceAll(m[1], "FILE", "anchors.json")})
		if strings.Contains(out, "knows of no") || strings.Contains(out, " 0 tenancies") {
			t.Errorf("%s has no answer:\n%s", m[1], out)
		}
	}
	for _, step := range docs.Steps(t, auditREADME, "Ask the ledger") {
		n.Follow(step)
	}
}

// The nodes' own reports are those of one node, two days in a row.
func TestAuditShowsAFleet(t *testing.T) {
	tree := server(t)
	n := scripted.Open(t, tree.Root())
	n.Follow(docs.Step{Command: "kata-vfio-audit node -o json > monday.ndjson; mkdir -p /var/lib/kata-vfio/audit; kata-vfio-audit node -o json > /var/lib/kata-vfio/audit/worker-1.json"})
	for _, step := range docs.Steps(t, auditREADME, "Many nodes on one page") {
		n.Follow(step)
	}
	n.Follow(docs.Step{Command: "grep -q worker-1 fleet.html"})
}

// The rules are those of the example, whose first rule is the one that the document shows.
func TestAuditTakesOwnRules(t *testing.T) {
	tree := server(t)
	example := docs.Read(t, "cmd/kata-vfio-audit/own-rules.yaml")
	tree.Put("root/rules.yaml", example)
	m := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(docs.Section(t, auditREADME, "Your own rules"))
	if m == nil || !strings.Contains(example, m[1]) {
		t.Errorf("the document shows other rules than cmd/kata-vfio-audit/own-rules.yaml has: %q", m)
	}
	n := scripted.Open(t, tree.Root())
	for _, step := range docs.Steps(t, auditREADME, "Your own rules") {
		n.Follow(step)
	}
	if n.Follow(docs.Step{Command: "kata-vfio-audit rules test rules.yaml"}) == "" {
		t.Error("the rules are not listed")
	}
}

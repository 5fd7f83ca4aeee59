package report_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// read reads the node of a tree.
func read(t *testing.T, tree *board.Tree) *facts.Node {
	t.Helper()
	fsys, err := sysfs.Open(tree.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fsys.Close() })
	s, err := inventory.Scan(t.Context(), fsys)
	if err != nil {
		t.Fatal(err)
	}
	return facts.New(fsys, s)
}

// TestEveryBoardHasAPage runs the real checks.
func TestEveryBoardHasAPage(t *testing.T) {
	for _, b := range board.All() {
		t.Run(b.Name, func(t *testing.T) {
			n := read(t, b.Build(t))
			profile, _ := finding.ProfileNamed(finding.MultiTenant)
			p := &report.Page{Inventory: assess(n.Snapshot), Tenancies: report.TenanciesNow(n)}
			checks, err := check.Catalogue()
			if err != nil {
				t.Fatal(err)
			}
			for i := range checks {
				p.Rules = append(p.Rules, checks[i].Rule)
			}
			p.Report = check.Run(n, checks, check.Options{Profile: profile, Today: "2026-11-22"})
			text := render(t, p)
			for _, r := range p.Rules {
				if !strings.Contains(text, `href="#r-`+r.ID+`"`) {
					t.Errorf("no finding of %s is on the page", r.ID)
				}
			}
			for _, f := range p.Tenancies {
				if held := "<title>" + f.Tenant + ", " + f.Claim; !strings.Contains(text, held) {
					t.Errorf("the timeline does not say that %s has %s", f.Claim, f.Device)
				}
			}
		})
	}
}

func TestTenanciesNowAreTheJournals(t *testing.T) {
	tree := board.Server(t)
	gpu, vf := tree.Devices["gpu0"], tree.Devices["nic0/vf1"]
	fingerprint := func(digest string) []isolation.Fingerprint {
		return []isolation.Fingerprint{{Address: gpu, Digest: digest, Bytes: 256}}
	}
	rec := tree.Give("t1", "train", gpu)
	rec.Baseline = fingerprint("aa")
	rec.Proofs = []isolation.Proof{{Reset: isolation.Reset{Method: "flr"}, After: fingerprint("aa"), Milliseconds: 104}}
	tree.Save(rec)
	gone := tree.Give("t3", "gone", vf)
	gone.State, gone.Sandbox, gone.Since = journal.Quarantined, nil, "2026-11-22T09:30:00Z"
	tree.Save(gone)
	var got []string
	for _, n := range report.TenanciesNow(read(t, tree)) {
		got = append(got, fmt.Sprintf("%s %s %s %s %s; before: %s; after: %s",
			n.Device, n.Tenant, n.Claim, n.State, n.From.Format(time.TimeOnly), n.ResetBefore.Words(), n.ResetAfter.Words()))
	}
	want := []string{
		gpu.String() + " t1 t1/train prepared 08:00:01; before: flr, registers as before (104 ms); after: not known",
		tree.Devices["gpu1"].String() + " t2 t2/serve prepared 08:00:01; before: not known; after: not known",
		tree.Devices["gpu1/companion0"].String() + " t2 t2/serve prepared 08:00:01; before: not known; after: not known",
		tree.Devices["gpu1/companion1"].String() + " t2 t2/serve prepared 08:00:01; before: not known; after: not known",
		tree.Devices["gpu1/companion2"].String() + " t2 t2/serve prepared 08:00:01; before: not known; after: not known",
		tree.Devices["nic0/vf0"].String() + " t2 t2/serve prepared 08:00:01; before: not known; after: not known",
		vf.String() + " t3 t3/gone quarantined 09:30:00; before: not known; after: not known",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tenancies (-want +got):\n%s", diff)
	}
	rec.Proofs[0].After = fingerprint("bb")
	tree.Save(rec)
	if r := report.TenanciesNow(read(t, tree))[0].ResetBefore; r == nil || r.Proven || !strings.Contains(r.Note, "differs from before the tenant") {
		t.Errorf("a reset that changed the registers is %+v", r)
	}
}

package check_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// stageFiles are the directories of what stages proved, and of what waits for them.
const (
	proofDir = "var/lib/kata-vfio/journal/sanitized/"
	markDir  = "var/lib/kata-vfio/journal/unsanitized/"
)

// withStage has the drives of a node sanitized by a profile that exists.
func withStage(t *board.Tree, profile string) {
	t.Put("etc/kata-vfio/node.yaml", "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\ndevices:\n"+
		"- {name: drives, match: {types: [nvme]}, sanitize: {profile: "+profile+"}}\n- {match: {types: [gpu, pf, vf]}}\n")
	t.Put("etc/kata-vfio/sanitizers.yaml", "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: Sanitizers\nnamespace: kata-vfio-sanitizing\n"+
		"deviceClass: sanitize.kata-vfio.dev\nprofiles:\n- {name: nvme, image: registry.example/s@sha256:"+strings.Repeat("0", 64)+"}\n")
}

// drive adds a drive that a tenant has.
func drive(t *board.Tree, bus uint8) pci.Address {
	a := t.AddNVMe(bus)
	t.Give("t4", "store"+a.Label(), a)
	return a
}

// putProof writes what the last stage of a drive proved, after a change.
func putProof(t *board.Tree, a pci.Address, change func(*journal.SanitizeProof)) {
	t.TB.Helper()
	p := journal.SanitizeProof{
		Address: a, Identity: driveIdentity(t, a), Profile: "nvme", Image: "sha256:12ab", Time: "2026-11-21T08:00:00Z",
		Checks: []sanitize.Check{{Name: "ns1", Method: "CryptoErase", Verdict: sanitize.Clean, Bytes: 512}},
	}
	change(&p)
	putJSON(t, proofDir+a.String()+".json", p)
}

// putStageMark says that a drive must be sanitized after a tenant.
func putStageMark(t *board.Tree, a pci.Address, failed *journal.FailedStage) {
	t.TB.Helper()
	putJSON(t, markDir+a.String()+".json", journal.SanitizeMark{Address: a, Identity: driveIdentity(t, a), Since: "2026-11-22T08:00:00Z", Failed: failed})
}

func putJSON(t *board.Tree, name string, content any) {
	t.TB.Helper()
	data, err := json.Marshal(content)
	if err != nil {
		t.TB.Fatal(err)
	}
	t.Put(name, string(data)+"\n")
}

func driveIdentity(t *board.Tree, a pci.Address) device.Identity {
	t.TB.Helper()
	s := t.Scan()
	f, ok := s.Function(a)
	if !ok {
		t.TB.Fatalf("there is no %s", a)
	}
	return s.Identify(f)
}

// TestDrivesAreSanitized: a stage answers for a drive only if it is configured, proved something, and is due after each tenant
// since.
func TestDrivesAreSanitized(t *testing.T) {
	asProven, spoiled := func(*journal.SanitizeProof) {}, func(p *journal.SanitizeProof) { p.Spoiled = true }
	for name, tt := range map[string]struct {
		plant func(*board.Tree, pci.Address)
		want  finding.State
	}{
		"no stage": {func(*board.Tree, pci.Address) {}, finding.Manual},
		"a stage has proven it clean": {func(b *board.Tree, a pci.Address) {
			withStage(b, "nvme")
			putProof(b, a, asProven)
		}, finding.Pass},
		"a tenant has it since, and a stage is due": {func(b *board.Tree, a pci.Address) {
			withStage(b, "nvme")
			putProof(b, a, spoiled)
			putStageMark(b, a, nil)
		}, finding.Pass},
		"a tenant had it since, and no stage is due": {func(b *board.Tree, a pci.Address) {
			withStage(b, "nvme")
			putProof(b, a, spoiled)
		}, finding.Manual},
		"its first stage is due": {func(b *board.Tree, a pci.Address) {
			withStage(b, "nvme")
			putStageMark(b, a, nil)
		}, finding.Manual},
		"its stage failed": {func(b *board.Tree, a pci.Address) {
			withStage(b, "nvme")
			putProof(b, a, spoiled)
			putStageMark(b, a, &journal.FailedStage{Verdict: sanitize.Dirty, Reason: "ns1"})
		}, finding.Manual},
		"an operator freed it without a proof": {func(b *board.Tree, a pci.Address) {
			withStage(b, "nvme")
			putProof(b, a, func(p *journal.SanitizeProof) { p.Profile, p.Checks = "", nil })
		}, finding.Manual},
		"its rule has no stage any more": {func(b *board.Tree, a pci.Address) { putProof(b, a, asProven) }, finding.Manual},
		"its sanitizer does not exist": {func(b *board.Tree, a pci.Address) {
			withStage(b, "other")
			putProof(b, a, asProven)
		}, finding.Manual},
		"its proof is damaged": {func(b *board.Tree, a pci.Address) {
			withStage(b, "nvme")
			b.Put(proofDir+a.String()+".json", `{"profile":"nvme"`)
		}, finding.Manual},
		"its mark is damaged": {func(b *board.Tree, a pci.Address) {
			withStage(b, "nvme")
			putProof(b, a, spoiled)
			b.Put(markDir+a.String()+".json", "{")
		}, finding.Manual},
		"the proof is of the drive that it replaced": {func(b *board.Tree, a pci.Address) {
			withStage(b, "nvme")
			putProof(b, a, func(p *journal.SanitizeProof) {
				p.Identity.BootID, p.Identity.Revision = "earlier", p.Identity.Revision+1
			})
		}, finding.Manual},
		"the marks can't be listed": {func(b *board.Tree, a pci.Address) {
			withStage(b, "nvme")
			putProof(b, a, asProven)
			b.Put(strings.TrimSuffix(markDir, "/"), "not a directory")
		}, finding.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.Server(t)
			a := drive(tree, 0x81)
			tt.plant(tree, a)
			f := found(t, tree, "RST-010")
			if f.State != tt.want {
				t.Fatalf("%s: %s, want %s", f.State, f.Text, tt.want)
			}
			hasEvidence(t, f)
			const proof = "profile nvme, sha256:12ab, 2026-11-21T08:00:00Z: CryptoErase of ns1"
			if tt.want == finding.Pass && (f.Evidence[0].Value != proof || f.Evidence[0].Path != "/"+proofDir+a.String()+".json") {
				t.Errorf("the evidence is %+v", f.Evidence)
			}
		})
	}
}

// TestChangedFirmwareIsFound until an operator accepts it, whether or not the stage proved the device clean.
func TestChangedFirmwareIsFound(t *testing.T) {
	was := sanitize.Measurement{Name: "firmware", Algorithm: sanitize.Version, Value: "1.0"}
	is := sanitize.Measurement{Name: "firmware", Algorithm: sanitize.Version, Value: "6.6"}
	measured := func(p *journal.SanitizeProof) { p.Firmware = []sanitize.Measurement{is} }
	changed := func(p *journal.SanitizeProof) {
		measured(p)
		p.Changed = []sanitize.Change{{Name: "firmware", Was: &was, Is: &is}}
	}
	for name, tt := range map[string]struct {
		plant func(*board.Tree, pci.Address)
		want  finding.State
	}{
		"never measured":     {func(b *board.Tree, a pci.Address) { putProof(b, a, func(*journal.SanitizeProof) {}) }, finding.NotApplicable},
		"as it was accepted": {func(b *board.Tree, a pci.Address) { putProof(b, a, measured) }, finding.Pass},
		"changed":            {func(b *board.Tree, a pci.Address) { putProof(b, a, changed) }, finding.Fail},
		"changed, and a tenant has it since": {func(b *board.Tree, a pci.Address) {
			putProof(b, a, func(p *journal.SanitizeProof) { changed(p); p.Spoiled = true })
			putStageMark(b, a, nil)
		}, finding.Fail},
		"the proofs can't be listed": {func(b *board.Tree, a pci.Address) {
			putProof(b, a, changed)
			b.Put(strings.TrimSuffix(markDir, "/"), "not a directory")
		}, finding.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.Server(t)
			a := drive(tree, 0x81)
			withStage(tree, "nvme")
			tt.plant(tree, a)
			f := found(t, tree, "RST-014")
			if f.State != tt.want {
				t.Fatalf("got %s: %s, want %s", f.State, f.Text, tt.want)
			}
			if tt.want == finding.Fail && (!strings.Contains(f.Text, "firmware: version 6.6, was version 1.0") || *f.Device != a) {
				t.Errorf("got %q of %s, want the change of %s", f.Text, f.Device, a)
			}
		})
	}
}

// TestDriveWithoutAStageIsNamed beside one that is sanitized.
func TestDriveWithoutAStageIsNamed(t *testing.T) {
	tree := board.Server(t)
	sanitized, other := drive(tree, 0x81), drive(tree, 0x82)
	withStage(tree, "nvme")
	putProof(tree, sanitized, func(*journal.SanitizeProof) {})
	if f := found(t, tree, "RST-010"); f.State != finding.Manual || !slices.Equal(f.Devices, []pci.Address{other}) {
		t.Errorf("%s of %v, want %s of %s", f.State, f.Devices, finding.Manual, other)
	}
}

// found returns the only finding of a rule.
func found(t *testing.T, tree *board.Tree, id string) *finding.Finding {
	t.Helper()
	var all []*finding.Finding
	r := audit(t, tree)
	for i := range r.Findings {
		if r.Findings[i].ID == id {
			all = append(all, &r.Findings[i])
		}
	}
	if len(all) != 1 {
		t.Fatalf("%s has %d findings, want 1", id, len(all))
	}
	return all[0]
}

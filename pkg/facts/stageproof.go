package facts

import (
	"fmt"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// StageProofs are the proofs of sanitizing stages, for the functions whose rules require a stage.
type StageProofs struct {
	// Of has, for each function that is sanitized between tenants, the file with the proof of its last stage. The value is the proof
	// in words. Since the stage, no tenant had the function, or the function must pass another stage before the next tenant gets it.
	Of map[pci.Address]Fact
	// Firmware has the firmware of each function that a stage measured, whether or not the stage proved the function clean.
	Firmware map[pci.Address]MeasuredFirmware
	// Asked has the functions whose rule requires a stage. The value is true if the profile of that stage exists.
	Asked map[pci.Address]bool
	// Unread is a directory or file of the journal that could not be read, so that proofs may be missing. If everything was read,
	// [Fact.Known] of it is true.
	Unread Fact
}

// MeasuredFirmware is the firmware of a function by its sanitizing stages.
type MeasuredFirmware struct {
	// File has the last proof. The value names its profile, its time and the measured firmware.
	File Fact
	// Changes are the changes since an operator accepted the firmware, in words: "vbios: version 1.0, was version 0.9".
	Changes []string
}

// StageProofs returns the proofs of sanitizing stages. A stage that failed proves nothing. The proof of a stage before the last
// tenant counts only if another stage is due after that tenant.
func (n *Node) StageProofs() *StageProofs {
	type key struct{}
	return Memo(n, key{}, func() *StageProofs {
		found := &StageProofs{Of: map[pci.Address]Fact{}, Asked: map[pci.Address]bool{}, Firmware: map[pci.Address]MeasuredFirmware{}}
		selection, stages := nodeconfig.Select(n.offer.config, n.Snapshot), n.sanitizers()
		for _, f := range selection.Ours() {
			if s := selection.Choice(f.Address).Sanitize; s != nil {
				_, exists := stages.Profile(s.Profile)
				found.Asked[f.Address] = exists
			}
		}
		n.findProofs(found)
		return found
	})
}

// findProofs fills Of for the functions in Asked.
func (n *Node) findProofs(found *StageProofs) {
	marks, err := journal.ReadMarks(n.fs, journalDir)
	if err != nil {
		found.Unread = Fact{Path: "/" + journalDir, How: "list", Status: Broken, Err: strings.ReplaceAll(err.Error(), "\n", "; ")}
		return
	}
	marked := journal.Unsanitized(marks.Unsanitized, n.Snapshot)
	files := n.proofFiles()
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		proof, ok := journal.FindSanitized(marks.Sanitized, n.Snapshot.Identify(f))
		file, read := files[proof.Time+proof.Address.String()]
		if !ok || !read {
			continue
		}
		if len(proof.Firmware) > 0 {
			found.Firmware[f.Address] = measured(&proof, file)
		}
		if !found.Asked[f.Address] || !proves(&proof, marked[f.Address]) {
			continue
		}
		file.Value = describeProof(&proof)
		found.Of[f.Address] = file
	}
}

// measured returns the firmware in a proof. file is the fact of the proof's file.
func measured(p *journal.SanitizeProof, file Fact) MeasuredFirmware {
	words := make([]string, len(p.Firmware))
	for i := range p.Firmware {
		words[i] = p.Firmware[i].Name
	}
	file.Value = fmt.Sprintf("profile %s, %s: %s measured", p.Profile, p.Time, strings.Join(words, ", "))
	m := MeasuredFirmware{File: file}
	for _, c := range p.Changed {
		m.Changes = append(m.Changes, c.String())
	}
	return m
}

// proves reports whether a proof says that a function with the mark (nil if it has none) is sanitized between tenants. A tenant
// spoils the proof, but the mark ensures that a stage follows before the next tenant.
func proves(p *journal.SanitizeProof, mark *journal.SanitizeMark) bool {
	if p.Profile == "" || len(p.Checks) == 0 || mark != nil && mark.Failed != nil {
		return false // an operator freed the function without a proof, or a stage failed since
	}
	return !p.Spoiled || mark != nil
}

// proofFiles returns the files of the journal with proofs, by the time and address of the proof.
func (n *Node) proofFiles() map[string]Fact {
	dir := path.Join(journalDir, journal.SanitizedDir)
	names, _ := n.List(dir)
	files := map[string]Fact{}
	for _, name := range names {
		a, isMark := journal.MarkAddress(name)
		if !isMark {
			continue
		}
		if file := n.Read(path.Join(dir, name)); file.OK() {
			p := journal.DecodeSanitizeProof(file.Path, []byte(file.Value), a)
			files[p.Time+p.Address.String()] = file
		}
	}
	return files
}

// describeProof returns "profile nvme, sha256:..., 2026-11-28T06:00:00Z: CryptoErase of ns1".
func describeProof(p *journal.SanitizeProof) string {
	methods := make([]string, len(p.Checks))
	for i := range p.Checks {
		methods[i] = p.Checks[i].Method + " of " + p.Checks[i].Name
	}
	return fmt.Sprintf("profile %s, %s, %s: %s", p.Profile, p.Image, p.Time, strings.Join(methods, ", "))
}

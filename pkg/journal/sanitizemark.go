package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// SanitizeMark marks a function that must pass a sanitizing stage before a tenant gets it. It is written before a
// tenant's VM gets the function, so that the mark does not depend on how the claim ends, and it outlives the claim's
// record and reboots. A stage that proves the function clean removes it.
//
// If the function is not found in a later boot, and can't be told from others of its model, each of these counts as
// marked until it is in Proven. See [Unsanitized].
type SanitizeMark struct {
	// Address is the address that the function had.
	Address  pci.Address     `json:"address"`
	Identity device.Identity `json:"identity,omitzero"`
	// Claim is the claim of the last tenant; empty if it is not known.
	Claim ClaimName `json:"claim,omitzero"`
	// NoTenant is set if the mark was made for a stage of a function that no tenant had since it was last sanitized.
	NoTenant bool `json:"noTenant,omitempty"`
	// Since is when the mark was made, RFC 3339 in UTC.
	Since string `json:"since"`
	// Stage is the stage that has the function, or that had it and whose result is not decided yet; nil if there is
	// none.
	Stage *Stage `json:"stage,omitempty"`
	// Interrupted is the number of successive stages that ended without a result for a reason outside of the device and
	// the sanitizer, such as a deleted pod.
	Interrupted int `json:"interrupted,omitempty"`
	// Failed is the result of a stage that did not prove the function clean; nil if there is none. The function is in
	// quarantine until an operator clears it.
	Failed *FailedStage `json:"failed,omitempty"`
	// Proven are the functions that might have been the marked one, and were sanitized since.
	Proven []device.Identity `json:"proven,omitempty"`
}

// Directories of the marks and of the proofs, below the journal's.
const (
	UnsanitizedDir = "unsanitized"
	SanitizedDir   = "sanitized"
)

// ClaimName identifies a claim, with its name for people.
type ClaimName struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Tenant is the ID of the claim's tenant; empty if it is not known.
	Tenant string `json:"tenant,omitempty"`
}

// Stage is one run of a sanitizing stage.
type Stage struct {
	Claim ClaimName `json:"claim"`
	// Pod and PodUID are the name and the UID of the stage's pod, which is in the claim's namespace.
	Pod    string `json:"pod"`
	PodUID string `json:"podUID"`
	// Profile is the name of the sanitizer.
	Profile string `json:"profile"`
	// Since is when the stage got the function, RFC 3339 in UTC.
	Since string `json:"since"`
}

// FailedStage is the end of a stage that did not prove the function clean.
type FailedStage struct {
	Stage   Stage            `json:"stage"`
	Verdict sanitize.Verdict `json:"verdict"`
	// Reason is one line for the operator.
	Reason string `json:"reason"`
	// Changes are the changes of the firmware if nothing else was wrong. Proof is then the proof that counts if an
	// operator accepts the changes; nil if something else was wrong.
	Changes []sanitize.Change `json:"changes,omitempty"`
	Proof   *SanitizeProof    `json:"proof,omitempty"`
}

// Unsanitized returns, by address, the mark of each function of a snapshot that is marked, or that may be marked and
// was not sanitized since. A mark without an identity marks the function at its address.
//
// The claim of a mark may get its function again without a stage. So a returned mark names a claim only if no other
// tenant can have had the function. If the mark may be of another function, or if several marks have different claims,
// it names none. A mark with a failed stage has precedence over a mark without one.
func Unsanitized(marks []SanitizeMark, snap *device.Snapshot) map[pci.Address]*SanitizeMark {
	need := map[pci.Address]*SanitizeMark{}
	if len(marks) == 0 {
		return need
	}
	finder := device.NewFinder(snap)
	for i := range marks {
		m := &marks[i]
		if m.Identity == (device.Identity{}) {
			need[m.Address] = join(need[m.Address], m)
			continue
		}
		found := finder.Find(m.Identity)
		if found.Function != nil {
			need[found.Function.Address] = join(need[found.Function.Address], m)
		}
		for _, f := range found.Perhaps {
			if !isAmong(m.Proven, finder.Identify(f)) {
				perhaps := *m
				perhaps.Claim = ClaimName{}
				need[f.Address] = join(need[f.Address], &perhaps)
			}
		}
	}
	return need
}

// join returns the mark that counts if a function has two. has may be nil.
func join(has, other *SanitizeMark) *SanitizeMark {
	if has == nil {
		return other
	}
	counts := *has
	if has.Failed == nil && other.Failed != nil || has.Failed == nil && has.Stage == nil && other.Stage != nil {
		counts = *other
	}
	if has.Claim.UID != other.Claim.UID {
		counts.Claim = ClaimName{}
	}
	counts.NoTenant = has.NoTenant && other.NoTenant
	return &counts
}

// isAmong reports whether one of the identities is of the same hardware as id.
func isAmong(all []device.Identity, id device.Identity) bool {
	return slices.ContainsFunc(all, func(one device.Identity) bool { return one.Match(id) == device.Agrees })
}

func (s *Store) sanitizeMarks() marks[SanitizeMark] {
	return marks[SanitizeMark]{s, sanitizeMarkKind()}
}

func sanitizeMarkKind() markKind[SanitizeMark] {
	return markKind[SanitizeMark]{dir: UnsanitizedDir, what: "mark as not sanitized", of: "not sanitized"}
}

func (m SanitizeMark) markedAt() pci.Address     { return m.Address }
func (m SanitizeMark) markedAs() device.Identity { return m.Identity }

// unreadable returns a mark with a failed stage: nobody knows whose data the function has, so only an operator can
// decide.
func (SanitizeMark) unreadable(a pci.Address, path string) SanitizeMark {
	return SanitizeMark{Address: a, Failed: &FailedStage{Verdict: sanitize.Unknown, Reason: unreadable(path)}}
}

// DecodeSanitizeMark returns the mark in a file with the base name; an error if it can't be read, or is not a mark.
func DecodeSanitizeMark(name string, data []byte) (*SanitizeMark, error) {
	a, isMark := MarkAddress(name)
	if !isMark {
		return nil, fmt.Errorf("%s is not the name of a mark", name)
	}
	var m SanitizeMark
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("decode the mark %s: %w", name, err)
	}
	if m.Address != a {
		return nil, fmt.Errorf("the mark %s is of %s", name, m.Address)
	}
	return &m, nil
}

// MarkUnsanitized writes a mark durably: when it returns nil, the mark survives a power failure. It replaces a mark of
// the same function, also one at an address that the function had in an earlier boot. A crash in between leaves both, which
// [Unsanitized] joins.
func (s *Store) MarkUnsanitized(ctx context.Context, m SanitizeMark) error {
	marks := s.sanitizeMarks()
	if err := marks.makeDir(m); err != nil {
		return err
	}
	return marks.alone(ctx, func() error {
		if err := marks.putLocked(m); err != nil {
			return err
		}
		return marks.liftElsewhere(m.Address, m.Identity)
	})
}

// Unsanitized returns all marks, by address. An unreadable file still marks its function. After an error, nobody knows
// which functions are sanitized.
func (s *Store) Unsanitized() ([]SanitizeMark, error) { return s.sanitizeMarks().all() }

// AcceptFirmware keeps durably a proof whose changes of the firmware an operator accepted. The function's mark stays as
// it is.
func (s *Store) AcceptFirmware(ctx context.Context, p SanitizeProof) error {
	return s.sanitizeProofs().put(ctx, p)
}

// MarkSanitized keeps the proof of a stage durably, and then removes the function's mark. If marks of other functions
// may be marks of this one, it adds the function to their Proven. It may be repeated: a crash in between leaves the
// mark, which still counts.
func (s *Store) MarkSanitized(ctx context.Context, p SanitizeProof) error {
	if err := s.sanitizeProofs().put(ctx, p); err != nil {
		return err
	}
	return s.sanitizeMarks().prove(ctx, &s.sanitized, proven{p.Address, p.Identity}, func(m *SanitizeMark) *[]device.Identity { return &m.Proven })
}

// SanitizeProof is what the last stage of a function proved, with the firmware that counts as the function's own.
type SanitizeProof struct {
	Address  pci.Address     `json:"address"`
	Identity device.Identity `json:"identity,omitzero"`
	// Spoiled is set when a tenant gets the function: then the function must be sanitized again, and only Firmware
	// and Missing still count.
	Spoiled bool `json:"spoiled,omitempty"`
	// Profile and Image are the sanitizer's name and its digest.
	Profile string `json:"profile,omitempty"`
	Image   string `json:"image,omitempty"`
	// Time is when the stage was decided, RFC 3339 in UTC.
	Time   string           `json:"time,omitempty"`
	Checks []sanitize.Check `json:"checks,omitempty"`
	// Firmware are the accepted measurements.
	Firmware []sanitize.Measurement `json:"firmware,omitempty"`
	// Missing are former measurements whose absence from results an operator accepted. A result that has one of them is
	// compared with it.
	Missing []sanitize.Measurement `json:"missing,omitempty"`
	// Changed are the changes that the firmware policy Record has let pass since an operator accepted the firmware.
	// They do not keep tenants from the function, but the audit reports them.
	Changed []sanitize.Change `json:"changed,omitempty"`
}

// Covers reports whether the proof says that the function with the identity is clean: a stage sanitized it in this
// boot, and no tenant got it since. A proof of an earlier boot does not count, because another system may have run on
// the machine before this boot.
func (p *SanitizeProof) Covers(id device.Identity) bool {
	return !p.Spoiled && p.Time != "" && p.Identity.Is(id)
}

// FindSanitized returns the newest proof of the function with the identity, and false if there is none. It may be of an
// earlier boot.
func FindSanitized(proofs []SanitizeProof, id device.Identity) (newest SanitizeProof, found bool) {
	for _, p := range proofs {
		if p.Identity == (device.Identity{}) || p.Identity.Match(id) != device.Agrees {
			continue
		}
		// All times have the same format and zone, so the order of their texts is the order of the times.
		if !found || p.Time > newest.Time {
			newest, found = p, true
		}
	}
	return newest, found
}

func (s *Store) sanitizeProofs() marks[SanitizeProof] {
	return marks[SanitizeProof]{s, sanitizeProofKind()}
}

func sanitizeProofKind() markKind[SanitizeProof] {
	return markKind[SanitizeProof]{dir: SanitizedDir, what: "note as sanitized", of: "sanitized"}
}

func (p SanitizeProof) markedAt() pci.Address     { return p.Address }
func (p SanitizeProof) markedAs() device.Identity { return p.Identity }

// unreadable returns a proof that proves nothing.
func (SanitizeProof) unreadable(a pci.Address, _ string) SanitizeProof {
	return SanitizeProof{Address: a, Spoiled: true}
}

// DecodeSanitizeProof returns the proof in a file whose name has an address, as by [MarkAddress]. One that can't be read
// proves nothing.
func DecodeSanitizeProof(path string, data []byte, a pci.Address) SanitizeProof {
	return sanitizeProofKind().decode(path, data, a)
}

// Sanitized returns all proofs, by address.
func (s *Store) Sanitized() ([]SanitizeProof, error) { return s.sanitizeProofs().all() }

// SpoilSanitized ends the proof of a function durably, before a tenant's VM gets the function. The firmware in the
// proof stays. A missing proof is not an error.
func (s *Store) SpoilSanitized(ctx context.Context, a pci.Address, id device.Identity) error {
	proofs := s.sanitizeProofs()
	return proofs.alone(ctx, func() error {
		files, err := proofs.kind.files(disk{}, s.dir)
		if err != nil {
			return err
		}
		return proofs.change(files, func(p *SanitizeProof) bool {
			if p.Spoiled || !concerns(*p, a, id) {
				return false
			}
			p.Spoiled = true
			return true
		})
	})
}

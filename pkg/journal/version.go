package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// Version is the newest format that this code reads and writes. A record is written
// in the oldest one that can hold it ([VersionOf]), so that an older plugin reads all
// that it can keep, and refuses the rest untouched.
const Version = 2

// ErrDamaged says that a record's bytes differ from those that were written.
var ErrDamaged = errors.New("record is damaged")

// ErrNewer says that a record was written by a newer version of kata-vfio.
var ErrNewer = errors.New("record is of a newer version")

// envelope is the file's outer form. The checksum covers the record's bytes
// in compact form, so that reformatting by hand is harmless and any other
// change is found.
type envelope struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	Record  json.RawMessage `json:"record"`
}

// Encode returns the file content of a record.
func Encode(r *Record) ([]byte, error) { return EncodeAs(r, VersionOf(r)) }

// EncodeAs returns the file content of a record in a format from 1 to [Version]. It
// returns a [LostError] where an older plugin would lose something of it.
func EncodeAs(r *Record, version int) ([]byte, error) {
	if version < 1 || version > Version {
		return nil, fmt.Errorf("encode record %s: there is no version %d, want 1 to %d", r.ID(), version, Version)
	}
	if lost := newIn2(r); version < 2 && len(lost) > 0 {
		return nil, &LostError{ID: r.ID(), Version: version, What: lost}
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record %s: %w", r.ID(), err)
	}
	data, err := json.MarshalIndent(envelope{Version: version, SHA256: checksum(body), Record: body}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode record %s: %w", r.ID(), err)
	}
	return append(data, '\n'), nil
}

// Decode reads a record back. Its errors match [ErrDamaged] or [ErrNewer].
func Decode(data []byte) (*Record, error) {
	var env envelope
	if err := json.Unmarshal(data, &env); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if env.Version > Version {
		return nil, fmt.Errorf("%w: it has version %d, this plugin reads up to %d", ErrNewer, env.Version, Version)
	}
	if env.Version < 1 {
		return nil, fmt.Errorf("%w: it has version %d", ErrDamaged, env.Version)
	}
	var body bytes.Buffer
	if err := json.Compact(&body, env.Record); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if checksum(body.Bytes()) != env.SHA256 {
		return nil, fmt.Errorf("%w: its checksum does not match", ErrDamaged)
	}
	var r Record
	if err := json.Unmarshal(body.Bytes(), &r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return &r, nil
}

// Checksum returns the checksum of a record's file: the SHA-256 of its compact JSON, in hexadecimal.
func Checksum(r *Record) (string, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode record %s: %w", r.ID(), err)
	}
	return checksum(body), nil
}

func checksum(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// What the formats hold. A field that older code may ignore without harm needs no new
// one (an optional word for people); one that it must act on does.
//
//	1  claims of functions and VFs, their original bindings and settings
//	2  pairs, physical endpoints, addresses from pools, representors, hash keys
//	   (rssQuery) and GUIDs of VFs
//
// The sandbox's shim is in neither: without it an older plugin waits for the VM only once
// the functions are open, as it always did, and can still take the claim back.
//
// The first plugins that had what is new in 2 wrote it as 1: such records are read, and
// written as 2 from then on.

// LostError says that a record can't be written in an older format.
type LostError struct {
	ID      string
	Version int
	// What names what would be lost: "physical endpoint (vf-0000-21-02-0)".
	What []string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("record %s: version %d has no %s; unprepare its claim (delete its pod) first", e.ID, e.Version, strings.Join(e.What, ", no "))
}

// VersionOf returns the oldest format that holds all of a record.
func VersionOf(r *Record) int {
	if len(newIn2(r)) > 0 {
		return 2
	}
	return 1
}

// newIn2 names what of a record format 1 can't hold.
func newIn2(r *Record) []string {
	var all []string
	for i := range r.Plan.Devices {
		d := &r.Plan.Devices[i]
		for what, has := range map[string]bool{
			"pair": d.Pair != "", "physical endpoint": d.Attachment != "", "address from a pool": d.Lease != nil,
		} {
			if has {
				all = append(all, fmt.Sprintf("%s (%s)", what, d.Name))
			}
		}
	}
	for i := range r.Plan.Functions {
		fn := &r.Plan.Functions[i]
		for what, has := range newInVF(fn) {
			if has {
				all = append(all, fmt.Sprintf("%s (%s)", what, fn.Address))
			}
		}
	}
	slices.Sort(all)
	return all
}

func newInVF(fn *plan.Function) map[string]bool {
	news := map[string]bool{"binding as an endpoint": fn.Endpoint != nil}
	if fn.VF == nil {
		return news
	}
	news["representor"] = fn.VF.Representor != ""
	for _, s := range []device.VFSettings{fn.VF.Want, fn.VF.Original} {
		news["setting rssQuery"] = news["setting rssQuery"] || s.RSSQuery != nil
		news["GUID"] = news["GUID"] || s.NodeGUID != "" || s.PortGUID != ""
	}
	return news
}

// formatOf returns the format in which a file's content is written, which Decode has
// found whole.
func formatOf(data []byte) int {
	var env envelope
	_ = json.Unmarshal(data, &env) // Decode has
	return env.Version
}

// formerDir holds copies of records as they were before an upgrade.
const formerDir = "former"

// Upgrade writes a record in the format that holds all of it, if its file has an older
// one, and keeps a copy of that file until [Store.DropFormer]. The claim's lock is held.
func (s *Store) Upgrade(id string) (bool, error) {
	path, err := s.path(id)
	if err != nil {
		return false, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &FileError{Path: path, Err: err}
	}
	r, err := Decode(data)
	if err != nil {
		return false, &FileError{Path: path, Err: err}
	}
	if formatOf(data) >= VersionOf(r) {
		return false, nil
	}
	if err := s.putIn(formerDir, id+".json", "upgrade record", data); err != nil {
		return false, err
	}
	return true, s.Save(r)
}

// DropFormer removes the copies that upgrades made of records that no longer exist. Until a claim ends, the record of an
// older plugin may be needed.
func (s *Store) DropFormer() error {
	names, err := filepath.Glob(filepath.Join(s.dir, formerDir, "*"))
	if err != nil {
		return fmt.Errorf("list former records: %w", err)
	}
	var errs []error
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(s.dir, filepath.Base(name))); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove a former record: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Export writes all records as an older plugin reads them into dir, which must not exist, with the marks of
// functions that are not proven clean. It writes nothing if something can't be read or would be lost: the errors
// name all of it. A missing journal is an error too.
func (s *Store) Export(version int, dir string) (n int, err error) {
	if _, err := os.Stat(s.dir); err != nil {
		return 0, &FileError{Path: s.dir, Err: fmt.Errorf("export journal: %w", err)}
	}
	records, errs := s.List()
	files := map[string][]byte{}
	for _, r := range records {
		data, err := EncodeAs(r, version)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files[r.ID()+".json"] = data
	}
	drains, err := s.Drains()
	errs = append(errs, err)
	for _, d := range drains {
		if version < 2 {
			errs = append(errs, fmt.Errorf("version %d has no drains: %s would be in use again; undrain it first", version, d.Address))
		}
	}
	unclean, err := s.NeedsReset()
	if err := errors.Join(append(errs, err)...); err != nil {
		return 0, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, fmt.Errorf("export journal: %w", err)
	}
	to := newStore(dir)
	for _, m := range unclean {
		errs = append(errs, to.MarkNeedsReset(m))
	}
	for _, d := range drains {
		errs = append(errs, to.MarkDrained(d))
	}
	for name, data := range files {
		errs = append(errs, renameio.WriteFile(filepath.Join(dir, name), data, 0o600, renameio.WithTempDir(dir)))
	}
	return len(files), errors.Join(append(errs, to.entries.sync())...)
}

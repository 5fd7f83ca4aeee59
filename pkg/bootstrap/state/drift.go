package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const (
	// RecordFile is the path of the record, below the node's root.
	RecordFile = "var/lib/kata-vfio/bootstrap/verified.json"
	// maxSize is the maximum size of a record in bytes.
	maxSize = 1 << 20
	// most is the maximum number of differences in a record. A node with more was never configured.
	most = 100
)

// Unknown is the outcome of a verify that failed.
const Unknown = "unknown"

// version is the version of the record's format.
const version = 1

// Record is the result of one verify.
type Record struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	// Blueprint is the name of the blueprint that the node was compared with.
	Blueprint string `json:"blueprint,omitempty"`
	// Outcome is "fit", "changes needed", "reboot needed" or "can't be made fit", or [Unknown].
	Outcome string `json:"outcome"`
	// Differences has at most a hundred items.
	Differences []Difference `json:"differences"`
	// Kata is the version of Kata in the words of the node's files, "4.1.0"; empty if none has it, or an older bootstrap wrote the record.
	Kata string `json:"kata,omitempty"`
}

// Difference is one difference from the blueprint.
type Difference struct {
	// Part is the part that requires it, such as "kernel" or "containerd".
	Part string `json:"part"`
	// Path is the path of a file or of a setting of the running kernel, or empty.
	Path string `json:"path,omitempty"`
	// What is the kind of difference: "changed" or "removed" after bootstrap wrote the file, "missing" if bootstrap did not write it,
	// "setting" of the running kernel, "reboot" if only a reboot is missing, "problem" if bootstrap can't fix it.
	What string `json:"what"`
	// Code names the kind of a problem. Other differences have none, and so have those that an earlier bootstrap recorded.
	Code rule.Code `json:"code,omitempty"`
	// Why describes it.
	Why string `json:"why,omitempty"`
	// Since is the modification time of a changed file, otherwise the time of the first verify that found the difference.
	Since time.Time `json:"since"`
}

// ErrDamaged is the error for a record that can't be decoded.
var ErrDamaged = errors.New("the record of the last verify is damaged")

// NewRecord returns the record of a verify. Differences that the former record, which may be nil, also has keep their time.
func NewRecord(at time.Time, blueprint, outcome string, found []Difference, former *Record) *Record {
	r := &Record{Version: version, At: at, Blueprint: blueprint, Outcome: outcome, Differences: append([]Difference{}, found[:min(len(found), most)]...)}
	for i := range r.Differences {
		d := &r.Differences[i]
		if d.Since.IsZero() {
			d.Since = former.since(d, at)
		}
	}
	return r
}

// since returns the time when a difference was found first.
func (r *Record) since(d *Difference, now time.Time) time.Time {
	if r == nil {
		return now
	}
	for _, f := range r.Differences {
		if f.Part == d.Part && f.Path == d.Path && f.What == d.What && f.Why == d.Why {
			return f.Since
		}
	}
	return now
}

// Encode returns the content of the record's file.
func (r *Record) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode the record of verify: %w", err)
	}
	return append(text, '\n'), nil
}

// reader reads the node's files below its root.
type reader interface {
	ReadAtMost(name string, limit int64) ([]byte, error)
}

// ReadRecord returns a node's record. The error wraps fs.ErrNotExist if there is none; otherwise it is that of the read or of
// [ParseRecord].
func ReadRecord(tree reader) (*Record, error) {
	text, err := tree.ReadAtMost(RecordFile, maxSize)
	if err != nil {
		return nil, fmt.Errorf("read the record of the last verify: %w", err)
	}
	return ParseRecord(text)
}

// ParseRecord decodes a record. The error is [ErrDamaged], or says that a newer bootstrap wrote it.
func ParseRecord(text []byte) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	switch {
	case r.Version > version:
		return nil, fmt.Errorf("a newer kata-vfio-bootstrap wrote the record of the last verify (version %d)", r.Version)
	case r.Version < 1, r.Outcome == "", r.At.IsZero():
		return nil, fmt.Errorf("%w: its version, outcome or time is missing", ErrDamaged)
	}
	r.Differences = r.Differences[:min(len(r.Differences), most)]
	return r, nil
}

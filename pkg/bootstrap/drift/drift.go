// Package drift has what bootstrap saw when it last looked at a node, as it leaves that on the node for others: the plugin serves it
// as metrics.
package drift

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	// File is where the record is, below the node's root.
	File = "var/lib/kata-vfio/bootstrap/verified.json"
	// maxSize is how large a record may be, in bytes: what is cut off there can't be read.
	maxSize = 1 << 20
	// most is how many differences a record names: a node that has more was never made fit.
	most = 100
)

// Unknown is the outcome of a look that failed.
const Unknown = "unknown"

// version is that of the record's form.
const version = 1

// Record is what one look at a node has found.
type Record struct {
	Version int       `json:"version"`
	At      time.Time `json:"at"`
	// Blueprint is the name of the blueprint that the node was compared with.
	Blueprint string `json:"blueprint,omitempty"`
	// Outcome is "fit", "changes needed", "reboot needed" or "can't be made fit", or [Unknown].
	Outcome string `json:"outcome"`
	// Differences are at most a hundred.
	Differences []Difference `json:"differences"`
}

// Difference is one thing that is not as the blueprint says.
type Difference struct {
	// Part is whose it is, such as "kernel" or "containerd".
	Part string `json:"part"`
	// Path is that of a file or of a running kernel's setting, or empty for what is neither.
	Path string `json:"path,omitempty"`
	// What is the kind of difference: "changed" and "removed" since bootstrap wrote the file, "missing" where it has not, "setting" of
	// the running kernel, "reboot" where only that is missing, "problem" where bootstrap can't help.
	What string `json:"what"`
	// Why says it for people.
	Why string `json:"why,omitempty"`
	// Since is the time of the file that was changed, otherwise that of the first look that found it so.
	Since time.Time `json:"since"`
}

// ErrDamaged marks a record that can't be read as one.
var ErrDamaged = errors.New("the record of bootstrap's last look is damaged")

// New returns the record of a look. What the former record, which may be nil, has as well keeps its time.
func New(at time.Time, blueprint, outcome string, found []Difference, former *Record) *Record {
	r := &Record{Version: version, At: at, Blueprint: blueprint, Outcome: outcome, Differences: append([]Difference{}, found[:min(len(found), most)]...)}
	for i := range r.Differences {
		d := &r.Differences[i]
		if d.Since.IsZero() {
			d.Since = former.since(d, at)
		}
	}
	return r
}

// since returns when a difference was found for the first time.
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

// Encode returns the record as its file has it.
func (r *Record) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode the record of a look: %w", err)
	}
	return append(text, '\n'), nil
}

// Tree is what a record is read from: a node below its root.
type Tree interface {
	ReadAtMost(name string, limit int64) ([]byte, error)
}

// Read returns a node's record. The error wraps fs.ErrNotExist where bootstrap has left none, otherwise it is like that of [Parse].
func Read(tree Tree) (*Record, error) {
	text, err := tree.ReadAtMost(File, maxSize)
	if err != nil {
		return nil, fmt.Errorf("read the record of bootstrap's last look: %w", err)
	}
	return Parse(text)
}

// Parse reads a record. The error is [ErrDamaged], or says that a newer bootstrap has written it.
func Parse(text []byte) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	switch {
	case r.Version > version:
		return nil, fmt.Errorf("a newer kata-vfio-bootstrap has written the record of its last look (version %d)", r.Version)
	case r.Version < 1, r.Outcome == "", r.At.IsZero():
		return nil, fmt.Errorf("%w: it lacks its version, outcome or time", ErrDamaged)
	}
	r.Differences = r.Differences[:min(len(r.Differences), most)]
	return r, nil
}

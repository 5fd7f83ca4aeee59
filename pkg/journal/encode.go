package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Version is the newest format that this code reads and writes. A record is written
// in the oldest one that can hold it ([VersionOf]), so that an older plugin reads all
// that it can keep, and refuses the rest untouched.
const Version = 2

// ErrDamaged says that a record's bytes are not what was written.
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

// Checksum returns what a record's file says of its content: the SHA-256 in
// hexadecimal of its compact JSON.
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

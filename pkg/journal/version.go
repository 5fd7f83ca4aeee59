package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Version is the version of the format of records. Raise it for a change that an older plugin must not ignore: an older
// plugin then refuses the record and does not change it ([ErrNewer]). A new field that an older plugin may ignore needs
// no new version.
const Version = 1

// ErrDamaged is the error for a record whose bytes differ from the written ones.
var ErrDamaged = errors.New("record is damaged")

// ErrNewer is the error for a record that a newer version of kata-vfio wrote.
var ErrNewer = errors.New("record is of a newer version")

// envelope is the outer form of the file. The checksum covers the record's bytes in compact form, so that reformatting
// by hand is harmless, and any other change is detected.
type envelope struct {
	Version int             `json:"version"`
	SHA256  string          `json:"sha256"`
	Record  json.RawMessage `json:"record"`
}

// Encode returns the file content of a record.
func Encode(r *Record) ([]byte, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record %s: %w", r.ID(), err)
	}
	data, err := json.MarshalIndent(envelope{Version: Version, SHA256: checksum(body), Record: body}, "", "  ")
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
	// The version is checked before the checksum: a later version may compute the checksum in another way, and "newer"
	// has another fix than "damaged".
	if env.Version > Version {
		return nil, fmt.Errorf("%w: it has version %d, this plugin reads version %d", ErrNewer, env.Version, Version)
	}
	if env.Version < 1 {
		return nil, fmt.Errorf("%w: it has version %d", ErrDamaged, env.Version)
	}
	var body bytes.Buffer
	// The checksum is of the compact form, so that indenting a record for reading does not damage it.
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

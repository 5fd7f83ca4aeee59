package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// ErrNone says that a directory holds no ledger.
var ErrNone = errors.New("there is no ledger")

// maxFiles limits the files of a ledger's directory: more would be an attack on the reader.
const maxFiles = 1 << 18

// files are the files of a ledger, by the number of their first event.
type files struct{ segments, hashes, kept []int64 }

// listFiles returns the files of a ledger, or [ErrNone] if it has none.
func listFiles(fsys fs.FS) (files, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return files{}, ErrNone
	}
	if err != nil {
		return files{}, fmt.Errorf("list ledger: %w", err)
	}
	if len(entries) > maxFiles {
		return files{}, fmt.Errorf("list ledger: it has %d files, the limit is %d", len(entries), maxFiles)
	}
	var f files
	for _, e := range entries {
		first, suffix, ok := parseFirst(e.Name())
		switch {
		case ok && suffix == segmentSuffix:
			f.segments = append(f.segments, first)
		case ok && suffix == keptSuffix:
			f.kept = append(f.kept, first)
		case ok:
			f.hashes = append(f.hashes, first)
		}
	}
	if len(f.segments) == 0 && len(f.hashes) == 0 {
		return files{}, ErrNone
	}
	slices.Sort(f.segments)
	slices.Sort(f.hashes)
	slices.Sort(f.kept)
	// After a crash between writing the hashes and removing their segment, the segment counts.
	superseded := func(first int64) bool { return slices.Contains(f.segments, first) }
	f.hashes, f.kept = slices.DeleteFunc(f.hashes, superseded), slices.DeleteFunc(f.kept, superseded)
	return f, nil
}

// readFile returns a file of at most limit bytes.
func readFile(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	defer func() { _ = f.Close() }()
	var data bytes.Buffer
	if info, err := f.Stat(); err == nil && info.Size() < limit {
		data.Grow(int(info.Size()) + bytes.MinRead)
	}
	// The byte beyond the limit tells a file that is too long from one that just fits.
	if _, err := data.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		return nil, fmt.Errorf("read ledger: %s: %w", name, err)
	}
	if int64(data.Len()) > limit {
		return nil, fmt.Errorf("read ledger: %s has more than %d bytes", name, limit)
	}
	return data.Bytes(), nil
}

// ErrNoKey says that the public key beside the ledger can't be read or is invalid.
var ErrNoKey = errors.New("there is no public key to verify the ledger with")

// CheckKey returns an error for a malformed public key.
func CheckKey(key string) error {
	_, err := note.NewVerifier(key)
	return err
}

// PublicKey returns the public key in a ledger's directory. The error matches [ErrNoKey] if the key can't be read or is invalid.
func PublicKey(fsys fs.FS) (string, error) {
	data, err := readFile(fsys, PublicKeyFile, 1024)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoKey, err)
	}
	key := strings.TrimSpace(string(data))
	if _, err := note.NewVerifier(key); err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrNoKey, PublicKeyFile, err)
	}
	return key, nil
}

// newVerifier returns the verifier of a key, or of the public key in the ledger's directory if key is empty.
func newVerifier(fsys fs.FS, key string) (note.Verifier, error) {
	if key == "" {
		var err error
		if key, err = PublicKey(fsys); err != nil {
			return nil, err
		}
	}
	v, err := note.NewVerifier(key)
	if err != nil {
		return nil, fmt.Errorf("key %.80q: %w", key, err)
	}
	return v, nil
}

// Entry is one event with its place.
type Entry struct {
	Event *Event
	// Raw is the line as it was written, whose hash is in the ledger.
	Raw  []byte
	File string
	Line int
}

// Events reads all events in order, without checking chain or signatures: [Verify] does that. For a line that is not an event,
// Events yields a [DamagedError] and continues. Any other error ends the sequence. Events of a write in progress, or of one that a
// power failure cut off, may be among them.
func Events(fsys fs.FS) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		f, err := listFiles(fsys)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for _, name := range f.names() {
			data, err := readFile(fsys, name, MaxSegment)
			if errors.Is(err, fs.ErrNotExist) {
				continue // dropped since it was listed
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if !readEvents(name, data, yield) {
				return
			}
		}
	}
}

// readEvents yields the events of one file's data.
func readEvents(name string, data []byte, yield func(Entry, error) bool) bool {
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line, complete := bytes.CutSuffix(line, []byte("\n"))
		if number == 1 && IsSegment(name) || IsMark(line) || !complete {
			continue
		}
		event, err := DecodeEvent(line)
		if err != nil {
			err = &DamagedError{File: name, Line: number, Seq: -1, What: err.Error()}
		}
		if !yield(Entry{Event: event, Raw: line, File: name, Line: number}, err) {
			return false
		}
	}
	return true
}

// readHashes returns the leaf hashes of a dropped segment.
func readHashes(fsys fs.FS, first int64) ([]tlog.Hash, *DamagedError, error) {
	name := HashesName(first)
	data, err := readFile(fsys, name, MaxSegment)
	if err != nil {
		return nil, nil, err
	}
	if len(data) == 0 || len(data)%tlog.HashSize != 0 {
		return nil, &DamagedError{File: name, Line: 1, Seq: first, What: fmt.Sprintf("%d bytes are not a whole number of hashes", len(data))}, nil
	}
	hashes := make([]tlog.Hash, 0, len(data)/tlog.HashSize)
	for chunk := range slices.Chunk(data, tlog.HashSize) {
		hashes = append(hashes, tlog.Hash(chunk))
	}
	return hashes, nil, nil
}

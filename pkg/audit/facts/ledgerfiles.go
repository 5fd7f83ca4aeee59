package facts

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"sync/atomic"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// maxLedger is how much of a ledger an audit reads, in bytes: twenty thousand
// tenancies and more. A longer one is for `kata-vfio-audit ledger verify`.
const maxLedger = 512 << 20

// maxKey is how much is read of what is no segment.
const maxKey = 4 << 10

// ledgerFiles is the ledger's directory as an [fs.FS] for reading once: through the
// node's file system, so that a copy of the node answers as the node did.
type ledgerFiles struct {
	fs   *sysfs.FS
	read atomic.Int64
}

// Open implements [fs.FS]. The file is in memory.
func (l *ledgerFiles) Open(name string) (fs.File, error) {
	limit := int64(maxKey)
	if path.Ext(name) == ".jsonl" || path.Ext(name) == ".hashes" {
		limit = ledger.MaxSegment + 1
	}
	if left := maxLedger - l.read.Load(); limit > left+1 {
		limit = left + 1
	}
	data, err := l.fs.ReadAtMost(path.Join(ledger.DefaultDir, name), limit)
	if err != nil {
		return nil, err
	}
	if l.read.Add(int64(len(data))) > maxLedger {
		return nil, fmt.Errorf("the ledger has more than %d MiB, which an audit does not read: `kata-vfio-audit ledger verify` does", maxLedger>>20)
	}
	return &memoryFile{Reader: bytes.NewReader(data), name: name}, nil
}

// ReadDir implements [fs.ReadDirFS], for the directory itself.
func (l *ledgerFiles) ReadDir(string) ([]fs.DirEntry, error) {
	names, err := l.fs.ReadDir(ledger.DefaultDir)
	if err != nil {
		return nil, err
	}
	entries := make([]fs.DirEntry, len(names))
	for i, name := range names {
		entries[i] = fs.FileInfoToDirEntry(&memoryFile{name: name})
	}
	return entries, nil
}

// memoryFile is a file that was read, and what there is to know of it.
type memoryFile struct {
	*bytes.Reader
	name string
}

func (f *memoryFile) Stat() (fs.FileInfo, error) { return f, nil }
func (f *memoryFile) Close() error               { return nil }
func (f *memoryFile) Name() string               { return f.name }
func (f *memoryFile) Size() int64                { return f.Reader.Size() }
func (f *memoryFile) Mode() fs.FileMode          { return 0o600 }
func (f *memoryFile) ModTime() time.Time         { return time.Time{} }
func (f *memoryFile) IsDir() bool                { return false }
func (f *memoryFile) Sys() any                   { return nil }

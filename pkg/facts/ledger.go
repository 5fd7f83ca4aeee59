package facts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Ledger verifies the node's ledger and returns the report and its fact, which is Absent if there is no ledger. A missing public
// key is a problem in the report. A node alone can't know whether its disk was restored as a whole: see [ledger.Verify].
func (n *Node) Ledger() (*ledger.Report, Fact) {
	type key struct{}
	type verified struct {
		report *ledger.Report
		fact   Fact
	}
	v := Memo(n, key{}, func() verified {
		r, f := n.verifyLedger()
		return verified{r, f}
	})
	return v.report, v.fact
}

// WithoutLedger sets the reason why a copy of a node does not contain the node's ledger. Call it before the first question about
// the ledger.
func (n *Node) WithoutLedger(why string) { n.noLedger = why }

func (n *Node) verifyLedger() (*ledger.Report, Fact) {
	if n.noLedger != "" {
		return nil, Fact{Path: "/" + ledger.DefaultDir, How: "ledger", Status: Broken, Err: n.noLedger}
	}
	names, dir := n.List(ledger.DefaultDir)
	dir.Value, dir.How = "", "ledger"
	if len(names) == 0 && dir.OK() {
		dir.Status = Absent
	}
	if !dir.OK() {
		return nil, dir
	}
	r, err := n.verifyFiles()
	refused := errors.Is(err, fs.ErrPermission)
	switch {
	case err == nil:
		dir.Value = output.Count(int(r.Size), "event") + " in " + output.Count(r.Segments, "segment")
		return r, dir
	// The directory has files, so the plugin did write a ledger here.
	case errors.Is(err, ledger.ErrNone):
		r = &ledger.Report{Problems: []ledger.Problem{{Kind: ledger.Missing, Seq: 0, What: "the events are missing, but other files of the ledger exist"}}}
		return r, dir
	// A key that the reader may not open says nothing about the ledger. A key that is missing is a fault of the ledger.
	case errors.Is(err, ledger.ErrNoKey) && !refused && n.Read(path.Join(ledger.DefaultDir, ledger.PublicKeyFile)).Known():
		r = &ledger.Report{Problems: []ledger.Problem{{Kind: ledger.Missing, File: ledger.PublicKeyFile, Seq: -1, What: err.Error()}}}
		return r, dir
	}
	dir.Status, dir.Err = Broken, err.Error()
	if refused {
		dir.Status = Denied
	}
	return nil, dir
}

// verifyFiles verifies the ledger's files. If the end is an unfinished write, it verifies them once more: a write of the running
// plugin is complete by then, but a write that a crash cut off is not.
func (n *Node) verifyFiles() (*ledger.Report, error) {
	r, err := ledger.Verify(newLedgerFiles(n.fs), ledger.Options{})
	if err == nil && len(r.Problems) == 1 && r.Problems[0].Kind == ledger.Unfinished {
		return ledger.Verify(newLedgerFiles(n.fs), ledger.Options{})
	}
	return r, err
}

// Replay returns the state of the node after the proven events of the ledger, with the fact of [Node.Ledger]. The state is empty if
// there is no ledger.
func (n *Node) Replay() (*Replay, Fact) {
	type key struct{}
	type result struct {
		replay *Replay
		fact   Fact
	}
	r := Memo(n, key{}, func() result {
		replay := newReplay(n.Snapshot.Host.BootID)
		report, f := n.Ledger()
		if report == nil {
			return result{replay, f}
		}
		for entry, err := range ledger.Events(newLedgerFiles(n.fs)) {
			if err != nil {
				continue // it is among the report's problems
			}
			// Later events are not proven: anyone who can write the file may have added them.
			if entry.Event.Seq < report.Size {
				replay.Apply(entry.Event)
			}
		}
		return result{replay, f}
	})
	return r.replay, r.fact
}

// maxLedger is the size limit in bytes of a ledger that an audit reads: twice what the plugin keeps by default, because hashes of
// dropped events, and events until they are dropped, come on top. This is more than a hundred thousand tenancies. `kata-vfio-audit
// ledger verify` reads larger ones.
const maxLedger = 2 << 30

// maxKey is the size limit in bytes of any other file.
const maxKey = 4 << 10

// ledgerFiles is the ledger's directory as an [fs.FS]. It reads through the node's file system, so that a copy of the node gives the
// same answers as the node. A file is in memory only while it is open.
type ledgerFiles struct {
	fs *sysfs.FS
	// limit is the largest sum of the files' sizes.
	limit int64

	mu    sync.Mutex
	total int64
	// sizes are the sizes of the files, as they were read last: a segment that is being written is read again.
	sizes map[string]int64
}

func newLedgerFiles(fsys *sysfs.FS) *ledgerFiles {
	return &ledgerFiles{fs: fsys, limit: maxLedger, sizes: map[string]int64{}}
}

// Open implements [fs.FS]. The file is in memory.
func (l *ledgerFiles) Open(name string) (fs.File, error) {
	limit := int64(maxKey)
	if path.Ext(name) == ".jsonl" || path.Ext(name) == ".hashes" {
		limit = ledger.MaxSegment + 1
	}
	// It reads one byte more than the rest of the limit, so that a ledger of exactly the limit is accepted and a longer one is noticed.
	limit = max(min(limit, l.left(name)+1), 0)
	data, err := l.fs.ReadAtMost(path.Join(ledger.DefaultDir, name), limit)
	if err != nil {
		return nil, err
	}
	if !l.count(name, int64(len(data))) {
		return nil, fmt.Errorf("the ledger has more than %d MiB, which an audit does not read: `kata-vfio-audit ledger verify` does", l.limit>>20)
	}
	return &memoryFile{Reader: bytes.NewReader(data), name: name}, nil
}

// left returns the largest size of a file with which the ledger keeps its limit.
func (l *ledgerFiles) left(name string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limit - l.total + l.sizes[name]
}

// count sets the size of a file, and reports whether the ledger keeps its limit with it.
func (l *ledgerFiles) count(name string, size int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += size - l.sizes[name]
	l.sizes[name] = size
	return l.total <= l.limit
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

// memoryFile is a file that is in memory completely, and its [fs.FileInfo].
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

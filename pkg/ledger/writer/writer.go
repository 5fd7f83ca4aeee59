// Package writer appends to a node's ledger (see package ledger). When Append returns, the events survive a power
// failure, and any later change of them is detected.
//
// A write appends some events and their signed checkpoint to the newest segment, and calls fsync once. Concurrent calls share a
// write. AppendSoon leaves the fsync to a later call. Several processes may have a ledger open: they take turns by flock, and each
// reads the writes of the others. If a process is killed during a write, the next one moves the torn write to a separate file and
// records that.
package writer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// Config says where a ledger is and what its events have in common.
type Config struct {
	// Dir is the ledger's directory, which is made if it is missing (mode 0700).
	Dir string
	// Node is the node's name. The node's key gets this name when it is created, on first use.
	Node string
	// Machine is the keyed hash of the machine's id, see [MachineHash].
	Machine string
	BootID  string
	Actor   ledger.Actor
	// SegmentBytes is the size after which a new segment begins; 0 means [DefaultSegmentBytes].
	SegmentBytes int64
	// Retain is how long events are kept; 0 means forever. [ledger.Event.Elapsed] measures the age, not the node's clock. The hashes
	// of dropped events stay.
	Retain time.Duration
	// RetainBytes limits the bytes of all events; 0 means unlimited. Above the limit, each namespace, or the node itself, that uses
	// more than its share loses its oldest events. All have the same share, and what one does not use is available to the others. So a
	// namespace that uses less than RetainBytes divided by the number of shares loses nothing, whatever the others do. The limit is
	// checked when a segment is full, so the ledger may exceed it by two segments. Hashes don't count.
	RetainBytes int64
	// Pseudonyms replaces the names of namespaces, pods and claims by keyed hashes. The key is created on first use. As long as the
	// file of the key exists, names are replaced even if Pseudonyms is false.
	Pseudonyms bool
	// Now returns the time, and CLOCK_BOOTTIME in nanoseconds. If it is nil, the kernel's clocks are used.
	Now func() (time.Time, int64)
	// Metrics may be nil.
	Metrics Metrics
}

// Metrics count writes.
type Metrics interface {
	// ObserveLedger is called after each write, also a failed one. It must not block.
	ObserveLedger(w Write)
}

// DefaultSegmentBytes is the size of a segment: some ten thousand events.
const DefaultSegmentBytes = 16 << 20

// lockLimit is how long a write waits for the writes of other processes. Their writes take milliseconds, unless a process was
// stopped in the middle.
const lockLimit = 10 * time.Second

// Write describes one write.
type Write struct {
	// Types are the types of its events, Size is the ledger's size after it, and Bytes its own length.
	Types []ledger.Type
	Size  int64
	Bytes int64
	Took  time.Duration
	Err   error
}

// Error says that an event could not be written, and what to do about it.
type Error struct {
	Dir string
	Err error
}

func (e *Error) Error() string {
	if _, damaged := errors.AsType[*ledger.DamagedError](e.Err); damaged {
		return fmt.Sprintf("ledger %s is damaged: %v; `kata-vfio-audit ledger verify` shows where; keep the directory as evidence: move it away and "+
			"restart the plugin, which begins a new ledger",
			e.Dir, e.Err)
	}
	if errors.Is(e.Err, syscall.ENOSPC) || errors.Is(e.Err, syscall.EDQUOT) {
		return fmt.Sprintf("ledger %s: %v; free disk space: the plugin hands no device over without an event", e.Dir, e.Err)
	}
	return fmt.Sprintf("ledger %s: %v", e.Dir, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Writer appends to a ledger. Its methods may be called from several goroutines.
type Writer struct {
	config Config

	mu    sync.Mutex // guards queue
	queue []*request
	turn  chan struct{} // held by the goroutine that writes; guards what follows

	opened   bool
	signer   note.Signer
	verifier note.Verifier
	names    *ledger.Pseudonyms // nil without pseudonyms
	locks    *journal.Locks
	at       position
	segment  segment
	pending  bool // the end of the newest segment may not be on disk yet

	last atomic.Pointer[string] // the last signed checkpoint on disk, for readers that must not wait

	// used has the usage of each file with events that was counted.
	used map[string]usage

	recall recall
	lasts  lasts
}

// request is one caller's events that are queued or being written.
type request struct {
	events []ledger.Event
	soon   bool // without the wait for the disk
	signed string
	err    error
	done   bool // guarded by turn
}

// New returns a writer that opens the ledger when it first appends: so the plugin can start although the ledger can't be opened.
// Then operations that must write an event fail with the reason.
func New(c Config) *Writer {
	w := &Writer{config: c, turn: make(chan struct{}, 1)}
	if w.config.SegmentBytes == 0 {
		w.config.SegmentBytes = DefaultSegmentBytes
	}
	if w.config.Now == nil {
		w.config.Now = now
	}
	return w
}

// Open opens the ledger immediately: it creates a missing ledger, moves a torn write to a separate file, and applies the
// retention. It waits for other processes until ctx ends.
func Open(ctx context.Context, c Config) (*Writer, error) {
	w := New(c)
	release, err := w.begun(ctx)
	if err != nil {
		return nil, &Error{Dir: c.Dir, Err: fmt.Errorf("open: %w", err)}
	}
	release()
	return w, nil
}

// begun takes the lock and moves the writer to the end of the ledger. It opens the ledger if necessary. The caller holds the turn,
// or is the writer's only user.
func (w *Writer) begun(ctx context.Context) (release func(), err error) {
	if release, err = w.lock(ctx); err != nil {
		return nil, err
	}
	if err := w.ready(ctx); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

func (w *Writer) ready(ctx context.Context) error {
	if w.opened {
		return w.catchUp(ctx)
	}
	if err := w.loadKeys(); err != nil {
		return err
	}
	if err := w.catchUp(ctx); err != nil {
		return err
	}
	w.opened = true
	return w.maintain()
}

// lock takes the ledger's lock, which all processes share.
func (w *Writer) lock(ctx context.Context) (release func(), err error) {
	if w.locks == nil {
		if err = journal.MakeDir(w.config.Dir); err != nil {
			return nil, err
		}
		if w.locks, err = journal.NewLocks(w.config.Dir); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, lockLimit, fmt.Errorf("no turn within %s: a process that writes to the ledger hangs or was stopped", lockLimit))
	defer cancel()
	return w.locks.Acquire(ctx, journal.Lock{Name: "append", Kept: true})
}

// Checkpoint returns the signed note of the last known write that is on disk: the anchor to keep off the node. It is empty if no
// such write is known.
func (w *Writer) Checkpoint() string {
	if signed := w.last.Load(); signed != nil {
		return *signed
	}
	return ""
}

func (w *Writer) path(name string) string { return filepath.Join(w.config.Dir, name) }

// syncDir makes the directory's entries durable.
func (w *Writer) syncDir() error {
	d, err := os.Open(w.config.Dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

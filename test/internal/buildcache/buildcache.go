// Package buildcache keeps what takes minutes to build, for any number of processes: one builds and the others wait.
//
// An entry is named by a key, the hash of what it is built from, and one that is there is always complete: it is built
// beside its place and renamed. A lock and a log lie beside it.
package buildcache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kata-vfio/kata-vfio/test/internal/progress"
)

// KeyLength is the length of a hash in a key, in hexadecimal digits.
const KeyLength = 16

// lockPause is between two looks at a lock: flock has no deadline of its own.
const lockPause = 500 * time.Millisecond

// Dir is the directory of a cache: what the environment variable says, or kata-vfio/<name> in the user's cache
// directory.
func Dir(variable, name string) (string, error) {
	if dir := os.Getenv(variable); dir != "" {
		return filepath.Abs(dir)
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory (or set %s): %w", variable, err)
	}
	return filepath.Join(user, "kata-vfio", name), nil
}

// Entry is one entry of a cache, whether it is built or not.
type Entry struct {
	// Dir is the cache's directory.
	Dir string
	// Key is the entry's name in it.
	Key string
	// What says what it is in progress and errors: "the lab's image".
	What string
}

// Build is one build of an entry, into a directory that nobody else sees yet.
type Build struct {
	// Into is the directory, empty at first.
	Into string
	// Log takes what the commands of the build say.
	Log io.Writer
	// Progress is for the person who waits.
	Progress *progress.Progress
}

// Path is the entry's directory. Nobody writes to it.
func (e Entry) Path() string { return filepath.Join(e.Dir, e.Key) }

// Working is where a build that is not finished lies.
func (e Entry) Working() string { return e.Path() + ".building" }

// Ensure builds the entry if it does not exist. It writes progress to out, and nothing if the entry exists. A build that ends
// early, by an error or a signal, leaves nothing that a later call would use.
func (e Entry) Ensure(ctx context.Context, out io.Writer, build func(context.Context, Build) error) error {
	if built, err := e.built(); built || err != nil {
		return err
	}
	if err := os.MkdirAll(e.Dir, 0o755); err != nil {
		return fmt.Errorf("make the cache: %w", err)
	}
	unlock, err := e.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if built, err := e.built(); built || err != nil { // by another process meanwhile
		return err
	}
	return e.build(ctx, out, build)
}

// built tells whether the entry is there.
func (e Entry) built() (bool, error) {
	_, err := os.Stat(e.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Lock waits until no other process builds this entry. The kernel frees the lock of a process that dies.
func (e Entry) Lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(e.Path()+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // closing unlocks
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for another build of %s: %w", e.What, context.Cause(ctx)), f.Close())
		case <-time.After(lockPause):
		}
	}
}

// build builds beside the entry's place and moves the finished result there. The caller holds the lock.
func (e Entry) build(ctx context.Context, out io.Writer, build func(context.Context, Build) error) error {
	if err := os.RemoveAll(e.Working()); err != nil {
		return fmt.Errorf("remove an unfinished build: %w", err)
	}
	if err := os.Mkdir(e.Working(), 0o755); err != nil {
		return err
	}
	log, err := os.Create(e.Path() + ".log")
	if err != nil {
		return err
	}
	defer log.Close() // the build's result does not depend on its log
	p := progress.New(out)
	p.Step("building %s (log: %s)", e.What, log.Name())
	if err := build(ctx, Build{Into: e.Working(), Log: log, Progress: p}); err != nil {
		return errors.Join(fmt.Errorf("%w\nthe whole log: %s", err, log.Name()), os.RemoveAll(e.Working()))
	}
	if err := os.Rename(e.Working(), e.Path()); err != nil {
		return err
	}
	p.Step("built %s", e.Path())
	return nil
}

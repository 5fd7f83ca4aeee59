package binaries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// CacheVariable names the environment variable that moves the cache.
const CacheVariable = "KATA_VFIO_E2E_CACHE"

// keyLength is the length of a key, in hexadecimal digits.
const keyLength = 16

// CacheDir is where built commands lie: $KATA_VFIO_E2E_CACHE, or kata-vfio/e2e in the user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory (or set %s): %w", CacheVariable, err)
	}
	return filepath.Join(user, "kata-vfio", "e2e"), nil
}

// cache is the place of one module's commands: a directory named by the module and the key, a lock and a log beside
// it.
type cache struct {
	dir, key string
}

func (r recipe) openCache(ctx context.Context, dir string) (cache, error) {
	digest, err := r.digest(ctx)
	if err != nil {
		return cache{}, fmt.Errorf("hash the sources: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return cache{}, fmt.Errorf("make the cache: %w", err)
	}
	return cache{dir: dir, key: string(r.module) + "-" + digest[:keyLength]}, nil
}

// digest covers all that decides what the commands are: the module's files, the toolchain and the flags.
func (r recipe) digest(ctx context.Context) (string, error) {
	toolchain, err := r.goOutput(ctx, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	// A hash takes every write.
	_, _ = fmt.Fprintf(sum, "%s\n%q %q %q %t\n", toolchain, r.flags(), r.packages, r.commands, r.cgo)
	names, err := r.sources()
	if err != nil {
		return "", err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(name), len(text), text)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// sources are the files of the module's own main package, sorted, and its pins. No command has others.
func (r recipe) sources() ([]string, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if slices.Contains([]string{"go.mod", "go.sum"}, e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			names = append(names, filepath.Join(r.dir, e.Name()))
		}
	}
	return names, nil
}

func (c cache) result() string  { return filepath.Join(c.dir, c.key) }
func (c cache) working() string { return c.result() + ".building" }
func (c cache) logFile() string { return c.result() + ".log" }

// built tells whether the result is there.
func (c cache) built() (bool, error) {
	_, err := os.Stat(c.result())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// lock waits until no other process builds these commands. The kernel frees the lock of a process that dies.
func (c cache) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(c.result()+".lock", os.O_RDWR|os.O_CREATE, 0o644)
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
		// flock has no deadline of its own.
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for another build: %w", context.Cause(ctx)), f.Close())
		case <-time.After(500 * time.Millisecond):
		}
	}
}

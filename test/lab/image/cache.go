package image

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// CacheVariable names the environment variable that moves the cache.
const CacheVariable = "KATA_VFIO_LAB_CACHE"

// source is what an image depends on: how it is built.
//
//go:embed build.go recipe.go kernel.go vfio.go modules.go rootfs.go vfio
var source embed.FS

// keyLength is the length of an image's key, in hexadecimal digits.
const keyLength = 16

// cache is the directory of images: one directory for each key, a lock and a log beside it.
type cache struct {
	dir, key string
}

func openCache() (cache, error) {
	dir, err := CacheDir()
	if err != nil {
		return cache{}, err
	}
	key, err := hashTree(source)
	if err != nil {
		return cache{}, fmt.Errorf("hash the image's recipe: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return cache{}, fmt.Errorf("make the lab's cache: %w", err)
	}
	return cache{dir: dir, key: key}, nil
}

// CacheDir is where images lie: $KATA_VFIO_LAB_CACHE, or kata-vfio/lab in the user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv(CacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory (or set %s): %w", CacheVariable, err)
	}
	return filepath.Join(user, "kata-vfio", "lab"), nil
}

// hashTree is a digest of the names and contents of all files.
func hashTree(files fs.FS) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text) // a hash takes every write
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:keyLength], err
}

func (c cache) image() string   { return filepath.Join(c.dir, c.key) }
func (c cache) working() string { return c.image() + ".building" }
func (c cache) logFile() string { return c.image() + ".log" }

// lock waits until no other process builds this image. The kernel frees the lock of a process that dies.
func (c cache) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(c.image()+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the lab's cache: %w", err)
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
			return nil, errors.Join(fmt.Errorf("wait for another build of the lab's image: %w", context.Cause(ctx)), f.Close())
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// build builds beside the image's place and moves the finished result there. The caller holds the lock.
func (c cache) build(ctx context.Context, out io.Writer) error {
	if err := os.RemoveAll(c.working()); err != nil {
		return fmt.Errorf("remove an unfinished build: %w", err)
	}
	if err := os.MkdirAll(c.working(), 0o755); err != nil {
		return err
	}
	log, err := os.Create(c.logFile())
	if err != nil {
		return err
	}
	defer log.Close() // the build's result does not depend on its log
	p := newProgress(out)
	p.step("building the lab's image %s (log: %s)", c.image(), log.Name())
	b := &build{runner: runner{log: log}, progress: p, recipe: standard(), dir: c.working()}
	if err := b.all(ctx); err != nil {
		return errors.Join(fmt.Errorf("%w\nthe whole log: %s", err, log.Name()), os.RemoveAll(c.working()))
	}
	if err := os.Rename(c.working(), c.image()); err != nil {
		return err
	}
	p.step("the image is ready")
	return nil
}

// keyOf is the image's key in the name of a cache entry, an image or what lies beside one.
func keyOf(name string) (string, bool) {
	key, _, _ := strings.Cut(name, ".")
	_, err := hex.DecodeString(key)
	return key, err == nil && len(key) == keyLength
}

// Prune removes all images but the one of this source, and what their builds left. It must not run while another
// process builds or boots one of them.
func Prune() (removed []string, err error) {
	c, err := openCache()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, fmt.Errorf("list the lab's cache: %w", err)
	}
	for _, e := range entries {
		if key, ok := keyOf(e.Name()); !ok || key == c.key {
			continue
		}
		path := filepath.Join(c.dir, e.Name())
		if err := os.RemoveAll(path); err != nil {
			return removed, fmt.Errorf("prune the lab's cache: %w", err)
		}
		removed = append(removed, path)
	}
	return removed, nil
}

package image

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/internal/buildcache"
)

// CacheVariable names the environment variable that moves the cache, which is kata-vfio/lab in the user's cache
// directory.
const CacheVariable = "KATA_VFIO_LAB_CACHE"

// source is what an image depends on: how it is built.
//
//go:embed build.go recipe.go kernel.go vfio.go netdevsim.go vgpu.go ids.go modules.go rootfs.go vfio vgpu ids
var source embed.FS

// cached is the place of this source's image.
func cached() (buildcache.Entry, error) {
	dir, err := buildcache.Dir(CacheVariable, "lab")
	if err != nil {
		return buildcache.Entry{}, err
	}
	key, err := hashTree(source)
	if err != nil {
		return buildcache.Entry{}, fmt.Errorf("hash the image's recipe: %w", err)
	}
	return buildcache.Entry{Dir: dir, Key: key, What: "the lab's image"}, nil
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
	return hex.EncodeToString(sum.Sum(nil))[:buildcache.KeyLength], err
}

// buildImage is the build of the one recipe.
func buildImage(ctx context.Context, into buildcache.Build) error {
	b := &build{runner: runner{log: into.Log}, progress: &progress{into.Progress}, recipe: standard(), dir: into.Into}
	return b.all(ctx)
}

// keyOf is the image's key in the name of a cache entry, an image or what lies beside one.
func keyOf(name string) (string, bool) {
	key, _, _ := strings.Cut(name, ".")
	_, err := hex.DecodeString(key)
	return key, err == nil && len(key) == buildcache.KeyLength
}

// Prune removes all images but the one of this source, and what their builds left. It must not run while another
// process builds or boots one of them.
func Prune() (removed []string, err error) {
	c, err := cached()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("list the lab's cache: %w", err)
	}
	for _, e := range entries {
		if key, ok := keyOf(e.Name()); !ok || key == c.Key {
			continue
		}
		path := filepath.Join(c.Dir, e.Name())
		if err := os.RemoveAll(path); err != nil {
			return removed, fmt.Errorf("prune the lab's cache: %w", err)
		}
		removed = append(removed, path)
	}
	return removed, nil
}

package binaries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/internal/buildcache"
)

// CacheVariable names the environment variable that moves the cache, which is kata-vfio/e2e in the user's cache
// directory.
const CacheVariable = "KATA_VFIO_E2E_CACHE"

// entry is the place of one module's commands in the cache, named by the module and the hash of its sources.
func (r recipe) entry(ctx context.Context, dir string) (buildcache.Entry, error) {
	digest, err := r.digest(ctx)
	if err != nil {
		return buildcache.Entry{}, fmt.Errorf("hash the sources: %w", err)
	}
	return buildcache.Entry{
		Dir: dir, Key: string(r.module) + "-" + digest[:buildcache.KeyLength], What: strings.Join(r.commands, ", "),
	}, nil
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
		if slices.Contains(r.pins(), e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			names = append(names, filepath.Join(r.dir, e.Name()))
		}
	}
	return names, nil
}

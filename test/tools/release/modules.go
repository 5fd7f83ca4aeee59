package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// standardLibrary is what package URLs call it.
const standardLibrary = "std"

// modules are those that a program has in it, in the order of their paths, Go's own library first.
func modules(build *debug.BuildInfo) []module.Version {
	list := []module.Version{{Path: standardLibrary, Version: build.GoVersion}}
	for _, m := range build.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		list = append(list, module.Version{Path: m.Path, Version: m.Version})
	}
	slices.SortStableFunc(list[1:], func(a, b module.Version) int { return cmp.Compare(a.Path, b.Path) })
	return list
}

// moduleCache is where the modules lie that the programs were compiled of.
type moduleCache struct{ dir, goroot string }

// newModuleCache asks the Go command, which is that of PATH.
func newModuleCache(ctx context.Context) (*moduleCache, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("ask Go where its modules lie: %w", err)
	}
	dirs := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(dirs) != 2 {
		return nil, fmt.Errorf("go env prints %q for where the modules are", out)
	}
	return &moduleCache{dir: dirs[0], goroot: dirs[1]}, nil
}

// legal matches the names of files with licenses, and with what they want to be passed on.
var legal = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// texts are the files with a module's licenses, by name. A module that is not in the cache has none.
func (c *moduleCache) texts(m module.Version) ([]file, error) {
	dir := c.goroot
	if m.Path != standardLibrary {
		escapedPath, err := module.EscapePath(m.Path)
		if err != nil {
			return nil, err
		}
		escapedVersion, err := module.EscapeVersion(m.Version)
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(c.dir, escapedPath+"@"+escapedVersion)
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var texts []file
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !legal.MatchString(entry.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		texts = append(texts, file{path: entry.Name(), content: content})
	}
	return texts, nil
}

// licenses are the texts of all modules in a program, which most of them want to be passed on with it.
func (c *moduleCache) licenses(build *debug.BuildInfo) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintln(&out, "This program contains the modules below, each under the license that stands with it.")
	for _, m := range modules(build) {
		texts, err := c.texts(m)
		if err != nil {
			return nil, err
		}
		if len(texts) == 0 {
			return nil, fmt.Errorf("%s has no license in %s: download it", m, c.dir)
		}
		for _, text := range texts {
			fmt.Fprintf(&out, "\n%s\n%s %s: %s\n\n%s", strings.Repeat("=", 78), m.Path, m.Version, text.path, text.content)
		}
	}
	return out.Bytes(), nil
}

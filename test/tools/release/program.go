package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// program is a program for one processor, and what comes with it.
type program struct {
	name    string // without .exe
	os      string // a GOOS
	arch    string // a GOARCH
	content []byte
	build   *debug.BuildInfo
	// What describe adds, the same for all processors except for the licenses.
	manual      page
	completions []completion
	licenses    []byte
}

// platform is where the program runs: linux-amd64.
func (p *program) platform() string { return p.os + "-" + p.arch }

// file is the name of the program's file.
func (p *program) file() string {
	if p.os == "windows" {
		return p.name + ".exe"
	}
	return p.name
}

// isKubectlPlugin tells by kubectl's rule for the names of its plugins.
func (p *program) isKubectlPlugin() bool { return strings.HasPrefix(p.name, "kubectl-") }

// setting is how it was compiled.
func (p *program) setting(key string) string {
	for _, s := range p.build.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// load reads the programs of a directory, by name, system and processor. Each is there for the same processors on Linux. Programs
// for other systems lie in directories such as darwin-arm64.
func load(dir string) ([]program, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		return nil, err
	}
	var programs []program
	archs := map[string][]string{} // by name
	for _, file := range files {
		p, err := read(file)
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", file, err)
		}
		programs = append(programs, p)
		if p.os == "linux" {
			archs[p.name] = append(archs[p.name], p.arch)
		}
	}
	if len(programs) == 0 {
		return nil, fmt.Errorf("%s has no programs, such as %s", dir, filepath.Join(dir, "amd64", "show"))
	}
	slices.SortFunc(programs, func(a, b program) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.os, b.os), cmp.Compare(a.arch, b.arch))
	})
	for name, has := range archs {
		if want := archs[programs[0].name]; !slices.Equal(has, want) {
			return nil, fmt.Errorf("%s is there for %v, and %s for %v", programs[0].name, want, name, has)
		}
	}
	return programs, nil
}

// read reads a program, and refuses one that was not compiled to be released.
func read(file string) (program, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return program{}, err
	}
	p := program{name: strings.TrimSuffix(filepath.Base(file), ".exe"), os: "linux", arch: filepath.Base(filepath.Dir(file)), content: content}
	if system, arch, ok := strings.Cut(p.arch, "-"); ok {
		p.os, p.arch = system, arch
	}
	if p.build, err = buildinfo.Read(bytes.NewReader(content)); err != nil {
		return program{}, err
	}
	for key, want := range map[string]string{"GOOS": p.os, "GOARCH": p.arch, "CGO_ENABLED": "0", "-trimpath": "true"} {
		if got := p.setting(key); got != want {
			return program{}, fmt.Errorf("it is compiled with %s=%s: want %s", key, got, want)
		}
	}
	return p, nil
}

// source is what a release is made of.
type source struct {
	version  string
	revision string
	time     time.Time // of the commit; the time of everything in a release
	modified bool
}

// sourceOf returns the source of the programs: the commit that all of them name.
func sourceOf(programs []program) (source, error) {
	var first source
	for i := range programs {
		p := &programs[i]
		src := source{revision: p.setting("vcs.revision"), modified: p.setting("vcs.modified") == "true"}
		if src.revision == "" {
			return source{}, fmt.Errorf("%s names no commit: compile it with -buildvcs=true in a clone", p.name)
		}
		var err error
		if src.time, err = time.Parse(time.RFC3339, p.setting("vcs.time")); err != nil {
			return source{}, fmt.Errorf("the commit's time in %s: %w", p.name, err)
		}
		if i == 0 {
			first = src
		}
		if src != first {
			return source{}, errors.New("the programs are of two states of the tree: compile all of them again")
		}
	}
	return first, nil
}

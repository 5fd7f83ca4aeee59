package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// archs are those that the tests' programs are compiled for: what needs a run takes this host's.
func archs() []string {
	return slices.Compact(slices.Sorted(slices.Values([]string{"amd64", "arm64", runtime.GOARCH})))
}

// builtVariable names the directory of the tests' programs.
const builtVariable = "KATA_VFIO_TEST_PROGRAMS"

func TestMain(m *testing.M) {
	code, err := withPrograms(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withPrograms compiles the tests' program for each processor, once for all tests.
func withPrograms(run func() int) (int, error) {
	dir, err := os.MkdirTemp("", "release-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	for _, arch := range archs() {
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s", "-o", filepath.Join(dir, "programs", arch, "show"), "./show")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err := os.Setenv(builtVariable, filepath.Join(dir, "programs")); err != nil {
		return 0, err
	}
	return run(), nil
}

func programs(t *testing.T) []program {
	t.Helper()
	list, err := load(os.Getenv(builtVariable))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// made is a commit, and tree the tree that it is of.
func made() source {
	return source{version: "1.2.3", revision: strings.Repeat("5a", 20), time: time.Date(2026, 7, 1, 9, 30, 0, 0, time.UTC)}
}

const tree = "../../.."

// release makes a release of a tree in a directory.
func release(ctx context.Context, tree, dir string, list []program) error {
	r := request{tree: tree, output: dir, version: "1.2.3", bare: []string{"show"}}
	if err := r.write(ctx, made(), list); err != nil {
		return err
	}
	return checksums(dir, io.Discard)
}

// released is the directory of a release that all tests look at, made when the first does.
func released(t *testing.T) string {
	t.Helper()
	dir, err := makeOnce()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var makeOnce = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(filepath.Dir(os.Getenv(builtVariable)), "released")
	list, err := load(os.Getenv(builtVariable))
	if err != nil {
		return "", err
	}
	return dir, errors.Join(os.Mkdir(dir, 0o700), release(context.Background(), tree, dir, list))
})

// contents are the files of a directory by their names.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found[entry.Name()] = string(content)
	}
	return found
}

func names[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

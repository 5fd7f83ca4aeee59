package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReleaseIsWhole(t *testing.T) {
	dir := released(t)
	want := []string{
		"SHA256SUMS", chartFile(t), "kata-vfio-1.2.3-1.aarch64.rpm", "kata-vfio-1.2.3-1.x86_64.rpm", "kata-vfio-1.2.3.spdx.json",
		"kata-vfio_1.2.3-1_amd64.deb", "kata-vfio_1.2.3-1_arm64.deb", "show-1.2.3-linux-amd64.tar.gz", "show-1.2.3-linux-arm64.tar.gz",
		"show-linux-amd64", "show-linux-arm64",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, names(contents(t, dir))); diff != "" {
		t.Errorf("the files differ (-want +got):\n%s", diff)
	}
	sums := exec.CommandContext(t.Context(), "sha256sum", "--strict", "--check", sumsFile)
	sums.Dir = dir
	out, err := sums.CombinedOutput()
	if err != nil || strings.Count(string(out), ": OK\n") != len(want)-1 {
		t.Errorf("the checksums: %v\n%s", err, out)
	}
}

// chartFile is the chart's name in a release, by the version that it says itself.
func chartFile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tree, "deploy/helm/kata-vfio/Chart.yaml"))
	version := regexp.MustCompile(`(?m)^version: (\S+)$`).FindSubmatch(text)
	if err != nil || version == nil {
		t.Fatalf("the chart's version: %v, %s", err, text)
	}
	return "kata-vfio-" + string(version[1]) + ".tgz"
}

// TestBareProgramRuns: what a node's script fetches is the program, and no archive of it.
func TestBareProgramRuns(t *testing.T) {
	file := filepath.Join(released(t), "show-linux-"+runtime.GOARCH)
	if out, err := exec.CommandContext(t.Context(), file, "list", "deep").Output(); err != nil || string(out) != "here\n" {
		t.Errorf("it says %q, %v", out, err)
	}
	r := request{output: t.TempDir(), bare: []string{"shaw"}}
	if err := r.writeBare(programs(t)); err == nil {
		t.Error("a program that is not there is not missed")
	}
}

// entries are the headers of an archive, in order.
func entries(t *testing.T, file string) (headers []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(made().time) || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s is of %v and %d:%d's", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		headers = append(headers, fmt.Sprintf("%o %s", h.Mode, h.Name))
	}
}

func TestArchivesHaveTheProgramAndWhatComesWithIt(t *testing.T) {
	dir := released(t)
	want := []string{
		"644 show-1.2.3-linux-arm64/LICENSE", "644 show-1.2.3-linux-arm64/THIRD-PARTY-LICENSES",
		"644 show-1.2.3-linux-arm64/completions/_show", "644 show-1.2.3-linux-arm64/completions/show",
		"644 show-1.2.3-linux-arm64/completions/show.fish", "644 show-1.2.3-linux-arm64/man/show.8",
		"755 show-1.2.3-linux-arm64/show",
	}
	if diff := cmp.Diff(want, entries(t, filepath.Join(dir, "show-1.2.3-linux-arm64.tar.gz"))); diff != "" {
		t.Errorf("the files differ (-want +got):\n%s", diff)
	}
}

func TestChartHasItsFiles(t *testing.T) {
	dir := released(t)
	chart := filepath.Join(tree, "deploy/helm/kata-vfio")
	got := entries(t, filepath.Join(dir, chartFile(t)))
	err := filepath.WalkDir(chart, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		in, err := filepath.Rel(chart, name)
		if len(got) == 0 || got[0] != "644 kata-vfio/"+in {
			return fmt.Errorf("%s is not next in %v: %w", in, got, err)
		}
		got = got[1:]
		return err
	})
	if err != nil || len(got) > 0 {
		t.Errorf("%v; left over: %v", err, got)
	}
}

// TestChartOfAChangedTreeIsNotTheReleases, nor does it take the release's images.
func TestChartOfAChangedTreeIsNotTheReleases(t *testing.T) {
	dir := t.TempDir()
	if _, err := writeChart(tree, dir, made(), true); err != nil {
		t.Fatal(err)
	}
	name := strings.Replace(chartFile(t), ".tgz", "-dev.tgz", 1)
	out, err := exec.CommandContext(t.Context(), "tar", "-xzOf", filepath.Join(dir, name), "kata-vfio/Chart.yaml").Output()
	if err != nil || len(regexp.MustCompile(`(?m)^(version|appVersion): \S+-dev$`).FindAll(out, -1)) != 2 {
		t.Errorf("%v:\n%s", err, out)
	}
}

func TestChartDoesNotHaveWhatItIgnores(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{".helmignore": "*.tmp\n", "Chart.yaml": "name: x", "a.tmp": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := chartFiles(os.DirFS(dir), "x")
	if err != nil || len(files) != 2 || files[0].path != "x/.helmignore" || files[1].path != "x/Chart.yaml" {
		t.Errorf("%v, %v", files, err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".helmignore"), []byte("!*.tmp\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := chartFiles(os.DirFS(dir), "x"); err == nil {
		t.Error("a pattern that is not obeyed is taken")
	}
}

// TestReleaseIsTheSameWhereverItIsMade: with files of other times and permissions, another umask, home and time zone.
func TestReleaseIsTheSameWhereverItIsMade(t *testing.T) {
	first := contents(t, released(t))
	other := t.TempDir()
	for _, name := range []string{"LICENSE", "README.md", "runtimeclass", "deploy"} {
		if out, err := exec.CommandContext(t.Context(), "cp", "-r", "--no-preserve=all", filepath.Join(tree, name), other).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	modules, err := newModuleCache(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOMODCACHE", modules.dir)
	t.Setenv("TMPDIR", other)
	t.Setenv("TZ", "Pacific/Auckland")
	t.Setenv("HOME", "/nonexistent")
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	if err := release(t.Context(), other, dir, programs(t)); err != nil {
		t.Fatal(err)
	}
	second := contents(t, dir)
	if diff := cmp.Diff(names(first), names(second)); diff != "" {
		t.Errorf("the files differ (-first +second):\n%s", diff)
	}
	for name := range first {
		if first[name] != second[name] {
			t.Errorf("%s differs", name)
		}
	}
}

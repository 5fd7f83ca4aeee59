package main

import (
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// unpackDebian has a package's files in a directory, and is the package's field of that name.
func unpackDebian(t *testing.T, file string) (dir string, field func(string) string) {
	t.Helper()
	dir = t.TempDir()
	command(t, "dpkg-deb", "--extract", file, dir)
	return dir, func(name string) string { return strings.TrimSpace(command(t, "dpkg-deb", "--field", file, name)) }
}

func debianPackage(t *testing.T) string {
	t.Helper()
	return filepath.Join(released(t), "kata-vfio_1.2.3-1_"+runtime.GOARCH+".deb")
}

// TestDebianPackageFollowsThePolicy holds what lintian complained about.
func TestDebianPackageFollowsThePolicy(t *testing.T) {
	dir, field := unpackDebian(t, debianPackage(t))
	if got := field("Maintainer"); !regexp.MustCompile(`^[^<>@]+ <[^<>@ ]+@[^<>@ ]+\.[a-z]+>$`).MatchString(got) {
		t.Errorf("the maintainer %q is not a name and a mail address", got)
	}
	description := strings.Split(field("Description"), "\n")
	if len(description) < 2 || strings.HasSuffix(description[0], ".") {
		t.Errorf("the description is %q: want a line without a full stop, and more", description)
	}
	for _, line := range description {
		if len(line) > 80 {
			t.Errorf("the description has the line %q of %d characters: 80 are the most", line, len(line))
		}
	}
	copyright, err := os.ReadFile(filepath.Join(dir, "usr/share/doc/kata-vfio/copyright"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`^Format: https://www\.debian\.org/doc/packaging-manuals/copyright-format/1\.0/\n`, `(?m)^Files: \*$`, `(?m)^Copyright: \d{4} \S`,
		`(?m)^License: Apache-2\.0$`, `/usr/share/common-licenses/Apache-2\.0\b`,
	} {
		if !regexp.MustCompile(want).Match(copyright) {
			t.Errorf("copyright does not have %s:\n%s", want, copyright)
		}
	}
	if strings.Contains(string(copyright), "TERMS AND CONDITIONS") {
		t.Error("copyright has the license's whole text, which Debian has already")
	}
}

func TestDebianChangelogIsOfTheVersion(t *testing.T) {
	dir, field := unpackDebian(t, debianPackage(t))
	checkChangelog(t, dir, field)
	changed := t.TempDir()
	src := made()
	src.version += devSuffix
	r := request{tree: tree, output: changed}
	if err := r.writePackages(src, programs(t)); err != nil {
		t.Fatal(err)
	}
	dir, field = unpackDebian(t, filepath.Join(changed, "kata-vfio_1.2.3~dev-1_"+runtime.GOARCH+".deb"))
	checkChangelog(t, dir, field)
}

func checkChangelog(t *testing.T, dir string, field func(string) string) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "usr/share/doc/kata-vfio/changelog.Debian.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if unzipped.Name != "" || !unzipped.ModTime.IsZero() {
		t.Errorf("the changelog says its file's name %q and time %v", unzipped.Name, unzipped.ModTime)
	}
	text, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^kata-vfio \(` + regexp.QuoteMeta(field("Version")) + `\) unstable; urgency=medium\n\n  \* \S[^\n]*\n    https://[^\n]{0,70}\n\n -- ` +
		regexp.QuoteMeta(field("Maintainer")) + `  Wed, 01 Jul 2026 09:30:00 \+0000\n$`)
	if !want.Match(text) {
		t.Errorf("the changelog of %s is\n%s", field("Version"), text)
	}
}

// TestLintianIsContent where there is one.
func TestLintianIsContent(t *testing.T) {
	lintian, err := exec.LookPath("lintian")
	if err != nil {
		t.Skip("there is no lintian")
	}
	args := []string{"--fail-on", "error,warning", debianPackage(t)}
	if os.Geteuid() == 0 {
		args = append(args, "--allow-root")
	}
	command(t, lintian, args...)
}

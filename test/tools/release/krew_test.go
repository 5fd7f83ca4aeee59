package main

import (
	"archive/zip"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// everywhere are a kubectl plugin's programs for Linux and, of the same source, for two other systems.
func everywhere(t *testing.T) []program {
	t.Helper()
	dir := t.TempDir()
	for _, arch := range archs() {
		place := filepath.Join(dir, arch)
		if err := os.Mkdir(place, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(filepath.Join(os.Getenv(builtVariable), arch, "show"), filepath.Join(place, "kubectl-show_it")); err != nil {
			t.Fatal(err)
		}
	}
	for _, platform := range []string{"darwin-arm64/kubectl-show_it", "windows-amd64/kubectl-show_it.exe"} {
		system, arch, _ := strings.Cut(filepath.Dir(platform), "-")
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s", "-o", filepath.Join(dir, platform), "./show")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	list, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestKubectlPluginIsReleasedForEverySystem(t *testing.T) {
	dir := t.TempDir()
	if err := release(t.Context(), tree, dir, append(everywhere(t), programs(t)...)); err != nil {
		t.Fatal(err)
	}
	files := contents(t, dir)
	var got []string
	for _, name := range names(files) {
		if strings.HasPrefix(name, "kubectl-") || strings.HasSuffix(name, ".krew.yaml") {
			got = append(got, name)
		}
	}
	want := []string{
		"kubectl-show_it-1.2.3-darwin-arm64.tar.gz", "kubectl-show_it-1.2.3-linux-amd64.tar.gz", "kubectl-show_it-1.2.3-linux-arm64.tar.gz",
		"kubectl-show_it-1.2.3-windows-amd64.zip", "show-it.krew.yaml",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the files differ (-want +got):\n%s", diff)
	}
	for _, file := range names(files) {
		if strings.HasSuffix(file, ".deb") && strings.Contains(files[file], "show_it") {
			t.Errorf("%s has the kubectl plugin", file)
		}
	}
	checkZip(t, filepath.Join(dir, want[3]))
	checkKrew(t, files)
}

func checkZip(t *testing.T, file string) {
	t.Helper()
	archive, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	modes := map[string]string{}
	for _, f := range archive.File {
		modes[f.Name] = fmt.Sprintf("%o", f.Mode().Perm())
		if !f.Modified.Equal(made().time) {
			t.Errorf("%s is of %v", f.Name, f.Modified)
		}
	}
	if modes["kubectl-show_it-1.2.3-windows-amd64/kubectl-show_it.exe"] != "755" || modes["kubectl-show_it-1.2.3-windows-amd64/LICENSE"] != "644" {
		t.Errorf("files by mode: %v", modes)
	}
}

// checkKrew holds the manifest to krew's rules, and to the archives.
func checkKrew(t *testing.T, files map[string]string) {
	t.Helper()
	var m krewManifest
	if err := yaml.Unmarshal([]byte(files["show-it.krew.yaml"]), &m); err != nil {
		t.Fatal(err)
	}
	if m.Metadata.Name != "show-it" || m.Kind != "Plugin" || m.Spec.Version != "v1.2.3" || len(m.Spec.ShortDescription) > 50 || len(m.Spec.Platforms) != 4 {
		t.Errorf("the manifest is %+v", m)
	}
	for _, p := range m.Spec.Platforms {
		archive := p.URI[strings.LastIndex(p.URI, "/")+1:]
		if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(files[archive]))); files[archive] == "" || sum != p.SHA256 {
			t.Errorf("%s has the checksum %s, the manifest %s", archive, sum, p.SHA256)
		}
		if exe := strings.HasSuffix(p.Bin, ".exe"); exe != (p.Selector.MatchLabels["os"] == "windows") || p.Files[0].From != "*/"+p.Bin {
			t.Errorf("%s: the program is %s, copied from %s", archive, p.Bin, p.Files[0].From)
		}
	}
}

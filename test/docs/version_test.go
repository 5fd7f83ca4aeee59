package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

// The chart's version is the one place. Documents and examples that show a version are copied with it.
func TestOneVersionIsShown(t *testing.T) {
	var chart struct{ Version, AppVersion string }
	if err := yaml.Unmarshal([]byte(docs.Read(t, "deploy/helm/kata-vfio/Chart.yaml")), &chart); err != nil {
		t.Fatal(err)
	}
	if chart.Version == "" || chart.AppVersion != chart.Version {
		t.Errorf("the chart's version is %q, and its appVersion %q: want one", chart.Version, chart.AppVersion)
	}
	if !strings.Contains(docs.Read(t, "CHANGELOG.md"), chart.Version) {
		t.Errorf("the changelog does not name version %s", chart.Version)
	}
	// Of an image, a file of a release, or a variable of a shell.
	shown := regexp.MustCompile(`(?:kata[-_]vfio[a-z_-]*(?:[:_-]|, tag: )|^ *VERSION=)v?(\d+\.\d+\.\d+)`)
	found := 0
	for _, path := range append(docs.All(t), manifests(t)...) {
		for line := range strings.Lines(docs.Read(t, path)) {
			for _, m := range shown.FindAllStringSubmatch(line, -1) {
				found++
				if m[1] != chart.Version {
					t.Errorf("%s shows version %s, and the chart has %s: %s", path, m[1], chart.Version, line)
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d versions are found", found)
	}
}

// manifests are the paths of all YAML files in deploy, from docs.Root.
func manifests(t *testing.T) (all []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(docs.Root(t)), "deploy", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".yaml" {
			all = append(all, path)
		}
		return err
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("the manifests are %v, %v", all, err)
	}
	return all
}

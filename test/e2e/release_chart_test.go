//go:build e2e

package e2e

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// releasedChart is what a release has of the chart.
type releasedChart struct {
	archive  string // the path of the chart's .tgz
	manifest string // the text of the manifest for kubectl
}

// packChart makes the chart's files as `make release` does, of this tree.
func packChart(t *testing.T) releasedChart {
	t.Helper()
	dir := t.TempDir()
	helm, err := helmBinary()
	if err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(dir, "make-release")
	commands := [][]string{
		{"go", "-C", "../tools/release", "build", "-o", tool, "."},
		{tool, "-chart-only", "-tree", "../..", "-version", "1.2.3", "-helm", helm, "-o", dir},
	}
	for _, command := range commands {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil { //nolint:gosec // the commands above
			t.Fatalf("%q: %v\n%s", command, err, out)
		}
	}
	archives, err := filepath.Glob(filepath.Join(dir, "kata-vfio-*.tgz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("the release has the charts %q, %v; want one", archives, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "kata-vfio-1.2.3-install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return releasedChart{archive: archives[0], manifest: string(text)}
}

// releaseValues are sets of values that reach what templates read of the chart's other files.
func releaseValues() map[string]string {
	return map[string]string{
		"the defaults":        "",
		"all that is watched": "metrics: {prometheusRule: {enabled: true}, dashboard: {enabled: true}}\naudit: {enabled: true}",
		"a controller":        "tenancy: {enabled: true}\nkai: {countGPUs: true}\nsanitizers: {profiles: {memory: {image: \"registry.example/s@sha256:" + strings.Repeat("0", 64) + "\"}}}",
		"other names":         "nameOverride: other\nkubectl: {classes: {enabled: true}}\ntest: {enabled: true}",
	}
}

// TestReleasedChart: other tests install the source tree. A release's chart renders like it, helm installs it, and the API server takes its manifest.
func TestReleasedChart(t *testing.T) {
	released := packChart(t)
	for _, name := range slices.Sorted(maps.Keys(releaseValues())) {
		args := mutating("v1")
		tree, err := templateFrom(t, chart, releaseValues()[name], args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if packed, err := templateFrom(t, released.archive, releaseValues()[name], args...); err != nil || packed != tree {
			t.Errorf("%s: the released chart renders otherwise (%v; -tree +released):\n%s", name, err, cmp.Diff(tree, packed))
		}
	}
	// It was rendered for the oldest Kubernetes.
	if text, err := template(t, "", mutating("v1")...); err != nil || !strings.HasSuffix(released.manifest, text) {
		t.Errorf("the manifest is not the chart's for Kubernetes %s (%v; -chart +manifest):\n%s", kubernetesVersion(), err, cmp.Diff(text, released.manifest))
	}
	// The test's own context ends before its cleanups, which need the API server.
	p, err := controlplane.Start(context.Background(), controlplane.Config{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	systemNamespace(t, p)
	if err := installFrom(t, p, released.archive); err != nil {
		t.Fatal(err)
	}
	awaitPolicies(t, p)
	dryRun(t, p, released.manifest)
}

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

// object is what is looked at of an object of Kubernetes.
type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		Template struct {
			Spec struct{ Containers []struct{ Image string } }
		}
	}
}

// newHelm builds helm, as the tests of the cluster do, which leaves most of it in Go's cache.
func newHelm(t *testing.T) string {
	t.Helper()
	helm := filepath.Join(t.TempDir(), "helm")
	t.Setenv("GOFLAGS", "")
	t.Setenv("CGO_ENABLED", "0")
	command(t, "go", "-C", "../../e2e/helm", "build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-o", helm, "helm.sh/helm/v4/cmd/helm")
	return helm
}

func TestManifestAndKustomizationHaveTheSameObjects(t *testing.T) {
	dir := t.TempDir()
	src := made()
	src.version = chartVersion(t)
	chart, err := writeChart(tree, dir, src, false)
	if err != nil {
		t.Fatal(err)
	}
	r := request{tree: tree, output: dir, helm: newHelm(t)}
	if err := r.writeInstall(t.Context(), src, chart); err != nil {
		t.Fatal(err)
	}
	name := "kata-vfio-" + src.version
	manifest, err := os.ReadFile(filepath.Join(dir, name+"-install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, manifest)
	checkObjects(t, all, src.version)

	unpacked := t.TempDir()
	command(t, "tar", "-xzf", filepath.Join(dir, name+"-kustomize.tar.gz"), "-C", unpacked)
	var is struct{ Resources []string }
	content, err := os.ReadFile(filepath.Join(unpacked, name+"-kustomize", "kustomization.yaml"))
	if err := errors.Join(err, yaml.Unmarshal(content, &is)); err != nil {
		t.Fatal(err)
	}
	var kustomized []object
	for _, resource := range is.Resources {
		content, err := os.ReadFile(filepath.Join(unpacked, name+"-kustomize", resource))
		if err != nil {
			t.Fatal(err)
		}
		kustomized = append(kustomized, objects(t, content)...)
	}
	if diff := cmp.Diff(all, kustomized); diff != "" {
		t.Errorf("the objects differ (-manifest +kustomization):\n%s", diff)
	}
}

// checkObjects holds the manifest to what kubectl takes in one go, and to the images of the version.
func checkObjects(t *testing.T, all []object, version string) {
	t.Helper()
	if len(all) < 10 || all[0].Kind != "Namespace" || all[0].Metadata.Name != "kata-vfio-system" {
		t.Errorf("the manifest begins with %+v, of %d objects", all[0], len(all))
	}
	seen := map[string]bool{}
	for _, one := range all {
		key := strings.Join([]string{one.Kind, one.Metadata.Namespace, one.Metadata.Name}, "/")
		if seen[key] || one.Metadata.Name == "" || one.Metadata.Namespace != "" && one.Metadata.Namespace != "kata-vfio-system" {
			t.Errorf("%s is there twice, or in no namespace of the manifest", key)
		}
		seen[key] = true
		for _, c := range one.Spec.Template.Spec.Containers {
			if c.Image != "ghcr.io/kata-vfio/kata-vfio-plugin:"+version {
				t.Errorf("%s has the image %s", key, c.Image)
			}
		}
	}
	if !seen["DaemonSet/kata-vfio-system/kata-vfio-plugin"] {
		t.Errorf("there is no plugin in %v", names(seen))
	}
}

func objects(t *testing.T, manifest []byte) (all []object) {
	t.Helper()
	for decoder := yaml.NewDecoder(bytes.NewReader(manifest)); ; {
		var one object
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
}

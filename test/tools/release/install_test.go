package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// TestKustomizationOfCheckoutIsTheRelease runs the command of deploy/kustomize in a checkout: its kustomization has the bytes of a release.
func TestKustomizationOfCheckoutIsTheRelease(t *testing.T) {
	helm := newHelm(t)
	r := request{tree: tree, helm: helm}
	released, err := r.render(t.Context(), filepath.Join(tree, "deploy/helm/kata-vfio"))
	if err != nil {
		t.Fatal(err)
	}
	checkout, dir := t.TempDir(), filepath.Join(tree, "deploy/kustomize")
	if err := errors.Join(
		os.CopyFS(filepath.Join(checkout, "deploy/helm"), os.DirFS(filepath.Join(tree, "deploy/helm"))), os.CopyFS(filepath.Join(checkout, "deploy/kustomize"), os.DirFS(dir)),
	); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rendering := regexp.MustCompile(`(?m)^helm template .*$`).FindString(string(readme))
	sh := exec.CommandContext(t.Context(), "sh", "-ec", rendering)
	sh.Dir = checkout
	sh.Env = []string{"HOME=" + t.TempDir(), "PATH=" + filepath.Dir(helm) + ":" + os.Getenv("PATH")}
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", rendering, err, out)
	}
	var is struct{ Resources []string }
	content, err := os.ReadFile(filepath.Join(checkout, "deploy/kustomize/kustomization.yaml"))
	if err := errors.Join(err, yaml.Unmarshal(content, &is)); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, resource := range is.Resources {
		content, err := os.ReadFile(filepath.Join(checkout, "deploy/kustomize", resource))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, content...)
	}
	if diff := cmp.Diff(system+string(released), string(all)); diff != "" {
		t.Errorf("the kustomization differs (-release +checkout):\n%s", diff)
	}
	ignored, err := os.ReadFile(filepath.Join(tree, ".gitignore"))
	if err != nil || !strings.Contains(string(ignored), "\n/deploy/kustomize/install.yaml\n") {
		t.Errorf("git does not ignore the rendering: %v", err)
	}
	t.Logf("%d lines", bytes.Count(all, []byte("\n")))
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
	// The chart has the policies by default, and leaves them out where helm does not know of their kind.
	for _, want := range []string{
		"DaemonSet/kata-vfio-system/kata-vfio-plugin",
		"MutatingAdmissionPolicy//require-plugin.kata-vfio.dev", "MutatingAdmissionPolicyBinding//require-plugin.kata-vfio.dev",
		"MutatingAdmissionPolicy//require-plugin-classes.kata-vfio.dev", "MutatingAdmissionPolicyBinding//require-plugin-classes.kata-vfio.dev",
	} {
		if !seen[want] {
			t.Errorf("there is no %s in %v", want, names(seen))
		}
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

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// publication is a whole release, a registry and a Git repository that it is published to.
type publication struct {
	dir      string // of the release
	command  string
	registry string
	remote   string
	digests  string // the file that it writes
}

func newPublication(t *testing.T) publication {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	p := publication{
		dir: filepath.Join(dir, "release"), command: filepath.Join(dir, "publish"), remote: filepath.Join(dir, "index.git"),
		registry: strings.TrimPrefix(server.URL, "http://") + "/kata-vfio", digests: filepath.Join(dir, "published.json"),
	}
	command(t, "go", "build", "-o", p.command, "./publish")
	command(t, "go", "-C", "../image", "build", "-o", filepath.Join(dir, "image"), ".")
	command(t, "git", "init", "--quiet", "--bare", p.remote)
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	built := os.Getenv(builtVariable)
	for _, repository := range append([]string{"kata-vfio-plugin"}, guestPrograms(t)...) {
		archive := strings.TrimSuffix(repository, "-plugin")
		program := "/usr/bin/" + repository
		command(t, filepath.Join(dir, "image"), "-oci", "-o", filepath.Join(p.dir, archive+"-"+chartVersion(t)+".oci.tar"),
			"-name", "example.org/x/"+repository+":"+chartVersion(t), "-entrypoint", program, program+"="+built+"/amd64/show,"+built+"/arm64/show")
	}
	src := made()
	src.version = chartVersion(t)
	r := request{tree: tree, output: p.dir, version: src.version}
	if err := r.write(t.Context(), src, append(everywhere(t), programs(t)...)); err != nil {
		t.Fatal(err)
	}
	p.sum(t)
	return p
}

// sum writes the checksums.
func (p publication) sum(t *testing.T) {
	t.Helper()
	if err := checksums(p.dir, io.Discard); err != nil {
		t.Fatal(err)
	}
}

// run publishes the release, which its changelog must describe.
func (p publication) run(t *testing.T, more ...string) (string, error) {
	t.Helper()
	changelog := filepath.Join(t.TempDir(), "CHANGELOG.md")
	if err := os.WriteFile(changelog, []byte("## ["+chartVersion(t)+"]\n\nAll.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), p.command, append([]string{
		"-from", p.dir, "-version", chartVersion(t), "-registry", p.registry, "-remote", p.remote, "-o", p.digests, "-changelog", changelog,
	}, more...)...)
	cmd.Env = append(os.Environ(), "DOCKER_CONFIG="+t.TempDir(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func command(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
	return string(out)
}

// guestPrograms are the programs that have an image of their own, as the Makefile names them.
func guestPrograms(t *testing.T) []string {
	t.Helper()
	makefile, err := os.ReadFile(filepath.Join(tree, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^GUESTS := (.+)$`).FindSubmatch(makefile)
	if line == nil {
		t.Fatal("the Makefile has no line `GUESTS := ...`")
	}
	return strings.Fields(string(line[1]))
}

// chartVersion is the version of the chart, and so of a release.
func chartVersion(t *testing.T) string {
	t.Helper()
	return strings.TrimSuffix(strings.TrimPrefix(chartFile(t), "kata-vfio-"), ".tgz")
}

func TestReleaseIsPublishedWhole(t *testing.T) {
	p := newPublication(t)
	first, err := p.run(t)
	if err != nil {
		t.Fatalf("%v\n%s", err, first)
	}
	images := append([]string{"kata-vfio-plugin"}, guestPrograms(t)...)
	var done []struct{ Kind, Repository, Tag, Digest string }
	content, err := os.ReadFile(p.digests)
	if err := json.Unmarshal(content, &done); err != nil || len(done) != len(images)+1 {
		t.Fatalf("the digests are %s, %v", content, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range append(images, "charts/kata-vfio") {
		one := done[i]
		if one.Repository != p.registry+"/"+want || one.Tag != chartVersion(t) || !strings.Contains(first, one.Repository+":"+one.Tag+"@"+one.Digest+"\n") {
			t.Errorf("%s is published as %+v, and the output is\n%s", want, one, first)
		}
		is := pull(t, one.Repository+":"+one.Tag)
		if is.Digest.String() != one.Digest {
			t.Errorf("%s has the digest %s, and %s is printed", want, is.Digest, one.Digest)
		}
		if one.Kind == "image" {
			checkIndex(t, p, is)
		} else {
			checkChart(t, p, is)
		}
	}
	manifest := command(t, "git", "-C", p.remote, "show", "HEAD:plugins/show-it.yaml")
	if own := contents(t, p.dir)["show-it.krew.yaml"]; own == "" || manifest != own {
		t.Errorf("the krew manifest is\n%s\nand the release's\n%s", manifest, own)
	}
	if again, err := p.run(t); err != nil || again != first {
		t.Errorf("published again: %v\n%s", err, again)
	}
}

func pull(t *testing.T, reference string) *remote.Descriptor {
	t.Helper()
	tag, err := name.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	is, err := remote.Get(tag, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// checkIndex pulls all of an image, and compares its digest with the ones in the release's archives.
func checkIndex(t *testing.T, p publication, is *remote.Descriptor) {
	t.Helper()
	index, err := is.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	list, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var archs []string
	for _, one := range list.Manifests {
		archs = append(archs, one.Platform.Architecture)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("what is pulled is not whole: %v", err)
	}
	archives, err := filepath.Glob(filepath.Join(p.dir, "*.oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	found := slices.ContainsFunc(archives, func(archive string) bool {
		return strings.Contains(command(t, "tar", "-xOf", archive, "index.json"), is.Digest.String())
	})
	if !found || !slices.Equal(archs, []string{"amd64", "arm64"}) {
		t.Errorf("%s is for %v, and in an archive of the release: %v", is.Digest, archs, found)
	}
}

// checkChart compares the chart with the release's, by the media types that helm knows.
func checkChart(t *testing.T, p publication, is *remote.Descriptor) {
	t.Helper()
	img, err := is.Image()
	if err != nil {
		t.Fatal(err)
	}
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	var metadata struct{ Name, Version, AppVersion, APIVersion string }
	if err := json.Unmarshal(config, &metadata); err != nil || metadata.Name != "kata-vfio" || metadata.Version != chartVersion(t) || metadata.APIVersion != "v2" {
		t.Errorf("the metadata is %+v, %v", metadata, err)
	}
	if m.Config.MediaType != "application/vnd.cncf.helm.config.v1+json" || len(m.Layers) != 1 ||
		m.Layers[0].MediaType != "application/vnd.cncf.helm.chart.content.v1.tar+gzip" {
		t.Fatalf("the manifest is %+v", m)
	}
	want, _, err := v1.SHA256(bytes.NewReader([]byte(contents(t, p.dir)[chartFile(t)])))
	if err != nil || m.Layers[0].Digest != want {
		t.Errorf("the chart has the digest %s, and the release's %s, %v", m.Layers[0].Digest, want, err)
	}
}

// TestPublicationIsRefused: before anything is pushed, and for a tag that is there already.
func TestPublicationIsRefused(t *testing.T) {
	p := newPublication(t)
	if out, err := p.run(t, "-version", chartVersion(t)+"-dev"); err == nil || !strings.Contains(out, "changes that are in no commit") {
		t.Errorf("a version of a changed tree: %v\n%s", err, out)
	}
	if out, err := p.run(t, "-version", "7.7.7"); err == nil || !strings.Contains(out, "## [7.7.7]") {
		t.Errorf("a version that the changelog does not have: %v\n%s", err, out)
	}
	stray := filepath.Join(p.dir, "stray")
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := p.run(t); err == nil || !strings.Contains(out, "stray is not in SHA256SUMS") {
		t.Errorf("a file of no release: %v\n%s", err, out)
	}
	if err := os.WriteFile(stray, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.sum(t)
	if out, err := p.run(t); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(stray, []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := p.run(t); err == nil || !strings.Contains(out, "stray has the checksum") {
		t.Errorf("a changed file: %v\n%s", err, out)
	}
	chart := filepath.Join(p.dir, chartFile(t))
	files, err := chartFiles(os.DirFS(filepath.Join(tree, "deploy/helm/kata-vfio")), "kata-vfio")
	if err != nil {
		t.Fatal(err)
	}
	content, err := tarball(files[:2], made().time)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(chart, content, 0o600); err != nil {
		t.Fatal(err)
	}
	p.sum(t)
	if out, err := p.run(t); err == nil || !strings.Contains(out, "publish another version") {
		t.Errorf("another chart under the tag: %v\n%s", err, out)
	}
}

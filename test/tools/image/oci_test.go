package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// oci is a command line for an image for two processors; more programs come behind.
func (s site) oci(more ...string) []string {
	return append([]string{
		"-oci", "-o", s.file("show.oci.tar"), "-name", imageName, "-entrypoint", "/usr/bin/show",
		"/usr/bin/show=" + s.file("show") + "," + s.file("arm"), "/opt/other=" + s.file("arm") + "," + s.file("other"),
	}, more...)
}

// unpack has an archive's files in a directory.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Mode != 0o644 || h.ModTime.Unix() != 0 {
			t.Errorf("%s is %d:%d's, with mode %o, of %v", h.Name, h.Uid, h.Gid, h.Mode, h.ModTime)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOCIArchiveHasAnImageForEachProcessor(t *testing.T) {
	s := newSite(t)
	said, err := s.run(t, s.oci()...)
	if err != nil {
		t.Fatal(err)
	}
	outer, err := layout.ImageIndexFromPath(unpack(t, s.file("show.oci.tar")))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(outer); err != nil {
		t.Errorf("the archive is not whole: %v", err)
	}
	list, err := outer.IndexManifest()
	if err != nil || len(list.Manifests) != 1 {
		t.Fatalf("it names %+v, %v", list, err)
	}
	named := list.Manifests[0]
	want := map[string]string{"io.containerd.image.name": imageName, "org.opencontainers.image.ref.name": "1"}
	if diff := cmp.Diff(want, named.Annotations); diff != "" || said != imageName+" "+named.Digest.String()+"\n" {
		t.Errorf("it said %q; names (-want +got):\n%s", said, diff)
	}
	index, err := outer.ImageIndex(named.Digest)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var archs []string
	for _, d := range inner.Manifests {
		archs = append(archs, d.Platform.OS+"/"+d.Platform.Architecture)
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		s.check(t, img, d.Platform.Architecture)
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, archs); diff != "" {
		t.Errorf("the processors differ (-want +got):\n%s", diff)
	}
}

// check looks at the image for one processor.
func (s site) check(t *testing.T, img v1.Image, arch string) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil || config.Architecture != arch {
		t.Errorf("the image for %s is %+v, %v", arch, config, err)
	}
	manifest, err := img.Manifest()
	if err != nil || manifest.MediaType != types.OCIManifestSchema1 || manifest.Config.MediaType != types.OCIConfigJSON ||
		manifest.Layers[0].MediaType != types.OCILayer {
		t.Errorf("the manifest for %s is %+v, %v", arch, manifest, err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	_, files := entries(t, content)
	for name, content := range files {
		if got, err := architecture(content); content != nil && len(content) > 0 && (err != nil || got != arch) {
			t.Errorf("%s in the image for %s is for %q, %v", name, arch, got, err)
		}
	}
}

func TestSameProgramsMakeTheSameOCIArchive(t *testing.T) {
	var archives [2][]byte
	for i := range archives {
		s := newSite(t)
		if _, err := s.run(t, s.oci()...); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[i], err = os.ReadFile(s.file("show.oci.tar")); err != nil {
			t.Fatal(err)
		}
		if rest, _ := filepath.Glob(s.file(".*")); rest != nil {
			t.Errorf("it leaves %v", rest)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the same programs differ")
	}
}

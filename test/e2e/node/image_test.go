package node

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
)

// imageCommand is the one that a node's images are made by.
func imageCommand(t *testing.T) string {
	t.Helper()
	set, err := binaries.Ensure(t.Context(), binaries.Config{Modules: []binaries.Module{binaries.Image}, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	return set.Path("image")
}

// archived is the names and the configuration of the only image in an archive.
type archived struct {
	names      []string
	entrypoint []string
}

func readArchive(t *testing.T, path string) archived {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	var manifest [1]struct {
		Config   string
		RepoTags []string
	}
	var config struct{ Config struct{ Entrypoint []string } }
	if err := errors.Join(json.Unmarshal(files["manifest.json"], &manifest), json.Unmarshal(files[manifest[0].Config], &config)); err != nil {
		t.Fatal(err)
	}
	return archived{names: manifest[0].RepoTags, entrypoint: config.Config.Entrypoint}
}

func TestNodesImagesAreThoseOfItsConfigAndItsOwn(t *testing.T) {
	command, dir := imageCommand(t), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	further := Image{
		Name: "registry.example/further:2", Programs: map[string]string{"/bin/a": command, "/bin/b": command},
		Entrypoint: []string{"/bin/b", "-h"},
	}
	n := &Node{dir: t.TempDir(), config: Config{Images: []Image{further}}}
	if err := n.stageImages(t.Context(), command, dir); err != nil {
		t.Fatal(err)
	}
	archives, err := filepath.Glob(filepath.Join(dir, "images/*.tar"))
	if err != nil {
		t.Fatal(err)
	}
	var got []archived
	for _, path := range archives {
		got = append(got, readArchive(t, path))
	}
	want := []archived{
		{[]string{"registry.example/further:2"}, []string{"/bin/b", "-h"}},
		{[]string{PauseImage}, []string{"/container", "pause"}},
		{[]string{ShowImage}, []string{"/container", "show"}},
		{[]string{pluginImage}, []string{"/usr/bin/kata-vfio-plugin"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(archived{})); diff != "" {
		t.Errorf("the images differ (-want +got):\n%s", diff)
	}
}

func TestImageThatCannotBeMadeIsNamedWithTheReason(t *testing.T) {
	bad := Image{Name: "pause:1", Programs: map[string]string{"/pause": "/none"}, Entrypoint: []string{"/pause"}}
	err := bad.write(t.Context(), imageCommand(t), filepath.Join(t.TempDir(), "pause.tar"))
	if err == nil || !strings.Contains(err.Error(), "make image pause:1") || !strings.Contains(err.Error(), "REGISTRY/NAME:TAG") {
		t.Errorf("an image without a registry in its name gives %v", err)
	}
}

package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const imageName = "registry.example:5000/team/show:1"

// site is a directory with programs.
type site struct {
	dir string
	bin []byte // of each program
}

func newSite(t *testing.T) site {
	t.Helper()
	s := site{dir: t.TempDir(), bin: staticHeader().bytes(t)}
	arm := staticHeader()
	arm.machine = elf.EM_AARCH64
	dynamic := staticHeader()
	dynamic.segment = elf.PT_INTERP
	for name, content := range map[string][]byte{
		"show": s.bin, "other": s.bin, "script": []byte("#!/bin/sh\n"), "arm": arm.bytes(t), "dynamic": dynamic.bytes(t),
	} {
		// Permissions of this host are not the image's.
		if err := os.WriteFile(s.file(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s site) file(name string) string { return filepath.Join(s.dir, name) }

// args are a command line; more come behind.
func (s site) args(more ...string) []string {
	return append([]string{
		"-o", s.file("show.tar"), "-name", imageName, "-entrypoint", "/usr/bin/show", "-entrypoint", "--all",
		"-label", "org.opencontainers.image.title=show", "-label", "equation=a=b",
		"/usr/bin/show=" + s.file("show"), "/opt/other=" + s.file("other"),
	}, more...)
}

// with is a command line with one more flag, of which the last counts.
func (s site) with(option, value string) []string {
	args := s.args()
	return slices.Insert(args, len(args)-2, option, value)
}

func (s site) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var stdout bytes.Buffer
	err := run(args, &stdout, t.Output())
	return stdout.String(), err
}

// read is the image of that name in the archive.
func (s site) read(t *testing.T) v1.Image {
	t.Helper()
	r, err := parse(s.args(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(s.file("show.tar"), &r.name)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(img); err != nil {
		t.Errorf("the archive is not a whole image: %v", err)
	}
	return img
}

func TestArchiveHasTheImageUnderItsName(t *testing.T) {
	s := newSite(t)
	said, err := s.run(t, s.args()...)
	if err != nil {
		t.Fatal(err)
	}
	img := s.read(t)
	got, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	epoch := v1.Time{Time: time.Unix(0, 0).UTC()}
	want := &v1.ConfigFile{
		OS: "linux", Architecture: "amd64", Created: epoch,
		Config: v1.Config{
			Entrypoint: []string{"/usr/bin/show", "--all"},
			Labels:     map[string]string{"org.opencontainers.image.title": "show", "equation": "a=b"},
		},
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: got.RootFS.DiffIDs}, // the library has compared them with the layers
		History: []v1.History{{Created: epoch, CreatedBy: "image"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the configuration differs (-want +got):\n%s", diff)
	}
	id, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(imageName+" "+id.String()+"\n", said); diff != "" {
		t.Errorf("the output differs (-want +got):\n%s", diff)
	}
}

// entries are a tar archive's headers, in order, and the content of its files.
func entries(t *testing.T, r io.Reader) (headers []string, files map[string][]byte) {
	t.Helper()
	files = map[string][]byte{}
	for r := tar.NewReader(r); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, files
		}
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, fmt.Sprintf("%c %o %d:%d %d %s", h.Typeflag, h.Mode, h.Uid, h.Gid, h.ModTime.Unix(), h.Name))
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLayerHasTheProgramsAndTheirDirectories(t *testing.T) {
	s := newSite(t)
	if _, err := s.run(t, s.args("/usr/bin/also="+s.file("other"))...); err != nil {
		t.Fatal(err)
	}
	layers, err := s.read(t).Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("the layers are %v, %v", layers, err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	headers, files := entries(t, content)
	want := []string{
		"5 755 0:0 0 opt/", "0 755 0:0 0 opt/other",
		"5 755 0:0 0 usr/", "5 755 0:0 0 usr/bin/", "0 755 0:0 0 usr/bin/also", "0 755 0:0 0 usr/bin/show",
	}
	if diff := cmp.Diff(want, headers); diff != "" {
		t.Errorf("the files differ (-want +got):\n%s", diff)
	}
	if !bytes.Equal(files["usr/bin/show"], s.bin) {
		t.Error("the program in the image is another")
	}
}

func TestSameProgramsMakeTheSameArchive(t *testing.T) {
	var archives [2][]byte
	for i := range archives {
		s := newSite(t)
		later := time.Now().Add(time.Duration(i) * time.Hour)
		if err := os.Chtimes(s.file("show"), later, later); err != nil {
			t.Fatal(err)
		}
		args := s.args()
		if i > 0 { // the order of programs is nobody's wish
			args[len(args)-1], args[len(args)-2] = args[len(args)-2], args[len(args)-1]
		}
		if _, err := s.run(t, args...); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[i], err = os.ReadFile(s.file("show.tar")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the same programs differ")
	}
}

func TestRequestThatIsWrongIsRefusedWithTheReason(t *testing.T) {
	s := newSite(t)
	for name, one := range map[string]struct {
		args []string
		want string
	}{
		"a name without a registry":    {args: s.with("-name", "team/show:1"), want: `name "team/show:1" is not REGISTRY/NAME:TAG`},
		"a name without a tag":         {args: s.with("-name", "localhost/show"), want: "REGISTRY/NAME:TAG"},
		"a name with a digest":         {args: s.with("-name", "localhost/show@sha256:00"), want: "REGISTRY/NAME:TAG"},
		"no name":                      {args: s.with("-name", ""), want: "REGISTRY/NAME:TAG"},
		"no output":                    {args: s.with("-o", ""), want: "flag -o is missing"},
		"an output in no directory":    {args: s.with("-o", s.file("none/show.tar")), want: "none"},
		"no entrypoint":                {args: []string{"-o", "x", "-name", imageName, "/show=" + s.file("show")}, want: "flag -entrypoint is missing"},
		"no programs":                  {args: []string{"-o", "x", "-name", imageName, "-entrypoint", "/show"}, want: "programs are missing"},
		"another's entrypoint":         {args: []string{"-o", "x", "-name", imageName, "-entrypoint", "/bin/sh", "/show=" + s.file("show")}, want: `"/bin/sh" is none`},
		"an unknown flag":              {args: []string{"-base", "debian"}, want: "-base"},
		"a label without a value":      {args: s.with("-label", "title="), want: `"title="`},
		"a label twice":                {args: s.with("-label", "equation=c"), want: "equation is given twice"},
		"a program without a file":     {args: s.args("/show"), want: `program "/show": it has no key, or no value`},
		"a program twice":              {args: s.args("/opt/other=" + s.file("show")), want: "/opt/other is given twice"},
		"a relative path":              {args: s.args("bin/x=" + s.file("show")), want: `"bin/x" of a program is not absolute`},
		"a path that leads out":        {args: s.args("/../x=" + s.file("show")), want: `"/../x"`},
		"a path that is a directory":   {args: s.args("/opt/other/x=" + s.file("show")), want: "/opt/other is a program, too"},
		"the root":                     {args: s.args("/.=" + s.file("show")), want: `"/." of a program`},
		"a missing file":               {args: s.args("/x=" + s.file("missing")), want: "read program /x: open " + s.file("missing") + ": no such file"},
		"a directory":                  {args: s.args("/x=" + s.dir), want: "is a directory"},
		"a script":                     {args: s.args("/x=" + s.file("script")), want: "it is no Linux program"},
		"a program that is not static": {args: s.args("/x=" + s.file("dynamic")), want: "build it with CGO_ENABLED=0"},
		"programs of two processors":   {args: s.args("/x=" + s.file("arm")), want: "program /x is for arm64, and /opt/other for amd64"},
		"two processors, no OCI":       {args: s.args("/x=" + s.file("show") + "," + s.file("arm")), want: "program /x is for amd64 and arm64: only an OCI archive"},
		"one processor twice":          {args: s.oci("/x=" + s.file("show") + "," + s.file("other")), want: "appears twice for one processor"},
		"one program for one only":     {args: s.oci("/x=" + s.file("arm")), want: "program /x is for arm64, and /opt/other for amd64 and arm64"},
	} {
		t.Run(name, func(t *testing.T) {
			said, err := s.run(t, one.args...)
			if err == nil || !strings.Contains(err.Error(), one.want) {
				t.Errorf("want a refusal with %q, got %v", one.want, err)
			}
			if said != "" {
				t.Errorf("it says %q", said)
			}
		})
	}
}

func TestFailureKeepsTheArchiveThatWasThere(t *testing.T) {
	s := newSite(t)
	if err := os.WriteFile(s.file("show.tar"), []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.run(t, s.args("/x="+s.file("dynamic"))...); err == nil {
		t.Fatal("a dynamic program is taken")
	}
	if got, err := os.ReadFile(s.file("show.tar")); err != nil || string(got) != "before" {
		t.Errorf("the archive is %q, %v", got, err)
	}
}

func TestHelpIsNoFailure(t *testing.T) {
	var help bytes.Buffer
	_, err := parse([]string{"-h"}, &help)
	if !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "usage: image -o FILE") || !strings.Contains(help.String(), "-label KEY=VALUE") {
		t.Errorf("%v, help:\n%s", err, help.String())
	}
}

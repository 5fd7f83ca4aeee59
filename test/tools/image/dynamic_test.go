package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// TestDynamicProgramsBringTheirLibraries: an image has a dynamic program, its linker, its libraries and those that it loads.
func TestDynamicProgramsBringTheirLibraries(t *testing.T) {
	s := newSite(t)
	source := s.file("main.c")
	if err := os.WriteFile(source, []byte("#include <math.h>\nint main(int n, char **a) { return (int)cos(n); }\nint answer(void) { return 42; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program, library := s.file("loader"), s.file("libanswer.so.1")
	compile(t, "-o", program, source, "-lm")
	compile(t, "-shared", "-fPIC", "-o", library, source)
	static := s.file("static")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", static, "./testdata/empty.go")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	args := []string{"-o", s.file("show.tar"), "-name", imageName, "-entrypoint", "/bin/static", "-dynamic", "/usr/bin/loader=" + program, "-library", library, "/bin/static=" + static}
	if _, err := s.run(t, args...); err != nil {
		t.Fatal(err)
	}
	files := s.files(t)
	linker, err := interpreter(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/bin/static", "/usr/bin/loader", linker} {
		if !slices.Contains(files, want) {
			t.Errorf("the image lacks %s; it has %q", want, files)
		}
	}
	dirs := map[string]string{}
	for _, want := range []string{"libc.so.6", "libm.so.6", filepath.Base(library)} {
		i := slices.IndexFunc(files, func(f string) bool { return filepath.Base(f) == want })
		if i < 0 {
			t.Fatalf("the image lacks %s; it has %q", want, files)
		}
		dirs[want] = filepath.Dir(files[i])
	}
	if got, want := dirs[filepath.Base(library)], dirs["libc.so.6"]; got != want {
		t.Errorf("%s is in %s, where the loader does not look; want %s, beside the C library", filepath.Base(library), got, want)
	}
	args[slices.Index(args, "/usr/bin/loader="+program)] = "/usr/bin/loader=" + static
	if _, err := s.run(t, args...); err == nil || !strings.Contains(err.Error(), "it is static") {
		t.Errorf("a static one: got %v", err)
	}
}

func compile(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
}

// files are the paths of the image's files.
func (s site) files(t *testing.T) []string {
	t.Helper()
	content := mutate.Extract(s.read(t))
	defer content.Close()
	var all []string
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			all = append(all, "/"+strings.TrimPrefix(h.Name, "/"))
		}
	}
}

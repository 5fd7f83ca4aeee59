package binaries

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// source is a program that says its own name.
const source = `package main

import (
	"os"
	"path/filepath"
)

func main() { os.Stdout.WriteString(filepath.Base(os.Args[0])) }
`

// newRecipe is a small module with two commands that are one binary.
func newRecipe(t *testing.T) recipe {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "small")
	write(t, filepath.Join(dir, "go.mod"), "module example.test/small\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "main.go"), source)
	return recipe{
		module: "small", dir: dir, packages: []string{"."}, links: "small", commands: []string{"one", "two"},
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// buffer is a strings.Builder that several goroutines may write to.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func TestManyCallersBuildOnce(t *testing.T) {
	r, cacheDir, said := newRecipe(t), t.TempDir(), &buffer{}
	results := make([]map[string]string, 4)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			var err error
			if results[i], err = r.ensure(t.Context(), cacheDir, said); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, paths := range results[1:] {
		if diff := cmp.Diff(results[0], paths); diff != "" {
			t.Errorf("two callers have different commands (-one +other):\n%s", diff)
		}
	}
	if n := strings.Count(said.text.String(), "compiling"); n > 1 {
		t.Errorf("it was compiled %d times:\n%s", n, said.text.String())
	}
	if n := strings.Count(said.text.String(), "] built "); n != 1 {
		t.Errorf("it was built %d times:\n%s", n, said.text.String())
	}
	for _, command := range r.commands {
		out, err := exec.CommandContext(t.Context(), results[0][command]).Output()
		if err != nil || string(out) != command {
			t.Errorf("%s says %q, %v", command, out, err)
		}
	}
}

func TestKeyFollowsWhatIsBuilt(t *testing.T) {
	r := newRecipe(t)
	digest := func(r recipe) string {
		t.Helper()
		d, err := r.digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := digest(r)
	write(t, filepath.Join(r.dir, "README.md"), "not built")
	if digest(r) != first {
		t.Error("a file that is not built changes the key")
	}
	tagged, cgo := r, r
	tagged.tags, cgo.cgo = "other", true
	if digest(tagged) == first || digest(cgo) == first {
		t.Error("a flag does not change the key")
	}
	for _, name := range []string{"main.go", "go.mod", "go.sum"} {
		before := digest(r)
		write(t, filepath.Join(r.dir, name), "changed")
		if name == "go.mod" {
			write(t, filepath.Join(r.dir, name), "module example.test/changed\n\ngo 1.26\n")
		}
		if digest(r) == before {
			t.Errorf("a changed %s does not change the key", name)
		}
	}
}

func TestFailedBuildLeavesNothingAndSaysWhy(t *testing.T) {
	r, cacheDir := newRecipe(t), t.TempDir()
	write(t, filepath.Join(r.dir, "main.go"), "package main\n\nfunc main() { missing() }\n")
	_, err := r.ensure(t.Context(), cacheDir, &buffer{})
	if err == nil || !strings.Contains(err.Error(), "undefined: missing") || !strings.Contains(err.Error(), ".log") {
		t.Errorf("a program that does not compile gives %v", err)
	}
	entries, err := os.ReadDir(cacheDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			t.Errorf("%s is left", e.Name())
		}
	}
}

func TestUnfinishedBuildIsNotUsed(t *testing.T) {
	r, cacheDir := newRecipe(t), t.TempDir()
	entry, err := r.entry(t.Context(), cacheDir)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(entry.Working(), "one"), "half a binary")
	paths, err := r.ensure(t.Context(), cacheDir, &buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), paths["one"]).Output(); err != nil {
		t.Errorf("the command says %q, %v", out, err)
	}
}

func TestCacheThatLostACommandIsAnErrorWithAdvice(t *testing.T) {
	r, cacheDir := newRecipe(t), t.TempDir()
	paths, err := r.ensure(t.Context(), cacheDir, &buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(paths["two"]); err != nil {
		t.Fatal(err)
	}
	_, err = r.ensure(t.Context(), cacheDir, &buffer{})
	if err == nil || !strings.Contains(err.Error(), "remove "+filepath.Dir(paths["two"])) {
		t.Errorf("a lost command gives %v", err)
	}
}

func TestCounterCountsPackagesAndKeepsTheEnd(t *testing.T) {
	c := &counter{}
	for i := range 1000 {
		fmt.Fprintf(c, "example.test/package/number/%d", i)
		fmt.Fprint(c, "\n")
	}
	if c.packages() != 1000 {
		t.Errorf("it counts %d of 1000", c.packages())
	}
	got := c.String()
	if !strings.HasSuffix(got, "number/998\nexample.test/package/number/999") {
		t.Errorf("the tail is %q", got)
	}
}

func TestModulesHaveRecipes(t *testing.T) {
	for _, m := range Modules() {
		r, err := recipeOf(m)
		if err != nil || len(r.commands) == 0 || len(r.packages) == 0 {
			t.Errorf("the recipe of %s is %+v, %v", m, r, err)
		}
		if _, err := os.Stat(filepath.Join("../../..", r.dir, "go.mod")); err != nil {
			t.Error(err)
		}
	}
	if _, err := recipeOf("other"); err == nil {
		t.Error("an unknown module has a recipe")
	}
}

func TestLinkerStampsTheVersionThatIsPinned(t *testing.T) {
	r, err := recipeOf(Kube)
	if err != nil {
		t.Fatal(err)
	}
	r.dir = filepath.Join("../../..", r.dir)
	for l, version := range map[lane][2]string{newest: {"37", "2"}, older: {"36", "6"}} {
		r.lane = l.of(r.dir)
		got, err := r.linkFlags(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := "-s -w -X k8s.io/component-base/version.gitVersion=v1." + version[0] + "." + version[1] +
			" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=" + version[0] +
			" -X k8s.io/component-base/version.gitTreeState=clean"
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the flags differ (-want +got):\n%s", l, diff)
		}
	}
}

func TestLanes(t *testing.T) {
	for name, want := range map[string]lane{"": newest, "newest": newest, "older": older} {
		if got, err := laneOf(name); err != nil || got != want {
			t.Errorf("laneOf(%q) = %q, %v; want %q", name, got, err, want)
		}
	}
	if got, err := laneOf("1.36"); err == nil || !strings.Contains(err.Error(), "set it to newest or older") {
		t.Errorf("laneOf(1.36) = %q, %v; want an error that names the lanes", got, err)
	}
}

// A module without pins of its own for a lane is built once for all.
func TestModulesTakePartInLanes(t *testing.T) {
	for _, m := range Modules() {
		r, err := recipeOf(m)
		if err != nil {
			t.Fatal(err)
		}
		r.dir = filepath.Join("../../..", r.dir)
		r.lane = newest.of(r.dir)
		before, err := r.digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.lane = older.of(r.dir)
		after, err := r.digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := m == Kube || m == Containerd; (before != after) != want {
			t.Errorf("%s: the lanes' keys %s and %s differ: %t; want %t", m, before, after, before != after, want)
		}
	}
}

// TestDemoBuildsWhatItShows: a node's cluster needs no queue, which takes minutes to compile.
func TestDemoBuildsWhatItShows(t *testing.T) {
	if all := OfNode(); slices.Contains(all, Kueue) {
		t.Errorf("got %v, want no Kueue", all)
	}
}

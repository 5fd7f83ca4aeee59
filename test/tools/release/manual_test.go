package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestManualSaysWhatTheHelpSays(t *testing.T) {
	list := programs(t)
	cache, err := newModuleCache(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := describe(t.Context(), list, made(), cache); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/show.8")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if diff := cmp.Diff(string(want), string(p.manual.content)); diff != "" {
			t.Errorf("the page for %s differs (-want +got):\n%s", p.arch, diff)
		}
		for _, c := range p.completions {
			if !strings.Contains(string(c.script), "__complete") {
				t.Errorf("%s of %s completes nothing", c.name(), p.arch)
			}
		}
		if licenses := string(p.licenses); !strings.Contains(licenses, "\ngithub.com/spf13/pflag ") || !strings.Contains(licenses, "\nstd go") {
			t.Errorf("the licenses of %s are:\n%.500s", p.arch, licenses)
		}
	}
}

func TestHelpWithoutUsageIsNone(t *testing.T) {
	if _, err := parseHelp("show shows what there is\n"); err == nil {
		t.Error("it is taken")
	}
}

func TestProgramThatThisHostCantRunIsRefused(t *testing.T) {
	var foreign []program
	for _, p := range programs(t) {
		if p.arch != runtime.GOARCH {
			foreign = append(foreign, p)
		}
	}
	cache, err := newModuleCache(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := describe(t.Context(), foreign, made(), cache); err == nil || !strings.Contains(err.Error(), "show is not there for "+runtime.GOARCH) {
		t.Errorf("got %v", err)
	}
}

func TestModulesWithoutALicenseAreRefused(t *testing.T) {
	cache := &moduleCache{dir: t.TempDir(), goroot: t.TempDir()}
	if _, err := cache.licenses(programs(t)[0].build); err == nil || !strings.Contains(err.Error(), "has no license in "+cache.dir) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(cache.goroot, "license.txt"), []byte("yes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if texts, err := cache.texts(modules(programs(t)[0].build)[0]); err != nil || len(texts) != 1 {
		t.Errorf("got %v, %v", texts, err)
	}
}

func TestCompletionsAreFoundByTheirNames(t *testing.T) {
	for want, c := range map[string]completion{
		"show":                  {program: "show", shell: "bash"},
		"_show":                 {program: "show", shell: "zsh"},
		"show.fish":             {program: "show", shell: "fish"},
		"kubectl_complete-show": {program: "kubectl-show"},
	} {
		if got := c.name(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

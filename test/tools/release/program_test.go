package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// stamped is a program that names a commit.
func stamped(name, revision, time, modified string) program {
	return program{name: name, build: &debug.BuildInfo{Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: revision}, {Key: "vcs.time", Value: time}, {Key: "vcs.modified", Value: modified},
	}}}
}

func TestSourceIsTheCommitThatAllProgramsName(t *testing.T) {
	const when, later = "2026-07-01T09:30:00Z", "2026-07-02T09:30:00Z"
	for name, one := range map[string]struct {
		programs []program
		want     string
	}{
		"one commit":        {[]program{stamped("a", "c1", when, "false"), stamped("b", "c1", when, "false")}, ""},
		"no commit":         {[]program{stamped("a", "", "", "")}, "a names no commit: compile it with -buildvcs=true in a clone"},
		"a time in words":   {[]program{stamped("a", "c1", "noon", "false")}, "the commit's time in a"},
		"two commits":       {[]program{stamped("a", "c1", when, "false"), stamped("b", "c2", later, "false")}, "two states of the tree"},
		"one with a change": {[]program{stamped("a", "c1", when, "false"), stamped("b", "c1", when, "true")}, "two states of the tree"},
	} {
		t.Run(name, func(t *testing.T) {
			src, err := sourceOf(one.programs)
			if got := errorText(err); !strings.Contains(got, one.want) || (got == "") != (one.want == "") {
				t.Errorf("want an error with %q, got %v", one.want, err)
			}
			if err == nil && (src.revision != "c1" || src.time.Unix() != made().time.Unix()) {
				t.Errorf("got %+v", src)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestTreeWithChangesIsRefusedUnlessItIsSaidSo(t *testing.T) {
	changed := source{modified: true}
	if err := (&request{}).accept(changed); err == nil || !strings.Contains(err.Error(), "in no commit: commit them, or say -dev") {
		t.Errorf("got %v", err)
	}
	if err := (&request{dev: true}).accept(changed); err != nil {
		t.Error(err)
	}
	if err := (&request{}).accept(source{}); err != nil {
		t.Error(err)
	}
}

// TestProgramsThatAreNotToBeReleasedAreRefused: what is not Go's, and what lies where another processor's should.
func TestProgramsThatAreNotToBeReleasedAreRefused(t *testing.T) {
	arm, err := os.ReadFile(filepath.Join(os.Getenv(builtVariable), "arm64", "show"))
	if err != nil {
		t.Fatal(err)
	}
	for name, one := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"none":                    {nil, "has no programs"},
		"a script":                {map[string][]byte{"amd64/show": []byte("#!/bin/sh\n")}, "program "},
		"another processor's":     {map[string][]byte{"amd64/show": arm}, "it is compiled with GOARCH=arm64: want amd64"},
		"a directory without any": {map[string][]byte{"arm64/show": arm, "s390x/": nil}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range one.files {
				file = filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if content == nil {
					continue
				}
				if err := os.WriteFile(file, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			list, err := load(dir)
			if got := errorText(err); !strings.Contains(got, one.want) || (got == "") != (one.want == "") {
				t.Errorf("want an error with %q, got %v and %d programs", one.want, err, len(list))
			}
		})
	}
}

func TestProgramThatIsNotThereForAProcessorIsMissed(t *testing.T) {
	dir := t.TempDir()
	for to, from := range map[string]string{"amd64/show": "amd64", "arm64/show": "arm64", "arm64/more": "arm64"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(filepath.Join(os.Getenv(builtVariable), from, "show"), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := load(dir); err == nil || !strings.Contains(err.Error(), "more is there for [arm64], and show for [amd64 arm64]") {
		t.Errorf("got %v", err)
	}
}

func TestHostsTakeNeitherGuestsNorUsersPrograms(t *testing.T) {
	r := request{guests: []string{"in-guest"}}
	var got []string
	for _, p := range r.onHosts([]program{{name: "audit", os: "linux"}, {name: "in-guest", os: "linux"}, {name: "kubectl-show", os: "linux"}, {name: "plugin", os: "linux"}, {name: "plugin", os: "darwin"}}) {
		got = append(got, p.name)
	}
	if diff := cmp.Diff([]string{"audit", "plugin"}, got); diff != "" {
		t.Errorf("hosts' programs differ (-want +got):\n%s", diff)
	}
}

func TestCommandLineThatIsWrongIsRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"unexpected argument":      {"-programs", "p", "-o", "o", "-version", "1.2.3", "more"},
		"flag -programs":           {"-o", "o", "-version", "1.2.3"},
		"-chart-only takes no":     {"-chart-only", "-programs", "p", "-o", "o", "-version", "1.2.3"},
		"flag -o":                  {"-programs", "p", "-version", "1.2.3"},
		`version "1.2"`:            {"-programs", "p", "-o", "o", "-version", "1.2"},
		`version "v1.2.3"`:         {"-programs", "p", "-o", "o", "-version", "v1.2.3"},
		`version ""`:               {"-programs", "p", "-o", "o"},
		"not defined: -everything": {"-everything"},
	} {
		if _, err := parse(args, t.Output()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want an error with %q, got %v", args, want, err)
		}
	}
}

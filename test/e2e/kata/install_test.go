package kata

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// release makes a directory of files as a release has them, the shims of which tell a version.
func release(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range files {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho version: 4.1.0\n"), 0o755); err != nil { //nolint:gosec // it is a program
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind(t *testing.T) {
	for name, tt := range map[string]struct {
		files   []string
		runtime Runtime
		missing string
	}{
		"Go":                {files: []string{goShim, goConfig, agentFile}, runtime: Go},
		"Rust":              {files: []string{rustShim, rustConfig, agentFile}, runtime: Rust},
		"no agent":          {files: []string{goShim, goConfig}, runtime: Go, missing: "KATA_AGENT"},
		"no shim":           {files: []string{goConfig, agentFile}, runtime: Go, missing: goShim},
		"no configuration":  {files: []string{goShim, agentFile}, runtime: Go, missing: goConfig},
		"the other runtime": {files: []string{goShim, goConfig, agentFile}, runtime: Rust, missing: rustShim},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Find(t.Context(), release(t, tt.files...), "", tt.runtime)
			if tt.missing != "" {
				if err == nil || !strings.Contains(err.Error(), tt.missing) {
					t.Errorf("Find = %v; want an error that names %s", err, tt.missing)
				}
				return
			}
			if err != nil || got.Version != "version: 4.1.0" {
				t.Errorf("Find = %+v, %v", got, err)
			}
		})
	}
}

func TestStageTakesWhatTheNodeNeeds(t *testing.T) {
	install, err := Find(t.Context(), release(t, goShim, goConfig, agentFile, command, "share/kata-containers/kata.img"), "", Go)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "kata")
	if err := install.Stage(dir); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]bool{goShim: true, goConfig: true, command: true, "share/kata-containers/kata.img": false} {
		if _, err := os.Stat(filepath.Join(dir, file)); (err == nil) != want {
			t.Errorf("%s staged: %v; want %v", file, err == nil, want)
		}
	}
}

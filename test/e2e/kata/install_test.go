package kata

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
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
		text := []byte("#!/bin/sh\necho version: 4.1.0\n")
		if file == agentFile {
			var err error
			if text, err = os.ReadFile(program(t, elf.PT_LOAD)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, text, 0o755); err != nil { //nolint:gosec // it is a program
			t.Fatal(err)
		}
	}
	return dir
}

// write makes a file of an installation.
func write(t *testing.T, dir, file, text string) {
	t.Helper()
	path := filepath.Join(dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	for name, tt := range map[string]struct {
		files   []string
		runtime Runtime
		agent   string
		missing string
	}{
		"Go":                     {files: []string{goShim, goConfig, agentFile}, runtime: Go},
		"Rust":                   {files: []string{rustShim, rustConfig, agentFile}, runtime: Rust},
		"no agent and no guest":  {files: []string{goShim}, runtime: Go, missing: "KATA_AGENT"},
		"no agent at that place": {files: []string{goShim, goConfig, agentFile}, runtime: Go, agent: "/nowhere/agent", missing: "/nowhere/agent"},
		"no shim":                {files: []string{goConfig, agentFile}, runtime: Go, missing: goShim},
		"no configuration":       {files: []string{goShim, agentFile}, runtime: Go, missing: goConfig},
		"the other runtime":      {files: []string{goShim, goConfig, agentFile}, runtime: Rust, missing: rustShim},
	} {
		t.Run(name, func(t *testing.T) {
			dir := release(t, tt.files...)
			if tt.agent == "" && tt.missing == "KATA_AGENT" {
				write(t, dir, goConfig, namesImage)
			}
			got, err := Find(t.Context(), Source{Dir: dir, Agent: tt.agent}, tt.runtime)
			if tt.missing != "" {
				if err == nil || !strings.Contains(err.Error(), tt.missing) {
					t.Errorf("Find = %v; want an error that names %s", err, tt.missing)
				}
				return
			}
			if err != nil || got.Version != "version: 4.1.0" || !got.LabsGuest() {
				t.Errorf("Find = %+v, %v", got, err)
			}
		})
	}
}

// namesImage is a configuration that names a guest where a release has it.
const namesImage = `
[hypervisor.qemu]
kernel = "/opt/kata/share/kata-containers/vmlinux.container"
image = "/opt/kata/share/kata-containers/kata-containers.img"
`

func TestFindTakesTheGuestOfTheConfigurationWithoutAnAgent(t *testing.T) {
	files := []string{goShim, "share/kata-containers/vmlinux.container", "share/kata-containers/kata-containers.img", "share/kata-containers/kata-containers-initrd.img"}
	dir := release(t, files...)
	write(t, dir, "etc/initrd.toml", strings.ReplaceAll(namesImage, "image = \"/opt/kata/share/kata-containers/kata-containers", "initrd = \""+dir+"/share/kata-containers/kata-containers-initrd"))
	write(t, dir, goConfig, namesImage)
	for config, want := range map[string][3]string{
		"":                                    {"/opt/kata/guest/kernel", "/opt/kata/guest/root", ""},
		filepath.Join(dir, "etc/initrd.toml"): {"/opt/kata/guest/kernel", "", "/opt/kata/guest/root"},
	} {
		install, err := Find(t.Context(), Source{Dir: dir, Config: config}, Go)
		if err != nil || install.LabsGuest() {
			t.Fatalf("Find with configuration %q = %+v, %v", config, install, err)
		}
		kernel, image, initrd := install.BootFiles("/boot/ours", "/ours.img")
		if got := [3]string{kernel, image, initrd}; got != want {
			t.Errorf("with configuration %q VMs boot %q, want %q", config, got, want)
		}
		staged := filepath.Join(t.TempDir(), "kata")
		if err := install.Stage(staged); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{goShim, goConfig, guestKernel, guestRoot} {
			if !exists(filepath.Join(staged, file)) {
				t.Errorf("with configuration %q %s is not staged", config, file)
			}
		}
	}
}

func TestLacksSaysWhatASourceHasNothingOf(t *testing.T) {
	dir := release(t, goShim, rustShim)
	write(t, dir, "rust.toml", "[runtime]\nname = \"virt_container\"\n")
	write(t, dir, "go.toml", "[runtime]\nenable_debug = false\n")
	for name, tt := range map[string]struct {
		source Source
		lacks  []Runtime
	}{
		"all of a release":            {source: Source{Dir: dir}},
		"a configuration of the Go's": {source: Source{Dir: dir, Config: filepath.Join(dir, "go.toml")}, lacks: []Runtime{Rust}},
		"one of the Rust runtime's":   {source: Source{Dir: dir, Config: filepath.Join(dir, "rust.toml")}, lacks: []Runtime{Go}},
		"only the Go runtime":         {source: Source{Dir: release(t, goShim)}, lacks: []Runtime{Rust}},
	} {
		for _, runtime := range []Runtime{Go, Rust} {
			if lacks := tt.source.Lacks(runtime); (lacks != "") != slices.Contains(tt.lacks, runtime) {
				t.Errorf("%s: Lacks(%s) = %q", name, runtime, lacks)
			}
		}
	}
}

func TestStageTakesWhatTheNodeNeeds(t *testing.T) {
	install, err := Find(t.Context(), Source{Dir: release(t, goShim, goConfig, agentFile, command, "share/kata-containers/kata.img")}, Go)
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

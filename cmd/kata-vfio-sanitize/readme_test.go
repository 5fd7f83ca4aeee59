package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

const readme = "cmd/kata-vfio-sanitize/README.md"

// What the documents tell people to run must be there.
func TestDocumentsRunCommandsThatExist(t *testing.T) {
	docs.CheckCommands(t, "kata-vfio-sanitize", func() *cobra.Command { return newCommand(io.Discard, io.Discard) }, docs.All(t)...)
}

// blocks returns the code blocks of a language in a section of the README.
func blocks(t *testing.T, section, language string) []string {
	t.Helper()
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(docs.Section(t, readme, section), -1) {
		found = append(found, m[1])
	}
	return found
}

// TestREADMEHasAResult: the plugin reads the document that the README shows.
func TestREADMEHasAResult(t *testing.T) {
	documents := blocks(t, "Result", "json")
	if len(documents) != 1 {
		t.Fatalf("the README has %d results", len(documents))
	}
	if r, err := sanitize.Parse([]byte(documents[0])); err != nil || r.Verdict != sanitize.Clean {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestREADMEHasEveryExitCode holds the table to the help.
func TestREADMEHasEveryExitCode(t *testing.T) {
	table := docs.Section(t, readme, "Exit codes")
	for _, m := range regexp.MustCompile(`(?m)^  (\d+) `).FindAllStringSubmatch(exitCodes, -1) {
		if !strings.Contains(table, "| "+m[1]+" |") {
			t.Errorf("the README lacks exit code %s", m[1])
		}
	}
}

// tools stand in for the vendors' programs: they print what those would, or fail if the file "fail" names them.
const tools = `#!/bin/sh
name=${0##*/}
grep -qsx "$name" "${0%/*}/fail" && exit 1
case "$name $*" in
*query-gpu=pci.device_id*) echo 0x1EB810DE ;;
*query-gpu=serial*) echo 1325420012345 ;;
*query-gpu=memory.total*) echo 15360 ;;
*query-gpu=vbios_version*) echo 90.04.38.00.03 ;;
*query-gpu=*) echo '[N/A]' ;;
*static*--vbios*) printf 'gpu,name\n0,"113-D67301"\n' ;;
*memory-test*) echo 17163091968 ;;
readlink*) echo "${0%/*}/vendor" ;;
*) echo "$name did $*" ;;
esac
`

// template runs the README's template for a vendor with the tools, and returns its result and its exit code.
func template(t *testing.T, vendor, fail string) (*sanitize.Result, int) {
	t.Helper()
	scripts := blocks(t, vendor+" (not run here)", "sh")
	if len(scripts) != 1 {
		t.Fatalf("%s has %d templates", vendor, len(scripts))
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "termination-log")
	files := map[string]string{
		"script": strings.ReplaceAll(scripts[0], "/dev/termination-log", log), "fail": fail + "\n", "vendor": "0x1002\n", "device": "0x740f\n",
	}
	for _, name := range []string{"nvidia-smi", "nv-hostengine", "dcgmi", "amd-smi", "memory-test", "readlink"} {
		files[name] = tools
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(dir, "script"))
	cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "MEMORY_TEST=memory-test"}
	out, err := cmd.CombinedOutput()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	message, err := os.ReadFile(log)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r, err := sanitize.Parse(message)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, message, out)
	}
	return r, code
}

// TestTemplates: the templates follow the contract with stand-ins for the vendors' tools. Whether the tools do what they
// are asked is not tested.
func TestTemplates(t *testing.T) {
	for _, row := range []struct {
		vendor, fail, ids string
		verdict           sanitize.Verdict
		bytes             uint64
	}{
		{"NVIDIA", "", "0x10de:0x1eb8", sanitize.Clean, 15360 << 20},
		{"NVIDIA", "dcgmi", "0x10de:0x1eb8", sanitize.Unknown, 15360 << 20},
		{"AMD", "", "0x1002:0x740f", sanitize.Clean, 17163091968},
		{"AMD", "memory-test", "0x1002:0x740f", sanitize.Unknown, 0},
	} {
		t.Run(strings.TrimSpace(row.vendor+" "+row.fail), func(t *testing.T) {
			r, code := template(t, row.vendor, row.fail)
			ids := fmt.Sprintf("%s:%s", r.Device.Vendor, r.Device.Device)
			if r.Verdict != row.verdict || code != row.verdict.ExitCode() || ids != row.ids || r.Checks[0].Bytes != row.bytes || len(r.Firmware) == 0 {
				t.Errorf("code %d, device %s: %+v", code, ids, r)
			}
		})
	}
}

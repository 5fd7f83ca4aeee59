package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// program is a kata-vfio-bootstrap that tells how it was called and ends with a code.
func program(code string) string { return "#!/bin/sh\necho \"ran: $*\"\nexit " + code + "\n" }

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// script runs bootstrap-node.sh as a copy in a directory of its own, with a curl that
// copies files.
type script struct {
	t                *testing.T
	dir, path, store string
}

func newScript(t *testing.T) *script {
	t.Helper()
	s := &script{t: t, dir: t.TempDir(), path: t.TempDir(), store: filepath.Join(t.TempDir(), "bin")}
	text, err := os.ReadFile("../../scripts/bootstrap-node.sh")
	if err != nil {
		t.Fatal(err)
	}
	s.program(s.dir, "bootstrap-node.sh", string(text))
	s.program(s.path, "curl", "#!/bin/sh\nfor last; do :; done\nwhile [ \"$1\" != --output ]; do shift; done\necho x >> \"$0.log\"\ncp \"$last\" \"$2\"\n")
	return s
}

func (s *script) program(dir, name, text string) string {
	s.t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		s.t.Fatal(err)
	}
	return file
}

func (s *script) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), "/bin/sh", append([]string{filepath.Join(s.dir, "bootstrap-node.sh")}, args...)...)
	cmd.Env = []string{"PATH=" + s.path + ":/usr/bin:/bin", "KATA_VFIO_BIN_DIR=" + s.store}
	return cmd
}

func (s *script) run(args ...string) (output string, code int) {
	s.t.Helper()
	out, err := s.command(args...).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return string(out), 0
}

func (s *script) expect(wantCode int, want string, args ...string) {
	s.t.Helper()
	if out, code := s.run(args...); code != wantCode || !strings.Contains(out, want) {
		s.t.Errorf("%v: code %d, want %d with %q:\n%s", args, code, wantCode, want, out)
	}
}

func TestScriptFindsTheProgram(t *testing.T) {
	s := newScript(t)
	s.expect(1, "there is no kata-vfio-bootstrap")
	other := s.program(t.TempDir(), "other", program("0"))
	s.expect(0, "ran: apply --root /x", "--binary", other, "--", "--root", "/x")
	beside := program("0") + "# beside\n"
	s.program(s.dir, "kata-vfio-bootstrap", beside)
	s.expect(0, "Next: "+s.dir, "--sha256", sum(beside))
	s.program(s.path, "kata-vfio-bootstrap", program("0"))
	s.expect(0, "Next: "+s.path)
	s.expect(0, "Next: "+s.dir, "--sha256", sum(beside))
	s.expect(1, "does not have the checksum", "--binary", other, "--sha256", sum("x"))
	s.expect(1, "is not a program", "--binary", "/nonexistent")
}

func TestScriptFetchesOnceAndRunsNothingUnverified(t *testing.T) {
	s := newScript(t)
	url := s.program(t.TempDir(), "remote", program("0"))
	s.expect(2, "--url wants --sha256", "--url", url)
	s.expect(1, "it was not run", "--url", url, "--sha256", sum("x"))
	if left, _ := filepath.Glob(filepath.Join(s.store, ".*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	s.expect(1, "can't fetch", "--url", "/nonexistent", "--sha256", sum("x"))
	for range 2 {
		s.expect(0, "ran: apply", "--url", url, "--sha256", sum(program("0")))
	}
	if log, err := os.ReadFile(filepath.Join(s.path, "curl.log")); err != nil || len(log) != len("x\nx\nx\n") {
		t.Errorf("fetched %q, %v", log, err)
	}
}

func TestScriptsExitCodeIsWhatCallersExpect(t *testing.T) {
	for _, c := range []struct {
		code, want, strict int
		next               string
	}{
		{0, 0, 0, "install the chart"}, {3, 3, 3, "install the chart"}, {4, 0, 4, "reboot the node"}, {5, 5, 5, "fix the problems above"}, {1, 1, 1, ""},
	} {
		s := newScript(t)
		s.program(s.path, "kata-vfio-bootstrap", program(string(rune('0'+c.code))))
		s.expect(c.want, c.next)
		s.expect(c.strict, c.next, "--strict")
	}
	s := newScript(t)
	s.expect(2, "unknown argument", "-f")
	s.expect(2, "wants a value", "--url")
	s.expect(0, "--strict", "--help")
}

// Standard output is the program's: a caller that wants JSON reads it from there.
func TestScriptKeepsStandardOutputForTheProgram(t *testing.T) {
	for code := range 6 {
		s := newScript(t)
		s.program(s.path, "kata-vfio-bootstrap", program(strconv.Itoa(code)))
		cmd := s.command("--", "-o", "json")
		if out, _ := cmd.Output(); string(out) != "ran: apply -o json\n" {
			t.Errorf("code %d: %s", code, out)
		}
	}
}

// A variable that is not set switches no check off.
func TestEmptyValueIsRefused(t *testing.T) {
	s := newScript(t)
	s.program(s.path, "kata-vfio-bootstrap", program("0"))
	for _, flag := range []string{"--sha256", "--url", "--binary"} {
		s.expect(2, "the value of "+flag+" is empty", flag, "")
	}
}

// Piped into a shell the script has no place, and runs nothing of the working directory.
func TestPipedScriptRunsNothingOfTheWorkingDirectory(t *testing.T) {
	s := newScript(t)
	s.program(s.dir, "kata-vfio-bootstrap", program("0"))
	for want, args := range map[string][]string{"there is no kata-vfio-bootstrap": {"-s"}, "--strict        end with": {"-s", "--", "--help"}} {
		text, err := os.Open(filepath.Join(s.dir, "bootstrap-node.sh"))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "/bin/sh", args...)
		cmd.Dir, cmd.Env, cmd.Stdin = s.dir, []string{"PATH=/usr/bin:/bin", "KATA_VFIO_BIN_DIR=" + s.store}, text
		out, _ := cmd.CombinedOutput() // its text tells whether it was right
		if err := text.Close(); err != nil || !strings.Contains(string(out), want) || strings.Contains(string(out), "ran:") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

// An image is not verified as the node that makes it.
func TestNextStepOfAnImageIsItsOwn(t *testing.T) {
	s := newScript(t)
	file := s.program(s.path, "kata-vfio-bootstrap", program("0"))
	s.expect(0, "running "+file+" apply", "--", "--root", "/mnt/image")
	for _, args := range [][]string{{"--root", "/mnt/image"}, {"-f", "x", "--root=/mnt/image"}} {
		s.expect(0, "perform the manual steps above, if any; then start /mnt/image as a node", append([]string{"--"}, args...)...)
	}
	s.expect(0, "install the chart", "--", "--root", "/")
	image := t.TempDir()
	s.expect(0, "The image has no kata-vfio-bootstrap yet", "--", "--root", image)
	if err := os.MkdirAll(filepath.Join(image, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.program(filepath.Join(image, "usr/bin"), "kata-vfio-bootstrap", program("0"))
	if out, _ := s.run("--", "--root", image); strings.Contains(out, "has no kata-vfio-bootstrap") {
		t.Errorf("the image has the program: %s", out)
	}
}

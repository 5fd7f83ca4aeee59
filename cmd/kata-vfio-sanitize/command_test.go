package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command/commandtest"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

const (
	displayDir = "sys/bus/pci/devices/0000:00:05.0/"
	barSize    = 4096
)

// vm writes the sysfs of a VM with one device, whose memory has a tenant's data, and returns its root.
func vm(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	head := make([]byte, 64)
	head[4] = 2 // PCI_COMMAND_MEMORY
	for path, content := range map[string]string{
		"proc/.keep": "", "dev/.keep": "", "lib/.keep": "",
		displayDir + "vendor": "0x1234\n", displayDir + "device": "0x1111\n", displayDir + "class": "0x038000\n", displayDir + "revision": "0x02\n",
		displayDir + "resource": "0x00000000fd000000 0x00000000fd000fff 0x0000000000042208\n", displayDir + "enable": "0\n",
		displayDir + "config": string(head), displayDir + "resource0": strings.Repeat("secret42", barSize/8),
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// execute runs a command line and returns what it wrote and its exit code.
func execute(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, warn bytes.Buffer
	if err := run(t.Context(), args, &out, &warn); err != nil {
		return out.String(), warn.String() + err.Error(), exitCode(err)
	}
	return out.String(), warn.String(), 0
}

// TestResultIsWrittenTwice: the file gets the document in place of what was there, and the last line of stdout is the same.
func TestResultIsWrittenTwice(t *testing.T) {
	root, file := vm(t), filepath.Join(t.TempDir(), "termination-log")
	if err := os.WriteFile(file, bytes.Repeat([]byte("old"), 5000), 0o644); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := execute(t, "memory", "--root", root, "--result", file, "--expect-bytes", "4Ki")
	if code != 0 {
		t.Fatalf("code %d: %s%s", code, stdout, stderr)
	}
	content, err := os.ReadFile(file)
	if err != nil || string(content)+"\n" != stdout {
		t.Errorf("the file has %s, %v; stdout %s", content, err, stdout)
	}
	o := sanitize.Decide(
		sanitize.Expected{Digest: "sha256:" + strings.Repeat("0", 64), Device: sanitize.NewDevice(0x1234, 0x1111), Firmware: sanitize.Require},
		sanitize.Observed{ImageID: "a@sha256:" + strings.Repeat("0", 64), Terminated: true, ExitCode: code, Message: string(content)})
	if o.Verdict != sanitize.Clean {
		t.Errorf("the plugin's verdict is %s because %q", o.Verdict, o.Reason)
	}
	if memory, err := os.ReadFile(filepath.Join(root, displayDir, "resource0")); err != nil || !bytes.Equal(memory, make([]byte, barSize)) {
		t.Errorf("the memory is not zero (%v)", err)
	}
	if !strings.Contains(stderr, "verify the zeros") {
		t.Errorf("no progress on stderr: %s", stderr)
	}
}

func TestExitCodes(t *testing.T) {
	root := vm(t)
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"clean", []string{"memory"}, sanitize.ExitClean, ""},
		{"unknown", []string{"memory", "--expect-bytes", "1Gi"}, sanitize.ExitUnknown, "Unknown: the device has 1073741824 bytes of memory"},
		{"no such device", []string{"memory", "--device", "0000:00:09.0"}, sanitize.ExitUnknown, "0000:00:09.0"},
		{"no controller", []string{"nvme"}, sanitize.ExitUnknown, "no device to sanitize"},
		{"no result", []string{"memory", "--result", root + "/none/file"}, 1, "name another file with --result"},
		{"bad device", []string{"memory", "--device", "5"}, sanitize.ExitUsage, "--device"},
		{"bad BAR", []string{"memory", "--bar", "6"}, sanitize.ExitUsage, "--bar 6"},
		{"negative BAR", []string{"memory", "--bar", "-1"}, sanitize.ExitUsage, "--bar -1"},
		{"a BAR twice", []string{"memory", "--bar", "0,0"}, sanitize.ExitUsage, "each once"},
		{"bad size", []string{"memory", "--expect-bytes", "many"}, sanitize.ExitUsage, "--expect-bytes"},
		{"negative size", []string{"memory", "--expect-bytes", "-1Gi"}, sanitize.ExitUsage, "--expect-bytes"},
		{"no time", []string{"memory", "--timeout", "0s"}, sanitize.ExitUsage, "--timeout"},
		{"bad method", []string{"nvme", "--method", "wish"}, sanitize.ExitUsage, "want one of auto, crypto, user-data, write-zeroes"},
		{"bad verify", []string{"nvme", "--verify", "none"}, sanitize.ExitUsage, "want sample or all"},
		{"an argument", []string{"memory", "gpu"}, sanitize.ExitUsage, "gpu"},
		{"unknown command", []string{"memroy"}, sanitize.ExitUsage, "did you mean memory?"},
		{"unknown flag", []string{"memory", "--force"}, sanitize.ExitUsage, "--help"},
	} {
		stdout, stderr, code := execute(t, append([]string{"--root", root, "--result", ""}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: code %d, want %d with %q: %s", c.name, code, c.code, c.want, stderr)
		}
		if reported := stdout != ""; reported != (c.code == sanitize.ExitClean || c.code == sanitize.ExitUnknown) {
			t.Errorf("%s: result %q", c.name, stdout)
		}
	}
}

// TestSignal leaves no result, and the exit code of a program that the signal ended.
func TestSignal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	file := filepath.Join(t.TempDir(), "termination-log")
	var out bytes.Buffer
	err := run(ctx, []string{"memory", "--root", vm(t), "--result", file}, &out, io.Discard)
	if code := exitCode(err); code != 143 || out.Len() > 0 {
		t.Errorf("code %d, %v: %s", code, err, out.String())
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("there is a result")
	}
}

// TestVerdicts: the exit code of each verdict is the one that its result needs.
func TestVerdicts(t *testing.T) {
	for _, v := range []sanitize.Verdict{sanitize.Dirty, sanitize.Unknown} {
		if code := exitCode(&verdictError{verdict: v, reason: "x"}); code != v.ExitCode() || code == 0 {
			t.Errorf("%s: code %d", v, code)
		}
	}
}

// TestLongResult: what does not fit into a termination message is Unknown.
func TestLongResult(t *testing.T) {
	r := &sanitize.Result{
		APIVersion: sanitize.APIVersion, Kind: sanitize.Kind, Verdict: sanitize.Clean, Device: &sanitize.Device{Vendor: "0x1234", Device: "0x1111"},
	}
	for name := range strings.SplitSeq("abcdefghijklmnopqrstuvwxyz", "") {
		r.Checks = append(r.Checks, sanitize.Check{Name: name, Method: strings.Repeat("m", 200), Verdict: sanitize.Clean, Bytes: 1})
	}
	var out bytes.Buffer
	written, err := report("", &out, r)
	if err != nil || written.Verdict != sanitize.Unknown || !strings.Contains(written.Reason, "the result was Clean, and can't be reported") {
		t.Errorf("got %+v, %v", written, err)
	}
	if read, err := sanitize.Parse(out.Bytes()); err != nil || read.Verdict != sanitize.Unknown {
		t.Errorf("got %s, %v", out.String(), err)
	}
}

func TestHelpAndCompletion(t *testing.T) {
	for _, sub := range []string{"memory", "nvme"} {
		stdout, _, code := execute(t, sub, "--help")
		for _, want := range []string{"\n  3    the device is dirty", "\n  143  a signal", "--timeout", "--device"} {
			if code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("the help of %s lacks %q (code %d)", sub, want, code)
			}
		}
	}
	if stdout, _, _ := execute(t, "__complete", "nvme", "--method", ""); !strings.HasPrefix(stdout, "auto\ncrypto\nuser-data\nwrite-zeroes\n") {
		t.Errorf("completion: %q", stdout)
	}
	if stdout, _, _ := execute(t, "version"); !strings.HasPrefix(stdout, "kata-vfio-sanitize ") {
		t.Errorf("version: %q", stdout)
	}
}

func TestCommandsAreAlike(t *testing.T) { commandtest.Check(t, newCommand(io.Discard, io.Discard)) }

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command/commandtest"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// node is a scripted node with a NIC and its VFs, GPUs with and without
// companions, a group that a bridge's driver blocks and one with a busy mate.
func node(t *testing.T) *sysfstest.Kernel {
	t.Helper()
	k := sysfstest.New(t)
	k.AddNIC(0x3b, 2)
	k.AddGPU(0x41)
	k.AddGPUWithAudio(0x62, 15)
	_, bridge := k.AddBehindBridge(0x70, 16)
	k.AddWithBusyMate(0x80, 17)
	k.AddDriver("shpchp", sysfstest.Driver{})
	write(t, k, "sys/bus/pci/devices/"+bridge.String()+"/driver_override", "shpchp")
	write(t, k, "sys/bus/pci/drivers_probe", bridge.String())
	k.PutFile("usr/share/misc/pci.ids", "10de  NVIDIA Corporation\n")
	return k
}

func write(t *testing.T, k *sysfstest.Kernel, path, value string) {
	t.Helper()
	if err := k.Write(path, []byte(value)); err != nil {
		t.Fatalf("write %s to %s: %v", value, path, err)
	}
}

// execute runs a command line and returns its output.
func execute(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, warn bytes.Buffer
	err = run(t.Context(), args, &out, &warn)
	return out.String(), warn.String(), err
}

func TestDevicesJSON(t *testing.T) {
	k := node(t)
	stdout, stderr, err := execute(t, "devices", "-o", "json", "--root", k.Root())
	if err != nil || stderr != "" {
		t.Fatalf("err = %v, stderr = %q", err, stderr)
	}
	var doc struct {
		Devices []struct {
			Address, Type string
			Isolated      bool
			Reasons       []struct{ Code, Culprit, Fix string }
		}
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	blamed := map[string]bool{}
	for _, d := range doc.Devices {
		count[d.Type]++
		for _, r := range d.Reasons {
			blamed[r.Code+" "+r.Culprit] = true
		}
	}
	for kind, want := range map[string]int{"gpu": 4, "pf": 1, "vf": 2, "nvme": 1} {
		if count[kind] != want {
			t.Errorf("%d of type %s, want %d", count[kind], kind, want)
		}
	}
	mate := ""
	for _, d := range doc.Devices {
		if d.Type == "nvme" {
			mate = d.Address
		}
	}
	if !blamed["GroupNotViable "+mate] {
		t.Errorf("nobody blames the busy mate %s: %v", mate, blamed)
	}
}

func TestDevicesForPeople(t *testing.T) {
	k := node(t)
	for _, format := range []string{"table", "wide"} {
		stdout, _, err := execute(t, "devices", "-o", format, "--root", k.Root())
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"0000:62:00.0", "GroupNotViable", "shpchp/unbind", "╭ 15", "╰ 15", "not isolated: 2 of 8"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s lacks %q:\n%s", format, want, stdout)
			}
		}
		if strings.Contains(stdout, "\x1b[") {
			t.Errorf("%s has colors though it goes to no terminal", format)
		}
		if strings.Contains(stdout, "  bridge  ") {
			t.Errorf("%s lists bridges without --all", format)
		}
	}
	stdout, _, err := execute(t, "devices", "--all", "--root", k.Root())
	if err != nil || !strings.Contains(stdout, "  bridge  ") {
		t.Errorf("--all lists no bridge (err %v):\n%s", err, stdout)
	}
}

func TestOtherFormats(t *testing.T) {
	k := node(t)
	for _, c := range []struct {
		args   []string
		prefix string
	}{
		{[]string{"devices", "-o", "yaml"}, "basis:\n  by: default-config\n"},
		{[]string{"devices", "-o", "dot"}, "digraph pcie {\n"},
		{[]string{"topology"}, "<svg xmlns="},
		{[]string{"topology", "-o", "svg"}, "<svg xmlns="},
		{[]string{"topology", "-o", "dot"}, "digraph pcie {\n"},
		{[]string{"topology", "-o", "tree"}, "pci0000:"},
	} {
		stdout, _, err := execute(t, append(c.args, "--root", k.Root())...)
		if err != nil || !strings.HasPrefix(stdout, c.prefix) || !strings.Contains(stdout, "0000:41:00.0") {
			t.Errorf("%v: err = %v, output begins %.40q", c.args, err, stdout)
		}
	}
}

func TestTopologyToFile(t *testing.T) {
	k := node(t)
	file := filepath.Join(t.TempDir(), "node.svg")
	stdout, _, err := execute(t, "topology", "--root", k.Root(), "--file", file)
	if err != nil || stdout != "" {
		t.Fatalf("err = %v, stdout = %q", err, stdout)
	}
	drawn, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	printed, _, err := execute(t, "topology", "--root", k.Root())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(printed, string(drawn)); diff != "" {
		t.Errorf("the file differs from what is printed:\n%s", diff)
	}
	_, _, err = execute(t, "topology", "--root", k.Root(), "--file", filepath.Join(t.TempDir(), "none", "node.svg"))
	if !errors.Is(err, os.ErrNotExist) || exitCode(err) != exitFailed {
		t.Errorf("err = %v (exit %d), want that the folder does not exist (1)", err, exitCode(err))
	}
}

// A second look at an unchanged node prints the same.
func TestOutputIsDeterministic(t *testing.T) {
	k := node(t)
	for _, args := range [][]string{{"devices"}, {"devices", "-o", "json"}, {"devices", "-o", "dot"}, {"topology"}} {
		first, _, err := execute(t, append(args, "--root", k.Root())...)
		if err != nil {
			t.Fatal(err)
		}
		second, _, err := execute(t, append(args, "--root", k.Root())...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("%v differs:\n%s", args, diff)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	empty := t.TempDir()
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no such root", []string{"devices", "--root", filepath.Join(empty, "none")}, exitFailed, "--root wants"},
		{"no Linux tree", []string{"devices", "--root", empty}, exitFailed, "has no sys/bus/pci/devices"},
		{"no Linux tree to draw", []string{"topology", "--root", empty}, exitFailed, "has no sys/bus/pci/devices"},
		{"unknown format", []string{"devices", "-o", "xml"}, exitUsage, "want one of table, wide, json, yaml, dot"},
		{"unknown drawing", []string{"topology", "-o", "png"}, exitUsage, "want one of svg, dot, tree"},
		{"unknown flag", []string{"devices", "--frob"}, exitUsage, "kata-vfio-audit devices --help"},
		{"unknown command", []string{"frob"}, exitUsage, `unknown command "frob"`},
		{"no Linux tree to judge", []string{"node", "--root", empty}, exitFailed, "has no sys/bus/pci/devices"},
		{"a code with a typo", []string{"explain", "GroupNotViabel"}, exitUsage, "(did you mean GroupNotViable?)"},
		{"a waiver of nobody", []string{"waive", "IOM-003", "--scope", "node"}, exitUsage, "a waiver needs --until, --reason, --author; see"},
		{"a missing archive", []string{"eval", filepath.Join(empty, "none.tgz")}, exitUsage, "there is no file "},
		{"two blueprints", []string{"node", "--candidate", "-f", "a", "-f", "b"}, exitUsage, "the flag is given twice, and takes one"},
		{"stray argument", []string{"devices", "0000:3b:00.0"}, exitUsage, `unexpected argument "0000:3b:00.0"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, _, err := execute(t, c.args...)
			if err == nil {
				t.Fatalf("no error; printed %q", stdout)
			}
			if exitCode(err) != c.code || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("exit %d, %q; want exit %d and %q on one line", exitCode(err), err, c.code, c.want)
			}
		})
	}
}

func TestNodeWithoutIOMMUIsShownWithAWarning(t *testing.T) {
	k := sysfstest.New(t)
	k.WithoutIOMMU()
	k.AddGPU(0x41)
	if err := os.RemoveAll(k.Path("sys/kernel/iommu_groups")); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := execute(t, "devices", "--root", k.Root())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stderr, "has no sys/kernel/iommu_groups") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("stderr = %q", stderr)
	}
	if !strings.Contains(stdout, "NoIOMMUGroup") {
		t.Errorf("stdout:\n%s", stdout)
	}
}

// Without CAP_SYS_ADMIN the kernel shows the first 64 bytes.
func TestUnprivilegedRunSaysSo(t *testing.T) {
	k := sysfstest.New(t)
	gpu := k.AddGPU(0x41)
	if err := os.Truncate(k.Path("sys/bus/pci/devices/"+gpu.String()+"/config"), 64); err != nil {
		t.Fatal(err)
	}
	_, stderr, err := execute(t, "devices", "--root", k.Root())
	if err != nil || !strings.Contains(stderr, "of 1 function could not be read in full") || !strings.Contains(stderr, "run as root") {
		t.Errorf("err = %v, stderr = %q", err, stderr)
	}
}

func TestHelpDocumentsExitCodes(t *testing.T) {
	for line, want := range map[string]string{
		"": allExitCodes, "--help": allExitCodes, "devices --help": exitCodes, "topology --help": exitCodes, "node --help": nodeExitCodes,
		"cluster --help": nodeExitCodes,
		"explain --help": readingExitCodes, "checks --help": readingExitCodes, "profiles --help": readingExitCodes, "waive --help": readingExitCodes,
	} {
		stdout, _, err := execute(t, strings.Fields(line)...)
		if err != nil || !strings.Contains(stdout, want) {
			t.Errorf("%s: err = %v, help without exit codes:\n%s", line, err, stdout)
		}
	}
}

func TestVersionAndCompletion(t *testing.T) {
	stdout, _, err := execute(t, "version")
	if err != nil || !strings.HasPrefix(stdout, "kata-vfio-audit ") {
		t.Errorf("version: err = %v, %q", err, stdout)
	}
	stdout, _, err = execute(t, "completion", "bash")
	if err != nil || !strings.Contains(stdout, "kata-vfio-audit") {
		t.Errorf("completion: err = %v", err)
	}
}

// TestHostileNamesDoNothing: escape sequences in a product's name are seen, not
// obeyed.
func TestHostileNamesDoNothing(t *testing.T) {
	k := node(t)
	k.PutFile("usr/share/misc/pci.ids", "10de  NVIDIA\x1b[2J\u202eX\n\t2330  H\x1b]8;;http://evil\x1b\\100\u009b1m\n")
	for line, shown := range map[string]string{
		"devices -o wide": `\x1b`, "devices": `\x1b`, "devices -o json": `\u001b`, "devices -o yaml": "", "devices -o dot": "", "topology": "",
	} {
		stdout, _, err := execute(t, append(strings.Fields(line), "--root", k.Root())...)
		if err != nil || !strings.Contains(stdout, shown) {
			t.Errorf("%s: %v, shows no %s:\n%s", line, err, shown, stdout)
		}
		// Lines of DOT are indented by tabs.
		if i := strings.IndexFunc(stdout, func(r rune) bool { return r != '\n' && r != '\t' && output.Obeyed(r) }); i >= 0 {
			t.Errorf("%s writes %q", line, stdout[i:min(i+20, len(stdout))])
		}
	}
}

func TestCommandsAreAlike(t *testing.T) { commandtest.Check(t, newCommand(io.Discard, io.Discard)) }

// TestHelpHasRootWhereANodeIsRead, and nowhere else.
func TestHelpHasRootWhereANodeIsRead(t *testing.T) {
	for name, want := range map[string]bool{"node": true, "devices": true, "fleet": false, "cluster": false, "waive": false, "checks": false} {
		var out bytes.Buffer
		cmd := newCommand(&out, io.Discard)
		cmd.SetArgs([]string{name, "--help"})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "--root string"); got != want {
			t.Errorf("%s --help shows --root: got %t, want %t", name, got, want)
		}
	}
}

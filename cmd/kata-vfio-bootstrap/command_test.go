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

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command/commandtest"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// image is a Debian image without its kernel.
func image(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"etc/os-release": "ID=debian\n", "etc/default/grub": "GRUB_CMDLINE_LINUX=\"\"\n", "boot/grub/grub.cfg": "x\n",
		"usr/sbin/grub-mkconfig": "default/grub.d\n", "usr/sbin/update-grub": "",
		"usr/lib/systemd/systemd": "", "usr/bin/containerd": "", "usr/lib/systemd/system/containerd.service": "[Service]\nExecStart=/usr/bin/containerd\n", "etc/containerd/config.toml": "version = 3\n",
		"opt/kata/VERSION": "4.1.0\n", "opt/kata/bin/containerd-shim-kata-v2": "ELF", "opt/kata/libexec/virtiofsd": "ELF",
		"opt/kata/share/defaults/kata-containers/configuration-qemu-nvidia-gpu.toml": "[hypervisor.qemu]\ncold_plug_vfio = \"root-port\"\n" +
			"virtio_fs_daemon = \"/opt/kata/libexec/virtiofsd\"\n[agent.kata]\n[runtime]\n",
	} {
		put(t, filepath.Join(root, name), content)
	}
	return root
}

func put(t *testing.T, file, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// try runs a command line and returns its output and exit code.
func try(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	if err := run(t.Context(), args, &out, &errs); err != nil {
		code = fail(&errs, err)
	}
	return out.String(), errs.String(), code
}

func TestExitCodesTellWhatIsAndWhatWasDone(t *testing.T) {
	root := image(t)
	for _, step := range []struct {
		args string
		code int
		want string
	}{
		{"status", 0, "Bootstrap has changed nothing on this node."},
		{"plan", exitChanges, "+\tGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX intel_iommu=on\""},
		{"plan", exitChanges, "manual step: /usr/sbin/update-grub"},
		{"verify", exitChanges, "✗ /etc/default/grub.d/zz-kata-vfio.cfg does not match the blueprint (create)"},
		{"apply --dry-run", exitChanges, "manual step: /usr/sbin/update-grub"},
		{"status", 0, "Bootstrap has changed nothing on this node."},
		{"apply", 0, "Done, except for the manual steps above."},
		{"apply", 0, "Nothing was changed. Perform the manual steps above."},
		{"verify", 0, "All files match the blueprint. Perform the manual steps above."},
		{"status", 0, "/etc/default/grub.d/zz-kata-vfio.cfg"},
		{"revert /etc/modprobe.d/50-kata-vfio.conf --detailed-exitcode", exitChanges, "reverted"},
		{"verify", exitChanges, "50-kata-vfio.conf does not match the blueprint"},
		{"revert /etc/passwd", exitUsage, ""},
		{"revert", 0, "Done, except for the manual steps above."},
		{"revert --detailed-exitcode", 0, "Nothing was changed. Perform the manual steps above."},
		{"plan --nonsense", exitUsage, ""},
		{"plan -o xml", exitUsage, ""},
		{"nonsense", exitUsage, ""},
		{"plan -f /nonexistent", exitUsage, ""},
	} {
		stdout, stderr, code := try(t, append(strings.Fields(step.args), "--root", root)...)
		if code != step.code || !strings.Contains(stdout, step.want) || (code == exitUsage) != (stderr != "") {
			t.Errorf("%s: code %d, want %d\n%s%s", step.args, code, step.code, stdout, stderr)
		}
	}
}

// Who makes an image and forgets --root would change the machine that makes it.
func TestToolsOfAnImageWantAnImage(t *testing.T) {
	for _, args := range []string{"apply --chroot-tools", "revert --chroot-tools --root /", "apply --chroot-tools --root /etc/.."} {
		cmd, _, err := newCommand(io.Discard, io.Discard).Find(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags(strings.Fields(args)[1:]); err != nil {
			t.Fatal(err)
		}
		if err := cmd.PreRunE(cmd, nil); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "--root DIR") {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// A tool that fails is not told as run, and nothing as done; nor are those behind it.
func TestToolThatFailsIsTold(t *testing.T) {
	root := image(t)
	stdout, stderr, code := try(t, "apply", "--root", root, "--chroot-tools")
	if code != exitFailed || !strings.Contains(stdout, "failed: /usr/sbin/update-grub\n") || strings.Contains(stdout, "ran:") || strings.Contains(stdout, "Done.") || !strings.Contains(stderr, "run apply again") {
		t.Errorf("apply: code %d\n%s%s", code, stdout, stderr)
	}
	stdout, stderr, code = try(t, "revert", "--root", root, "--chroot-tools", "-o", "json")
	var r bootstrap.Result
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != exitFailed || len(r.Steps) != 1 || r.Steps[0].Ran || r.Steps[0].Error == "" || !strings.Contains(stderr, "run revert again") {
		t.Errorf("revert: %v, code %d\n%s%s", err, code, stdout, stderr)
	}
	stdout, _, _ = try(t, "status", "--root", root)
	if !strings.Contains(stdout, "All files are reverted") || !strings.Contains(stdout, "manual step: /usr/sbin/update-grub\n") || strings.Contains(stdout, "BootConfig") {
		t.Errorf("status:\n%s", stdout)
	}
}

func TestExitCodesOfWhatOnlyABootBrings(t *testing.T) {
	problem := []state.Problem{{Text: "x", Fatal: true}}
	brief, detailed := &options{}, &options{detailed: true}
	for _, c := range []struct {
		name string
		err  error
		code int
	}{
		{"plan", outcome(&bootstrap.Plan{Reboot: true}), exitReboot},
		{"plan, in vain", outcome(&bootstrap.Plan{Reboot: true, NotBrought: true}), exitImpossible},
		{"apply", detailed.resultCode(&bootstrap.Result{Reboot: true, Changed: make([]bootstrap.FilePlan, 1), Plan: &bootstrap.Plan{Reboot: true}}), exitReboot},
		{"apply, in vain", detailed.resultCode(&bootstrap.Result{Plan: &bootstrap.Plan{NotBrought: true}}), exitImpossible},
		{"apply, with a tool alone", detailed.resultCode(&bootstrap.Result{Steps: []bootstrap.Step{{Runs: true, Ran: true}}, Plan: &bootstrap.Plan{}}), exitChanges},
		{"apply, without --detailed-exitcode", brief.resultCode(&bootstrap.Result{Changed: make([]bootstrap.FilePlan, 1), Plan: &bootstrap.Plan{}}), 0},
		{"apply, of nothing", detailed.resultCode(&bootstrap.Result{Plan: &bootstrap.Plan{}}), 0},
		{"revert that kept a file", detailed.resultCode(&bootstrap.Result{Kept: []bootstrap.Kept{{}}}), exitImpossible},
		{"revert of what was removed", detailed.resultCode(&bootstrap.Result{Kept: []bootstrap.Kept{{Removed: true}}}), 0},
		{"a refusal", outcome(&bootstrap.Plan{Problems: problem}), exitImpossible},
	} {
		code := 0
		if c.err != nil {
			code = fail(io.Discard, c.err)
		}
		if code != c.code {
			t.Errorf("%s: code %d, want %d", c.name, code, c.code)
		}
	}
}

func TestApplySummaryMatchesChanges(t *testing.T) {
	done := []bootstrap.Step{{Commands: []string{"systemctl daemon-reload"}, Runs: true, Ran: true}}
	left := []bootstrap.Step{{Commands: []string{"update-grub"}, Due: true}}
	for _, c := range []struct {
		name   string
		result bootstrap.Result
		want   string
	}{
		{"nothing", bootstrap.Result{}, "Nothing to do."},
		{"a tool alone", bootstrap.Result{Steps: done}, "ran: systemctl daemon-reload\nDone."},
		{"what was kept alone", bootstrap.Result{Kept: []bootstrap.Kept{{Path: "a", Why: "x"}}}, "Nothing was changed."},
		{"what was kept, and more", bootstrap.Result{Kept: []bootstrap.Kept{{Path: "a", Why: "x"}}, Steps: done}, "Done, except for the files that were kept."},
		{"in vain", bootstrap.Result{Plan: &bootstrap.Plan{NotBrought: true}}, "a reboot did not apply all of them"},
	} {
		out := &printer{}
		printResult(out, &c.result, false)
		if !strings.HasSuffix(strings.TrimSpace(out.text.String()), c.want) && !strings.Contains(out.text.String(), c.want) {
			t.Errorf("%s:\n%s", c.name, out.text.String())
		}
	}
	out := &printer{}
	printVerify(out, &bootstrap.Plan{Steps: left})
	if text := out.text.String(); !strings.Contains(text, "manual step: update-grub") || strings.Contains(text, "The node matches the blueprint.") {
		t.Errorf("verify:\n%s", text)
	}
	out = &printer{}
	printVerify(out, &bootstrap.Plan{Steps: []bootstrap.Step{{Commands: []string{"update-grub"}, Due: true, Runs: true}}})
	if text := out.text.String(); !strings.Contains(text, "still to run: update-grub") || !strings.Contains(text, "Run apply to fix it") {
		t.Errorf("verify:\n%s", text)
	}
}

// The output without any item is an empty list, not null.
func TestJSONHasListsWhereThereIsNothing(t *testing.T) {
	root := image(t)
	if _, stderr, code := try(t, "apply", "--root", root, "--detailed-exitcode"); code != exitChanges {
		t.Fatalf("code %d: %s", code, stderr)
	}
	for _, c := range []struct{ command, fields string }{
		{"plan", "files settings steps problems facts"}, {"apply", "changed settings steps"}, {"status", "files settings pending steps"}, {"revert", "changed settings steps"}, {"status", "files settings pending steps"},
	} {
		stdout, _, _ := try(t, c.command, "--root", root, "-o", "json")
		var all map[string]any
		if err := json.Unmarshal([]byte(stdout), &all); err != nil {
			t.Fatal(err)
		}
		for field := range strings.FieldsSeq(c.fields) {
			if _, ok := all[field].([]any); !ok {
				t.Errorf("%s: %s is %v", c.command, field, all[field])
			}
		}
	}
}

// What is said to be unchanged is: there is not even a directory more.
func TestWhereNothingIsChangedNothingIsMade(t *testing.T) {
	refused := image(t)
	put(t, filepath.Join(refused, "etc/default/grub"), "GRUB_CMDLINE_LINUX=\"iommu=pt\"\n")
	for root, commands := range map[string]map[string]int{
		refused: {"plan": exitImpossible, "apply": exitImpossible, "revert": 0}, t.TempDir(): {"apply": exitImpossible, "verify": exitImpossible, "revert /etc/x": exitUsage, "revert": 0, "status": 0},
	} {
		for args, want := range commands {
			if stdout, stderr, code := try(t, append(strings.Fields(args), "--root", root)...); code != want {
				t.Errorf("%s: code %d\n%s%s", args, code, stdout, stderr)
			}
		}
		if _, err := os.Lstat(filepath.Join(root, "var")); err == nil {
			t.Error("something was made in var")
		}
	}
}

// No file of the node has the chart's version: a flag passes it, and a blueprint of another version is drift.
func TestChartsVersionIsCompared(t *testing.T) {
	root := image(t)
	file := filepath.Join(t.TempDir(), "b.yaml")
	put(t, file, "apiVersion: bootstrap.kata-vfio.dev/v1alpha1\nkind: NodeBlueprint\nversions: {chart: {exact: \"7.7.7\"}}\n")
	for _, c := range []struct {
		flag, want string
		code       int
	}{
		{"--chart-version=7.7.7", "", exitChanges},
		{"--chart-version=0.1.0", "✗ chart is 0.1.0 (--chart-version), but the blueprint requires 7.7.7", exitImpossible},
		{"--chart-version=", "! the blueprint requires chart 7.7.7, but no file shows the installed version", exitChanges},
	} {
		for _, command := range []string{"plan", "verify"} {
			if stdout, stderr, code := try(t, command, "--root", root, "-f", file, c.flag); code != c.code || !strings.Contains(stdout, c.want) || c.want == "" && strings.Contains(stdout, "wants chart") {
				t.Errorf("%s %s: code %d\n%s%s", command, c.flag, code, stdout, stderr)
			}
		}
	}
}

// What nothing here can tell a boot loader is left to a person, in an image as on a node: nothing is said to be as it should be.
func TestPlanPrintsManualSteps(t *testing.T) {
	root := image(t)
	for _, name := range []string{"etc/default/grub", "boot/grub/grub.cfg", "usr/sbin/grub-mkconfig", "usr/sbin/update-grub"} {
		if err := os.Remove(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		command, want, not string
		code               int
	}{
		{"apply", "Done, except for the manual steps above.", "Done.", 0},
		{"verify", "All files match the blueprint. Perform the manual steps above.", "The node matches the blueprint.", 0},
		{"plan", "Manual step: add to the kernel command line, then reboot: intel_iommu=on", "The node matches the blueprint.", 0},
	} {
		stdout, stderr, code := try(t, step.command, "--root", root)
		if code != step.code || !strings.Contains(stdout, step.want) || strings.Contains(stdout, step.not) || !strings.Contains(strings.ToLower(stdout), "manual step: ") {
			t.Errorf("%s: code %d\n%s%s", step.command, code, stdout, stderr)
		}
	}
}

// A part that can't be printed is reported, with the refusal's exit code.
func TestRefusalThatCantBePrintedIsTold(t *testing.T) {
	root := image(t)
	put(t, filepath.Join(root, "etc/default/grub"), "GRUB_CMDLINE_LINUX=\"iommu=pt\"\n")
	var errs bytes.Buffer
	err := run(t.Context(), []string{"apply", "--root", root}, closed{}, &errs)
	if code := fail(&errs, err); code != exitImpossible || !strings.Contains(errs.String(), "closed") {
		t.Errorf("code %d, %q", code, errs.String())
	}
}

type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, errors.New("closed") }

func TestNodesOwnBlueprintCountsAndThenTheOneAppliedLast(t *testing.T) {
	root := image(t)
	const head = "apiVersion: bootstrap.kata-vfio.dev/v1alpha1\nkind: NodeBlueprint\n"
	flag := filepath.Join(t.TempDir(), "flag.yaml")
	put(t, flag, head+"kernel: {arguments: [from=flag]}\n")
	if _, stderr, code := try(t, "apply", "--root", root, "-f", flag); code != 0 {
		t.Fatalf("code %d: %s", code, stderr)
	}
	if stdout, _, code := try(t, "verify", "--root", root); code != 0 {
		t.Errorf("the one applied last: code %d\n%s", code, stdout)
	}
	put(t, filepath.Join(root, bootstrap.BlueprintFile), head+"kernel: {arguments: [from=node]}\n")
	if stdout, _, code := try(t, "plan", "--root", root); code != exitChanges || !strings.Contains(stdout, "from=node") {
		t.Errorf("the node's own: code %d\n%s", code, stdout)
	}
	put(t, filepath.Join(root, bootstrap.BlueprintFile), head+"kernel: {iommu: maybe}\n")
	_, stderr, code := try(t, "plan", "--root", root)
	if code != exitUsage || !strings.Contains(stderr, `blueprint.yaml: NodeBlueprint: line 3: kernel.iommu: "maybe" is not one of`) {
		t.Errorf("code %d: %s", code, stderr)
	}
}

func TestPlanPrintsObstaclesOnce(t *testing.T) {
	root := image(t)
	put(t, filepath.Join(root, "etc/default/grub"), "GRUB_CMDLINE_LINUX=\"iommu=pt\x1b[31m\"\n")
	put(t, filepath.Join(root, "etc/modprobe.d/x\x1b.conf"), "blacklist vfio-pci\n")
	for _, command := range []string{"plan", "verify", "apply"} {
		stdout, stderr, code := try(t, command, "--root", root)
		if code != exitImpossible || stderr != "" || strings.Contains(stdout, "\x1b") || strings.Count(stdout, "it prevents vfio_pci from loading") != 1 {
			t.Errorf("%s: code %d, stderr %q\n%s", command, code, stderr, stdout)
		}
	}
}

// TestProblemsOfManyDevicesAreSaidOnce: with another fix they are another problem.
func TestProblemsOfManyDevicesAreSaidOnce(t *testing.T) {
	of := func(address, fix string) state.Problem {
		return state.Problem{Code: rule.StillBound, Text: "nvidia can bind " + address + " first.", Fix: fix}
	}
	out := &printer{}
	out.problems([]state.Problem{of("0000:3b:00.0", "Set earlyBinding."), of("0000:3c:00.0", "Set earlyBinding."), of("0000:3d:00.0", "Unload it.")})
	const want = "! nvidia can bind 0000:3b:00.0 first (StillBound) (2 devices: also 0000:3c:00.0)\n    Set earlyBinding.\n" +
		"! nvidia can bind 0000:3d:00.0 first (StillBound)\n    Unload it.\n\n"
	if got := out.text.String(); got != want {
		t.Errorf("printed\n%q, want\n%q", got, want)
	}
}

func TestJSONIsThePlan(t *testing.T) {
	stdout, _, code := try(t, "plan", "-o", "json", "--root", image(t))
	var p bootstrap.Plan
	if err := json.Unmarshal([]byte(stdout), &p); err != nil || code != exitChanges || len(p.Files) == 0 || p.Files[0].Status != bootstrap.ToDo {
		t.Errorf("code %d, %v\n%s", code, err, stdout)
	}
}

func TestCommandsAreAlike(t *testing.T) { commandtest.Check(t, newCommand(io.Discard, io.Discard)) }

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
)

// image is a Debian image without its kernel.
func image(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"etc/os-release": "ID=debian\n", "etc/default/grub": "GRUB_CMDLINE_LINUX=\"\"\n", "boot/grub/grub.cfg": "x\n",
		"usr/sbin/grub-mkconfig": "default/grub.d\n", "usr/sbin/update-grub": "",
		"usr/lib/systemd/systemd": "", "usr/bin/containerd": "", "usr/lib/systemd/system/containerd.service": "[Service]\nExecStart=/usr/bin/containerd\n", "etc/containerd/config.toml": "version = 3\n",
		"opt/kata/VERSION": "4.1.0\n", "opt/kata/bin/containerd-shim-kata-v2": "ELF",
		"opt/kata/share/defaults/kata-containers/configuration-qemu-nvidia-gpu.toml": "[hypervisor.qemu]\ncold_plug_vfio = \"root-port\"\n[agent.kata]\n[runtime]\n",
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
		{"status", 0, "Nothing on this node is of bootstrap's making."},
		{"plan", exitChanges, "+\tGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX intel_iommu=on\""},
		{"plan", exitChanges, "left to do: /usr/sbin/update-grub"},
		{"verify", exitChanges, "✗ /etc/default/grub.d/50-kata-vfio.cfg is not as wanted (create)"},
		{"apply", exitChanges, "Done."},
		{"apply", 0, "Nothing to do."},
		{"verify", 0, "The node is as the blueprint says."},
		{"status", 0, "/etc/default/grub.d/50-kata-vfio.cfg"},
		{"revert /etc/modprobe.d/50-kata-vfio.conf", exitChanges, "take back"},
		{"verify", exitChanges, "50-kata-vfio.conf is not as wanted"},
		{"revert /etc/passwd", exitUsage, ""},
		{"revert", exitChanges, "Done."},
		{"revert", 0, "Nothing to do."},
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

func TestTheNodesOwnBlueprintCountsAndThenTheOneAppliedLast(t *testing.T) {
	root := image(t)
	const head = "apiVersion: bootstrap.kata-vfio.dev/v1alpha1\nkind: NodeBlueprint\n"
	flag := filepath.Join(t.TempDir(), "flag.yaml")
	put(t, flag, head+"kernel: {arguments: [from=flag]}\n")
	if _, stderr, code := try(t, "apply", "--root", root, "-f", flag); code != exitChanges {
		t.Fatalf("code %d: %s", code, stderr)
	}
	if stdout, _, code := try(t, "verify", "--root", root); code != 0 {
		t.Errorf("the one applied last: code %d\n%s", code, stdout)
	}
	put(t, filepath.Join(root, defaultBlueprint), head+"kernel: {arguments: [from=node]}\n")
	if stdout, _, code := try(t, "plan", "--root", root); code != exitChanges || !strings.Contains(stdout, "from=node") {
		t.Errorf("the node's own: code %d\n%s", code, stdout)
	}
	put(t, filepath.Join(root, defaultBlueprint), head+"kernel: {iommu: maybe}\n")
	_, stderr, code := try(t, "plan", "--root", root)
	if code != exitUsage || !strings.Contains(stderr, `blueprint.yaml: NodeBlueprint: line 3: kernel.iommu: "maybe" is not one of`) {
		t.Errorf("code %d: %s", code, stderr)
	}
}

func TestWhatIsInTheWayIsPrintedOnce(t *testing.T) {
	root := image(t)
	put(t, filepath.Join(root, "etc/default/grub"), "GRUB_CMDLINE_LINUX=\"iommu=pt\x1b[31m\"\n")
	put(t, filepath.Join(root, "etc/modprobe.d/x\x1b.conf"), "blacklist vfio-pci\n")
	for _, command := range []string{"plan", "verify", "apply"} {
		stdout, stderr, code := try(t, command, "--root", root)
		if code != exitImpossible || stderr != "" || strings.Contains(stdout, "\x1b") || strings.Count(stdout, "it keeps vfio_pci from being loaded") != 1 {
			t.Errorf("%s: code %d, stderr %q\n%s", command, code, stderr, stdout)
		}
	}
}

func TestJSONIsThePlan(t *testing.T) {
	stdout, _, code := try(t, "plan", "-o", "json", "--root", image(t))
	var p bootstrap.Plan
	if err := json.Unmarshal([]byte(stdout), &p); err != nil || code != exitChanges || len(p.Files) == 0 || p.Files[0].Status != bootstrap.ToDo {
		t.Errorf("code %d, %v\n%s", code, err, stdout)
	}
}

package host_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
)

// The drop-in keeps what the configuration has, ends well without the rules, and brings them if they exist.
func TestMkinitcpiosDropInAppends(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal("install bash, in which mkinitcpio is written: ", err)
	}
	b := blueprint.Default()
	b.Kernel.EarlyBinding = true
	files := tree{"usr/bin/mkinitcpio": "_d_config=x\n", "etc/mkinitcpio.conf": "HOOKS=(udev)\n"}
	dropIn := ""
	for _, f := range host.Wanted(files, b, &host.Platform{Systemd: true, Initramfs: host.Mkinitcpio}).Files {
		if f.Path == "etc/mkinitcpio.conf.d/zz-kata-vfio.conf" {
			dropIn = string(f.Content)
		}
	}
	rules := filepath.Join(t.TempDir(), "rules")
	dropIn = strings.ReplaceAll(dropIn, "/etc/udev/rules.d/10-kata-vfio.rules", rules)
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte("MODULES=(ext4)\nFILES=(/x)\n"+dropIn), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ext4 vfio_pci - /x\n", "ext4 vfio_pci - /x " + rules + "\n"} {
		out, err := exec.CommandContext(t.Context(), bash, "-c", `. "$0" || exit 3; echo "${MODULES[*]} - ${FILES[*]}"`, config).CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
		if err := os.WriteFile(rules, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

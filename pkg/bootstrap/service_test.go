package bootstrap_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// k3s is a node whose containerd K3s starts, beside one that Docker left.
func k3s() map[string]string {
	return debian("debian", "13", "", debianGrub, map[string]string{
		"var/lib/rancher/k3s/agent/etc/containerd/config.toml": "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n",
		"usr/local/lib/systemd/system/k3s-agent.service":       "[Service]\nExecStart=/usr/local/bin/k3s agent\n",
	})
}

func TestServiceOfADistributionIsRestarted(t *testing.T) {
	n := newNode(t, k3s())
	n.apply(blueprint.Default())
	ran := strings.Join(n.tools.ran, "\n")
	if !strings.Contains(ran, "systemctl try-restart k3s-agent.service") || strings.Contains(ran, "containerd.service") {
		t.Errorf("ran:\n%s", ran)
	}
	if got := n.read("etc/systemd/system/k3s-agent.service.d/50-kata-vfio.conf"); !strings.Contains(got, "LimitMEMLOCK=infinity") {
		t.Errorf("the service's limit is %q", got)
	}
}

// CRI-O's node may have a containerd of Docker's, which is left alone.
func TestContainerdThatIsNotTheNodesRuntimeIsLeftAlone(t *testing.T) {
	n := newNode(t, debian("debian", "13", "", debianGrub, map[string]string{
		"var/lib/kubelet/config.yaml":         "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock\n",
		"etc/crio/crio.conf":                  "[crio]\n",
		"usr/lib/systemd/system/crio.service": "[Service]\nExecStart=/usr/bin/crio\n",
	}))
	n.apply(blueprint.Default())
	ran := strings.Join(n.tools.ran, "\n")
	if !strings.Contains(ran, "systemctl try-restart crio.service") || strings.Contains(ran, "containerd") {
		t.Errorf("ran:\n%s", ran)
	}
}

// A function that a driver has keeps it until the node boots, and the node is not fit
// before, whatever else is right.
func TestFunctionThatADriverHasTakesAReboot(t *testing.T) {
	n := newNode(t, debian("debian", "13", "", debianGrub, map[string]string{
		"sys/bus/pci/devices/0000:3b:00.0/uevent": "DRIVER=nvidia\n", "sys/bus/pci/devices/0000:3b:00.0/driver_override": "(null)\n",
	}))
	b := blueprint.Default()
	n.apply(b)
	n.reboot()
	b.VFIO.KeepOff = []pci.Address{{Bus: 0x3b}}
	if got := n.plan(b).Outcome(); got != bootstrap.ChangesNeeded {
		t.Errorf("with an address more: %s", got)
	}
	if r := n.apply(b); !r.Reboot || n.plan(b).Outcome() != bootstrap.RebootNeeded {
		t.Errorf("applied: reboot %t, %s", r.Reboot, n.plan(b).Outcome())
	}
	n.reboot()
	if got := n.plan(b).Outcome(); got != bootstrap.Impossible {
		t.Errorf("booted, with the driver still there: %s", got)
	}
	n.put("sys/bus/pci/devices/0000:3b:00.0/uevent", "DRIVER=vfio-pci\n")
	if got := n.plan(b).Outcome(); got != bootstrap.Fit {
		t.Errorf("without it: %s", got)
	}
}

// A package that brings the units moves the link to them; one that was enabled under
// the other name of their directory is theirs too.
func TestLinkFollowsTheUnitThatAPackageBrings(t *testing.T) {
	const name = "kata-vfio-pod-resources"
	const link = "etc/systemd/system/sockets.target.wants/" + name + ".socket"
	packaged := map[string]string{"usr/lib/systemd/system/" + name + ".socket": "x", "usr/lib/systemd/system/" + name + ".service": "x"}
	n := newNode(t, debian("debian", "13", "", debianGrub, nil))
	n.apply(blueprint.Default())
	for file, text := range packaged {
		n.put(file, text)
	}
	n.apply(blueprint.Default())
	if target, err := os.Readlink(filepath.Join(n.root, link)); err != nil || target != "/usr/lib/systemd/system/"+name+".socket" {
		t.Errorf("the link leads to %s, %v", target, err)
	}
	if _, err := os.Lstat(filepath.Join(n.root, "etc/systemd/system/"+name+".socket")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("our own unit: %v", err)
	}
	n.revert()
	if _, err := os.Lstat(filepath.Join(n.root, link)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link: %v", err)
	}

	n = newNode(t, debian("debian", "13", "", debianGrub, packaged), map[string]string{link: "-> /lib/systemd/system/" + name + ".socket"})
	before := n.snapshot()
	n.apply(blueprint.Default())
	n.revert()
	n.same(before, "reverted")

	n = newNode(t, debian("debian", "13", "", debianGrub, packaged), map[string]string{link: "-> /dev/null"})
	if got := n.plan(blueprint.Default()).Outcome(); got != bootstrap.Impossible {
		t.Errorf("with a mask in its place: %s", got)
	}
}

// TestPasswordsStayInTheirFile: bootstrap's drop-in has none of them, and an existing one keeps its mode.
func TestPasswordsStayInTheirFile(t *testing.T) {
	const dropIn = "etc/containerd/conf.d/kata-gpu.toml"
	n := newNode(t, debian("debian", "13", "", debianGrub, map[string]string{
		"etc/containerd/config.toml": "version = 2\nimports = ['/etc/containerd/conf.d/*.toml']\n[plugins.'io.containerd.grpc.v1.cri'.registry.configs.x.auth]\npassword = 'p'\n",
		dropIn:                       "# a site's\n",
	}))
	if got := n.plan(blueprint.Default()).Outcome(); got != bootstrap.Impossible {
		t.Errorf("with an unknown containerd: %s, want %s", got, bootstrap.Impossible)
	}
	n.put("var/lib/dpkg/status", "Package: containerd\nStatus: install ok installed\nVersion: 2.2.0-1\n")
	if err := os.Chmod(filepath.Join(n.root, dropIn), 0o600); err != nil {
		t.Fatal(err)
	}
	n.apply(blueprint.Default())
	info, err := os.Stat(filepath.Join(n.root, dropIn))
	if text := n.read(dropIn); err != nil || info.Mode() != 0o600 || strings.Contains(text, "password") || !strings.Contains(text, "kata-gpu") {
		t.Errorf("mode %v, %v:\n%s", info.Mode(), err, text)
	}
	n.revert()
	if text := n.read(dropIn); text != "# a site's\n" {
		t.Errorf("reverted: %q", text)
	}
}

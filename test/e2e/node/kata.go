package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/kata-vfio/kata-vfio/test/e2e/kata"
	"github.com/kata-vfio/kata-vfio/test/internal/compile"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
)

// The node's Kata, below Dir: the installation, which is mounted where Kata expects itself, and the guest's initial RAM file system.
const (
	kataDir        = Dir + "/kata"
	initramfs      = Dir + "/kata-guest.img"
	bootstrap      = "kata-vfio-bootstrap"
	syslog         = "syslog"
	containerdFile = "etc/containerd.toml"
)

// stageKata fills the node's disk with Kata, its guest and the lab's own settings.
func (n *Node) stageKata(ctx context.Context, dir string) error {
	k := n.config.Kata
	if k == nil {
		return nil
	}
	img, err := image.Ensure(ctx, n.config.Progress)
	if err != nil {
		return err
	}
	if err := k.Stage(filepath.Join(dir, "kata")); err != nil {
		return err
	}
	if k.LabsGuest() {
		if err := k.WriteInitramfs(ctx, img, filepath.Join(dir, "kata-guest.img")); err != nil {
			return fmt.Errorf("make the guest's initramfs: %w", err)
		}
	}
	kernel, root, initrd := k.BootFiles("/boot/vmlinux-"+img.KernelVersion, initramfs)
	values := map[string]any{"Kernel": kernel, "Image": root, "Initrd": initrd, "LabsGuest": k.LabsGuest(), "Runtime": string(k.Runtime), "QEMU": k.QEMU()}
	for _, name := range []string{"kata-blueprint.yaml", "kata-lab.toml"} {
		if err := render(name, filepath.Join(dir, "etc", name), values); err != nil {
			return err
		}
	}
	return errors.Join(
		compile.Static(ctx, module+"/test/e2e/kata/syslog", filepath.Join(dir, "bin", syslog)),
		link(filepath.Join(n.dir, bootstrap), filepath.Join(dir, "bin", bootstrap)),
	)
}

// prepareKata prepares the node for Kata as an administrator does: by bootstrap, from a containerd that has no handler of
// kata-vfio. Bootstrap ends with 3 if it has changed something. The lab's settings are a file of their own, which exists
// before, because bootstrap looks for virtiofsd where they say. The kernel loads the other modules that Kata needs, except for
// those whose device nodes systemd makes at boot (kmod static-nodes), which the machine lacks.
const prepareKata = `
mkdir -p ` + kata.Dir + ` /etc/containerd
mountpoint -q ` + kata.Dir + ` || mount --bind ` + kataDir + ` ` + kata.Dir + `
cp ` + Dir + `/` + containerdFile + ` /etc/containerd/config.toml
mkdir -p "$0"/config.d
cp ` + Dir + `/etc/kata-lab.toml "$0"/config.d/60-lab.toml
modprobe -a vhost_vsock vhost_net tun
` + bootstrap + ` apply -f ` + Dir + `/etc/kata-blueprint.yaml || [ $? -eq 3 ]
`

// installKata prepares the machine after each boot: what bootstrap writes in /etc is gone with the machine's memory.
func (n *Node) installKata(ctx context.Context) error {
	if n.config.Kata == nil {
		return nil
	}
	out, err := n.Command(ctx, "sh", "-ec", prepareKata, n.config.Kata.HandlerConfig()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("prepare the node for Kata: %w: %s", err, out)
	}
	n.report("%s", out)
	return n.StartService(syslog, syslog)
}

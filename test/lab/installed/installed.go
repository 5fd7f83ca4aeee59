// Package installed gives a lab machine the root of an installed node: what a node keeps over its boots, on the machine's disk, with
// GRUB's own tools. They don't know the machine's root, which is in memory. The kernel is started as that GRUB would: the harness reads
// what the tools have generated. Without a word there the IOMMU is off, as with kernels that are built so.
package installed

import (
	"context"
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/lab"
)

// Root is where the node's root is in the machine.
const Root = "/var/lib/node"

// enter makes the root at the first call, and mounts it. What only packages write, below /usr, is the machine's.
const enter = `
R=` + Root + `
if [ ! -d $R ]; then
	mkdir -p $R/boot/grub $R/proc $R/sys $R/dev $R/run $R/tmp $R/usr $R/var/lib
	cp -a /etc $R/etc
	for l in bin sbin lib lib64; do ln -s usr/$l $R/$l; done
	cp /usr/share/grub/default/grub $R/etc/default/grub
	: >$R/boot/vmlinuz-$(uname -r)
	: >$R/boot/initrd.img-$(uname -r)
	mkdir $R/etc/kata-vfio
	cat >$R/etc/kata-vfio/blueprint.yaml <<'END'
apiVersion: bootstrap.kata-vfio.dev/v1alpha1
kind: NodeBlueprint
name: lab
containers: {runtime: None}
END
fi
mount --bind $R $R
mount --rbind /usr $R/usr
mount -t proc proc $R/proc
mount --rbind /sys $R/sys
mount --rbind /dev $R/dev
cp /host/kata-vfio-bootstrap $R/run/
[ -e $R/boot/grub/grub.cfg ] || chroot $R update-grub 2>/dev/null
`

// Enter makes the root ready after each boot. The machine's share has kata-vfio-bootstrap.
func Enter(ctx context.Context, m *lab.Machine) error {
	if out, err := m.Command(ctx, "sh", "-ec", enter).CombinedOutput(); err != nil {
		return fmt.Errorf("enter the node's root: %w: %s", err, out)
	}
	return nil
}

// Line is a shell's command line that runs another one in the root, where kata-vfio-bootstrap is on the path. It must have no quote.
func Line(command string) string {
	return "PATH=/run:/usr/sbin:/usr/bin:/sbin:/bin chroot " + Root + " sh -c '" + command + "'"
}

// Arguments are those with which the node's GRUB starts its kernel, except for those of every system.
func Arguments(ctx context.Context, m *lab.Machine) ([]string, error) {
	out, err := m.Command(ctx, "sh", "-c", "grep -m1 vmlinuz-$(uname -r) "+Root+"/boot/grub/grub.cfg").Output()
	if err != nil {
		return nil, fmt.Errorf("read what GRUB has: %w", err)
	}
	var words []string
	for i, word := range strings.Fields(string(out)) {
		if i >= 2 && !strings.HasPrefix(word, "root=") && word != "ro" && word != "quiet" {
			words = append(words, word)
		}
	}
	return words, nil
}

// Reboot boots the machine as the node's GRUB would, and enters the root.
func Reboot(ctx context.Context, m *lab.Machine) error {
	arguments, err := Arguments(ctx, m)
	if err != nil {
		return err
	}
	m.Reconfigure(func(c *lab.Config) { c.KernelArgs = arguments })
	if err := m.Reboot(ctx); err != nil {
		return err
	}
	return Enter(ctx, m)
}

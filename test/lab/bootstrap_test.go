//go:build labhost

package lab_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/compile"
	"github.com/kata-vfio/kata-vfio/test/lab"
	"github.com/kata-vfio/kata-vfio/test/lab/labtest"
)

// bootstrapNode is a root of its own on the machine's disk: what a node keeps over its boots. What only packages write, below
// /usr, is the machine's. It is where GRUB's tools find a file system that they know.
const bootstrapNode = "/var/lib/node"

// enterNode makes the root at the first call, and mounts it.
const enterNode = `
R=` + bootstrapNode + `
if [ ! -d $R ]; then
	mkdir -p $R/boot/grub $R/proc $R/sys $R/dev $R/run $R/tmp $R/usr $R/var/lib
	cp -a /etc $R/etc
	for l in bin sbin lib lib64; do ln -s usr/$l $R/$l; done
	cp /usr/share/grub/default/grub $R/etc/default/grub
	: >$R/boot/vmlinuz-$(uname -r)
	: >$R/boot/initrd.img-$(uname -r)
fi
mount --bind $R $R
mount --rbind /usr $R/usr
mount -t proc proc $R/proc
mount --rbind /sys $R/sys
mount --rbind /dev $R/dev
cp /host/kata-vfio-bootstrap $R/run/
cat >$R/run/blueprint.yaml <<'END'
apiVersion: bootstrap.kata-vfio.dev/v1alpha1
kind: NodeBlueprint
name: lab
containers: {runtime: None}
END
`

// bootstrapped is a machine whose kernel is started as its GRUB would: the harness reads what the tools have generated. Without a
// word there its IOMMU is off, as with kernels that are built so.
type bootstrapped struct {
	*testing.T
	m *lab.Machine
}

// in runs a command in the node's root and returns what it says with its exit code.
func (b *bootstrapped) in(command string) (said, code string) {
	b.Helper()
	out := shell(b.T, b.m, "chroot "+bootstrapNode+" sh -c '"+command+"' 2>&1 && echo 0 || echo $?")
	said, code = "", out
	if i := strings.LastIndexByte(out, '\n'); i >= 0 {
		said, code = out[:i], out[i+1:]
	}
	b.Logf("node# %s (exit code %s)\n%s", command, code, said)
	return said, code
}

func (b *bootstrapped) want(code, command string) string {
	b.Helper()
	said, got := b.in(command)
	if got != code {
		b.Fatalf("%s: exit code %s, want %s", command, got, code)
	}
	return said
}

// arguments are those with which the node's GRUB starts its kernel.
func (b *bootstrapped) arguments() []string {
	b.Helper()
	const first = "grep -m1 vmlinuz-$(uname -r) " + bootstrapNode + "/boot/grub/grub.cfg"
	var words []string
	for _, word := range strings.Fields(shell(b.T, b.m, first))[2:] {
		if !strings.HasPrefix(word, "root=") && word != "ro" && word != "quiet" {
			words = append(words, word)
		}
	}
	return words
}

func (b *bootstrapped) reboot() {
	b.Helper()
	arguments := b.arguments()
	b.m.Reconfigure(func(c *lab.Config) { c.KernelArgs = arguments })
	if err := b.m.Reboot(b.Context()); err != nil {
		b.Fatal(err)
	}
	shell(b.T, b.m, enterNode)
}

// files are the node's own, with their modes and sums.
func (b *bootstrapped) files() string {
	b.Helper()
	return shell(b.T, b.m, "cd "+bootstrapNode+" && find etc boot var -xdev -not -path 'var/lib/kata-vfio*' -printf '%p %y %m %U:%G %l\\n' | sort && "+
		"find etc boot var -xdev -type f -not -path 'var/lib/kata-vfio*' | sort | xargs sha256sum")
}

func (b *bootstrapped) groups() string {
	b.Helper()
	return shell(b.T, b.m, "ls /sys/kernel/iommu_groups | wc -l")
}

// TestBootstrap makes a node fit whose kernel is started without its IOMMU, with GRUB's own tools: apply, reboot, verify, a claim
// that reaches its VM; and back: revert, reboot, as before to the byte.
func TestBootstrap(t *testing.T) {
	b := &bootstrapped{T: t, m: labtest.Start(t, lab.Config{WithoutIOMMU: true})}
	program := filepath.Join(b.m.Share(), "kata-vfio-bootstrap")
	if err := compile.Static(t.Context(), "github.com/kata-vfio/kata-vfio/cmd/kata-vfio-bootstrap", program); err != nil {
		t.Fatal(err)
	}
	shell(t, b.m, enterNode)
	b.want("0", "update-grub")
	before, without := b.files(), b.arguments()
	const command = "/run/kata-vfio-bootstrap "
	const blueprint = " -f /run/blueprint.yaml"
	if said := b.want("3", command+"plan"+blueprint); !strings.Contains(said, "intel_iommu=on") {
		t.Error("the plan does not switch the IOMMU on")
	}
	b.want("4", command+"apply"+blueprint)
	b.want("4", command+"apply"+blueprint)
	if got := strings.Join(b.arguments(), " "); !strings.Contains(got, "intel_iommu=on iommu=nopt") {
		t.Errorf("GRUB starts the kernel with %q", got)
	}
	if b.groups() != "0" {
		t.Fatal("the IOMMU is on before it was switched on")
	}
	b.reboot()
	if b.groups() == "0" {
		t.Fatal("the IOMMU is off after the reboot")
	}
	b.want("0", command+"verify"+blueprint)
	labtest.Run(t, b.m, "./tests/claims", "-test.run=^TestClaimReachesTheVM$")
	b.want("4", command+"revert")
	if after := b.files(); after != before {
		t.Errorf("after the way back the node has\n%s\nbefore it had\n%s", after, before)
	}
	if got := b.arguments(); strings.Join(got, " ") != strings.Join(without, " ") {
		t.Errorf("after the way back GRUB starts the kernel with %q, before with %q", got, without)
	}
	if testing.Short() {
		return // the arguments say what the boot would show
	}
	b.reboot()
	if b.groups() != "0" {
		t.Error("after the way back and a reboot the IOMMU is on")
	}
}

package bootstrap_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// onKernel is a Debian node on a scripted kernel's functions.
func onKernel(t *testing.T, k *sysfstest.Kernel) *node {
	t.Helper()
	n := &node{t: t, root: k.Root(), tools: &tools{root: k.Root()}}
	all := maps.Clone(files("Debian 12"))
	maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasPrefix(name, "proc/sys/kernel/random") })
	for name, content := range all {
		n.put(name, content)
	}
	n.put("proc/cmdline", "root=/dev/sda1 ro quiet\n")
	return n
}

// A function that the running node needs is refused, with what needs it, and nothing is planned for it.
func TestKeepOffTakesNothingThatTheNodeNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		add func(*sysfstest.Kernel) pci.Address
		// want is of a fatal problem, or of none.
		want string
	}{
		"the disk of the root file system": {func(k *sysfstest.Kernel) pci.Address {
			a := k.AddNVMe(0x41)
			k.AddMount("nvme0n1", "/")
			return a
		}, "block device nvme0n1 is mounted on /"},
		"the disk below a volume": {func(k *sysfstest.Kernel) pci.Address {
			a := k.AddNVMe(0x41)
			k.AddStack("nvme0n1", "dm-0")
			return a
		}, "block device nvme0n1 backs dm-0"},
		"swap": {func(k *sysfstest.Kernel) pci.Address {
			a := k.AddNVMe(0x41)
			k.AddSwap("nvme0n1")
			return a
		}, "is used as swap"},
		"the only NIC": {func(k *sysfstest.Kernel) pci.Address {
			a, _ := k.AddNIC(0x5e, 0)
			k.AddDefaultRoute("eth0", "10.0.0.5/24", "10.0.0.1")
			return a
		}, "netdev eth0 has address 10.0.0.5/24"},
		"a NIC of a bond": {func(k *sysfstest.Kernel) pci.Address {
			a, _ := k.AddNIC(0x5e, 0)
			k.SetMaster("eth0", "bond0")
			return a
		}, "netdev eth0 is part of bond0"},
		"a host bridge": {func(k *sysfstest.Kernel) pci.Address {
			a := pci.Address{Bus: 0x41}
			k.AddRootPort(0x41)
			k.Add(sysfstest.Function{Address: a, Vendor: 0x8086, Device: 0x09a2, Class: 0x060000})
			return a
		}, "it is a bridge (class 060000)"},
		"an IOMMU": {func(k *sysfstest.Kernel) pci.Address {
			a := pci.Address{Bus: 0x41, Function: 2}
			k.AddRootPort(0x41)
			k.Add(sysfstest.Function{Address: a, Vendor: 0x1022, Device: 0x14b5, Class: 0x080600})
			return a
		}, "it is an IOMMU"},
		"the GPU of the boot console": {func(k *sysfstest.Kernel) pci.Address {
			k.AddConsole()
			return addScreen(k)
		}, "which drives the boot console"},
		"a PF with VFs": {func(k *sysfstest.Kernel) pci.Address {
			a, _ := k.AddNIC(0x5e, 2)
			return a
		}, "it is a PF with VFs enabled (2)"},
		"a GPU that could drive the console, and does not": {addScreen, ""},
		"a GPU": {func(k *sysfstest.Kernel) pci.Address { return k.AddGPU(0x3b) }, ""},
		"a spare NIC": {func(k *sysfstest.Kernel) pci.Address {
			a, _ := k.AddNIC(0x5e, 0)
			return a
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			a := c.add(k)
			n := onKernel(t, k)
			b := parse(t, fmt.Sprintf("vfio: {keepOff: ['%s']}\n", a))
			p := n.plan(b)
			planned := false
			for _, f := range p.Files {
				planned = planned || strings.Contains(f.Diff, `KERNEL=="`+a.String()+`", ATTR{driver_override}="vfio-pci"`)
			}
			for _, s := range p.Settings {
				planned = planned || strings.Contains(s.Path, a.String())
			}
			if c.want == "" {
				if !planned || len(p.Refused()) > 0 {
					t.Errorf("planned %t, problems %+v", planned, p.Problems)
				}
				return
			}
			_, err := n.engine().Apply(t.Context(), b, "")
			refused, ok := errors.AsType[*bootstrap.RefusedError](err)
			if !ok || planned || !strings.Contains(refused.Error(), "vfio.keepOff names "+a.String()) || !strings.Contains(refused.Error(), c.want) ||
				!strings.Contains(refused.Error(), "remove "+a.String()+" from vfio.keepOff") {
				t.Errorf("planned %t, error %v", planned, err)
			}
		})
	}
}

// addScreen adds the GPU on which the firmware shows its messages.
func addScreen(k *sysfstest.Kernel) pci.Address {
	k.AddRootPort(0x3b)
	gpu := sysfstest.GPU(pci.Address{Bus: 0x3b})
	gpu.Class, gpu.BootVGA = 0x030000, true
	k.Add(gpu)
	return gpu.Address
}

// With the blueprint's permission the node gives its screen up, and nothing else that it needs.
func TestAllowBootConsolePermitsTheConsoleOnly(t *testing.T) {
	for name, c := range map[string]struct {
		add   func(*sysfstest.Kernel) pci.Address
		fatal bool
		want  string
	}{
		"the boot console": {addScreen, false, "which drives the boot console"},
		"a mounted disk": {func(k *sysfstest.Kernel) pci.Address {
			a := k.AddNVMe(0x41)
			k.AddMount("nvme0n1", "/")
			return a
		}, true, "block device nvme0n1 is mounted on /"},
	} {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			k.AddConsole()
			a := c.add(k)
			p := onKernel(t, k).plan(parse(t, fmt.Sprintf("vfio: {keepOff: ['%s'], allowBootConsole: true}\n", a)))
			planned := slices.ContainsFunc(p.Settings, func(s bootstrap.SettingPlan) bool { return strings.Contains(s.Path, a.String()) })
			i := slices.IndexFunc(p.Problems, func(p state.Problem) bool { return strings.Contains(p.Text, c.want) })
			if i < 0 || p.Problems[i].Fatal != c.fatal || planned == c.fatal {
				t.Errorf("planned %t, problems %+v", planned, p.Problems)
			}
		})
	}
}

// answer is the kernel's answer for every function's disks.
type answer struct {
	node string
	err  error
}

func (a answer) Claimed(context.Context, *device.Function) (string, error) { return a.node, a.err }

// What no mount and no holder in sysfs shows is asked of the kernel, or read from the tree. What stays unknown is refused.
func TestKeepOffTakesNoDiskThatOnlyTheKernelKnows(t *testing.T) {
	const used, unknown = "and the next boot would come up without it", "it is unknown whether the node uses its disks: "
	for name, c := range map[string]struct {
		disks bootstrap.Disks
		files map[string]string
		image bool
		// want are words of the refusal; none: the disk is taken.
		want []string
	}{
		"a disk that the kernel calls free":        {disks: answer{}},
		"a disk that is opened exclusively":        {disks: answer{node: "/dev/nvme0n1"}, want: []string{"/dev/nvme0n1 is opened exclusively", used}},
		"a kernel that does not answer":            {disks: answer{err: errors.New("open /dev/nvme0n1: permission denied")}, want: []string{unknown, "permission denied"}},
		"free for the kernel, though ZFS is there": {disks: answer{}, files: map[string]string{"etc/zfs/zpool.cache": "x"}},
		"a copy of a node without other signs":     {},
		"a copy, the disk in a btrfs":              {files: map[string]string{"sys/fs/btrfs/0000-1/devices/nvme0n1": "", "sys/fs/btrfs/features/raid1c34": ""}, want: []string{"block device nvme0n1 is part of a btrfs", used}},
		"a copy, a partition in a btrfs":           {files: map[string]string{"sys/fs/btrfs/0000-1/devices/nvme0n1p1": ""}, want: []string{"block device nvme0n1p1 is part of a btrfs"}},
		"a copy, another disk in a btrfs":          {files: map[string]string{"sys/fs/btrfs/0000-1/devices/nvme0n11": ""}},
		"a copy, ZFS loaded":                       {files: map[string]string{"sys/module/zfs/version": "2.3\n"}, want: []string{unknown, "/sys/module/zfs"}},
		"an image with the node's sysfs, ZFS used": {image: true, files: map[string]string{"etc/zfs/zpool.cache": "x"}, want: []string{unknown, "/etc/zfs/zpool.cache"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := sysfstest.New(t)
			a := k.AddNVMe(0x41)
			n := onKernel(t, k)
			n.disks, n.image = c.disks, c.image
			for file, content := range c.files {
				n.put(file, content)
			}
			b := parse(t, fmt.Sprintf("vfio: {keepOff: ['%s']}\n", a))
			said := ""
			for _, p := range n.plan(b).Refused() {
				said += p.Text + "\n"
			}
			for _, words := range c.want {
				if !strings.Contains(said, words) {
					t.Errorf("%q is missing in %q", words, said)
				}
			}
			if taken := len(c.want) == 0; taken != (said == "") {
				t.Errorf("refused with %q", said)
			}
		})
	}
}

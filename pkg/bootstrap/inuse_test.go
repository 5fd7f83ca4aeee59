package bootstrap_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
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

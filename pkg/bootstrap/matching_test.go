package bootstrap_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// keptOff returns the addresses whose driver override a plan writes.
func keptOff(p *bootstrap.Plan) []string {
	found := []string{}
	for _, s := range p.Settings {
		if address, ok := strings.CutSuffix(strings.TrimPrefix(s.Path, "sys/bus/pci/devices/"), "/driver_override"); ok {
			found = append(found, address)
		}
	}
	return found
}

// board is a node with two GPUs of NVIDIA, one of AMD that shows the boot console, a mounted disk and a spare one, and two NICs.
func board(t *testing.T) *sysfstest.Kernel {
	k := sysfstest.New(t)
	k.AddConsole()
	k.AddGPU(0x17)
	k.AddGPU(0x18)
	k.AddRootPort(0x3b)
	screen := sysfstest.GPU(pci.Address{Bus: 0x3b})
	screen.Vendor, screen.Device, screen.Class, screen.BootVGA = 0x1002, 0x74a1, 0x030000, true
	k.Add(screen)
	k.AddNVMe(0x41)
	k.AddNVMe(0x42)
	k.AddMount("nvme0n1", "/")
	k.AddNIC(0x5e, 0)
	k.AddNIC(0x5f, 2)
	return k
}

// A match selects what the node has and does not use. What it leaves to the node is said, and changes nothing else.
func TestKeepOffMatching(t *testing.T) {
	for name, c := range map[string]struct {
		text     string
		want     []string
		warnings []string
	}{
		"GPUs of a vendor": {"vfio: {keepOffMatching: [{types: [gpu], vendors: ['10de']}]}\n", []string{"0000:17:00.0", "0000:18:00.0"}, nil},
		"other boards": {
			"vfio: {keepOffMatching: [{vendors: ['8086'], devices: ['56c0']}, {addresses: ['0000:aa:00.0', '0000:18:00.0']}]}\n", []string{"0000:18:00.0"}, nil,
		},
		"what an address names, too": {"vfio: {keepOff: ['0000:18:00.0'], keepOffMatching: [{types: [gpu], vendors: ['10de']}]}\n", []string{"0000:18:00.0", "0000:17:00.0"}, nil},
		"the boot console": {
			"vfio: {keepOffMatching: [{addresses: ['0000:17:00.0']}, {types: [gpu]}]}\n",
			[]string{"0000:17:00.0", "0000:18:00.0"},
			[]string{"vfio.keepOffMatching[1] matches 0000:3b:00.0, which drives the boot console"},
		},
		"the boot console, permitted": {
			"vfio: {keepOffMatching: [{types: [gpu], vendors: ['1002']}], allowBootConsole: true}\n",
			[]string{"0000:3b:00.0"},
			[]string{"vfio.keepOffMatching[0] matches 0000:3b:00.0, which drives the boot console"},
		},
		"disks": {
			"vfio: {keepOffMatching: [{types: [nvme]}]}\n",
			[]string{"0000:42:00.0"},
			[]string{"vfio.keepOffMatching[0] matches 0000:41:00.0, but the node uses it: block device nvme0n1 is mounted on /"},
		},
		"PFs": {
			"vfio: {keepOffMatching: [{types: [pf]}]}\nvirtualFunctions: [{pf: '0000:5e:00.0', count: 0}]\n",
			[]string{},
			[]string{"vfio.keepOffMatching[0] matches 0000:5f:00.0, but it is a PF with VFs enabled (2)"},
		},
		"a bridge by its address": {
			"vfio: {keepOffMatching: [{addresses: ['0000:00:02.0']}, {classes: ['06']}]}\n", []string{}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := onKernel(t, board(t)).plan(parse(t, c.text))
			if diff := cmp.Diff(c.want, keptOff(p)); diff != "" {
				t.Errorf("kept off (-want +got):\n%s\nproblems %+v", diff, p.Problems)
			}
			if len(p.Refused()) > 0 {
				t.Errorf("a match refuses the node: %+v", p.Refused())
			}
			said := slices.DeleteFunc(slices.Clone(p.Problems), func(p state.Problem) bool { return !strings.Contains(p.Text, "vfio.keepOff") })
			if len(said) != len(c.warnings) {
				t.Errorf("problems %+v, want %q", said, c.warnings)
			}
			for _, w := range c.warnings {
				if !slices.ContainsFunc(said, func(p state.Problem) bool { return strings.Contains(p.Text, w) && p.Fix != "" }) {
					t.Errorf("problems %+v, want %q", said, w)
				}
			}
		})
	}
}

// A function that matches later is drift, and one that is gone is taken back.
func TestKeepOffMatchingFollowsTheNode(t *testing.T) {
	k := sysfstest.New(t)
	k.AddGPU(0x17)
	n := onKernel(t, k)
	b := parse(t, "vfio: {keepOffMatching: [{types: [gpu]}]}\n")
	if _, err := n.engine().Apply(t.Context(), b, ""); err != nil {
		t.Fatal(err)
	}
	k.AddGPU(0x18)
	p := n.plan(b)
	i := slices.IndexFunc(p.Files, func(f bootstrap.FilePlan) bool { return f.Path == "etc/udev/rules.d/10-kata-vfio.rules" })
	if i < 0 || !strings.Contains(p.Files[i].Diff, `+ACTION=="add", SUBSYSTEM=="pci", KERNEL=="0000:18:00.0"`) {
		t.Errorf("the files are %+v; want a rule for the new GPU", p.Files)
	}
}

// An image has no functions: that is said, and the rest is configured.
func TestKeepOffMatchingInAnImage(t *testing.T) {
	p := newNode(t, files("Debian 12")).plan(parse(t, "vfio: {keepOffMatching: [{types: [gpu]}]}\n"))
	i := slices.IndexFunc(p.Problems, func(p state.Problem) bool {
		return strings.Contains(p.Text, "vfio.keepOffMatching selects among a node's functions")
	})
	if i < 0 || p.Problems[i].Fatal || len(p.Files) == 0 {
		t.Errorf("problems %+v, %d files; want a warning, and files", p.Problems, len(p.Files))
	}
}

package facts_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// TestALargeGroupIsReadOnce: the facts that the functions of a group have in common are found once, and not for each function.
func TestALargeGroupIsReadOnce(t *testing.T) {
	fsys, err := sysfs.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fsys.Close() }()
	forEach := func(members int) float64 {
		s := &device.Snapshot{}
		g := device.Group{Number: 7, Type: "DMA"}
		for i := range members {
			f := device.Function{Address: pci.Address{Bus: uint8(i >> 5), Device: uint8(i & 31)}, Group: new(7), Driver: "vfio-pci"}
			s.Functions, g.Members = append(s.Functions, f), append(g.Members, f.Address)
		}
		s.Groups = []device.Group{g}
		return testing.AllocsPerRun(1, func() {
			n := facts.New(fsys, s)
			for i := range s.Functions {
				n.Judgment(&s.Functions[i])
			}
		}) / float64(members)
	}
	if few, many := forEach(16), forEach(512); many > 2*few {
		t.Errorf("%.0f allocations for each of 512 functions of a group, and %.0f for each of 16; want about as many", many, few)
	}
}

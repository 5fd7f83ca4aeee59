package check_test

import (
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// neighbors are two claims that no two tenants may have.
type neighbors struct {
	rule  string
	board func(testing.TB) *board.Tree
	// devices returns the devices of both claims. It also plants what else the rule needs.
	devices func(*board.Tree) (first, second []pci.Address)
	// ofOne is what the rule says if both claims are one tenant's, and ofTwo if they are not.
	ofOne, ofTwo finding.State
}

// faults returns claims of one tenant in two namespaces, and claims of two tenants that had one namespace, because it was deleted and
// created again.
func (b neighbors) faults() []fault {
	given := func(namespace, id string) func(*board.Tree) {
		return func(t *board.Tree) {
			t.Delete("var/lib/kata-vfio/journal")
			first, second := b.devices(t)
			t.ConfigureVFs(t.Give("t1", "a", first...))
			t.ConfigureVFs(t.Give(namespace, "b", second...))
			identify(t, "t1", "a", blue)
			identify(t, namespace, "b", id)
		}
	}
	return []fault{
		{rule: b.rule, about: "one tenant with two namespaces", board: b.board, state: b.ofOne, plant: given("t2", blue)},
		{rule: b.rule, about: "a namespace that was created again", board: b.board, state: b.ofTwo, plant: given("t1", red)},
	}
}

func neighborFaults() []fault {
	named := func(first, second []string, plants ...func(*board.Tree)) func(*board.Tree) ([]pci.Address, []pci.Address) {
		return func(t *board.Tree) ([]pci.Address, []pci.Address) {
			all(plants...)(t)
			at := func(names []string) (all []pci.Address) {
				for _, name := range names {
					all = append(all, t.Devices[name])
				}
				return all
			}
			return at(first), at(second)
		}
	}
	divided := func(t *board.Tree) ([]pci.Address, []pci.Address) {
		vf := addVGPU(t)
		return []pci.Address{vf}, t.VFsBeside(vf)[1:2]
	}
	hive := func(t *board.Tree) { t.AddHive("4711", 0x81, 0x91) }
	mode0 := func(t *board.Tree) { t.Put(fabricConfig, "FABRIC_MODE=0\n") }
	unlimited := func(t *board.Tree) {
		t.ChangeVF(t.Devices["nic0"], 0, func(s *device.VFSettings) { s.Rate = &device.TxRate{} })
	}
	left, right := []string{"gpu0", "gpu1"}, []string{"gpu2", "gpu3"}
	vf0, vf1 := []string{"nic0/vf0"}, []string{"nic0/vf1"}
	const pass, none = finding.Pass, finding.NotApplicable
	return slices.Concat(
		neighbors{"GPU-001", board.Fabric, named(left, right, mode0), pass, finding.Fail}.faults(),
		neighbors{"GPU-002", board.Fabric, named(left, right), pass, finding.Manual}.faults(),
		neighbors{"GPU-004", board.Fabric, named(left, append(right, "nvswitch0")), pass, finding.Fail}.faults(),
		neighbors{"GPU-006", board.Server, named([]string{"xgmi0"}, []string{"xgmi1"}, hive), pass, finding.Fail}.faults(),
		neighbors{"GPU-009", board.Server, divided, pass, finding.Fail}.faults(),
		neighbors{"NIC-005", board.Server, named(vf0, vf1, sameVLAN), none, finding.Fail}.faults(),
		neighbors{"NIC-009", board.Server, named(vf0, vf1, unlimited), none, finding.Fail}.faults(),
		neighbors{"IOM-017", shared, named([]string{"gpu"}, []string{"audio"}), pass, finding.Fail}.faults(),
		neighbors{"RST-003", board.Server, named([]string{"gpu1"}, []string{"gpu1/companion0"}, func(t *board.Tree) { setMethods(t, "gpu1", "") }), pass, finding.Fail}.faults(),
	)
}

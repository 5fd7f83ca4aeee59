package bootstrap_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// boots starts the kernel with a line that is not the boot loader's.
func (n *node) boots(line string) {
	n.t.Helper()
	n.put("proc/cmdline", line)
	n.put("proc/sys/kernel/random/boot_id", n.read("proc/sys/kernel/random/boot_id")+"1")
}

func problem(p *bootstrap.Plan, text string) bool {
	return slices.ContainsFunc(p.Problems, func(p state.Problem) bool { return strings.Contains(p.Text, text) })
}

// A reboot that does not bring what it should is not asked for again and again: what did not come is named.
func TestBootProblemIfSettingIsMissing(t *testing.T) {
	n := fit(t)
	b := blueprint.Default()
	n.apply(b)
	n.expect(n.plan(b), bootstrap.RebootNeeded, "after apply")
	n.boots("root=/dev/nfs ro\n")
	p := n.plan(b)
	n.expect(p, bootstrap.Impossible, "after the reboot")
	if !p.NotBrought || !problem(p, "its kernel was started without intel_iommu=on iommu=nopt") {
		t.Errorf("problems %+v", p.Problems)
	}
	if r := n.record(p.Applied); r.Outcome != "can't be made fit" || kinds(r)["/proc/cmdline"] != "setting" {
		t.Errorf("record %+v", r)
	}

	r := n.apply(b) // which has nothing to do, and refuses nothing
	n.expect(r.Plan, bootstrap.Impossible, "of another apply")
	n.apply(parse(t, "kernel: {arguments: [efi=disable_early_pci_dma]}\n"))
	n.expect(n.plan(parse(t, "kernel: {arguments: [efi=disable_early_pci_dma]}\n")), bootstrap.RebootNeeded, "with other files another boot may bring it")
	n.reboot()
	n.expect(n.plan(parse(t, "kernel: {arguments: [efi=disable_early_pci_dma]}\n")), bootstrap.Fit, "once it has")
}

// What was added to the blueprint after the last boot has still its own boot to come.
func TestBootBeforeTheChangeDoesNotCount(t *testing.T) {
	n := fit(t)
	n.put("sys/bus/pci/devices/0000:5e:00.0/uevent", "DRIVER=mlx5_core\n")
	n.put("sys/bus/pci/devices/0000:5e:00.0/sriov_totalvfs", "64\n")
	n.put("sys/bus/pci/devices/0000:5e:00.0/sriov_numvfs", "0\n")
	n.put("sys/bus/pci/devices/0000:5e:00.0/sriov_drivers_autoprobe", "0\n")
	n.apply(blueprint.Default())
	n.reboot()
	b := parse(t, "virtualFunctions: [{pf: '0000:5e:00.0', count: 8}]\n")
	n.apply(b)
	n.expect(n.plan(b), bootstrap.RebootNeeded, "after apply")
	n.reboot()
	p := n.plan(b)
	n.expect(p, bootstrap.Impossible, "when the PF has not given them")
	if !problem(p, "sriov_numvfs is 0, but must be 8") {
		t.Errorf("problems %+v", p.Problems)
	}
	n.put("sys/bus/pci/devices/0000:5e:00.0/sriov_numvfs", "8\n")
	n.expect(n.plan(b), bootstrap.Fit, "when it has")
}

// An argument that only the running kernel has makes no node fit.
func TestBootReadsRunningKernelOnly(t *testing.T) {
	for _, line := range []string{"ro intel_iommu=on iommu=nopt intremap=off", "ro intel_iommu=on iommu=nopt intel_iommu=off", "ro intel_iommu=on iommu=nopt pcie_acs_override=downstream"} {
		n := fit(t)
		n.apply(blueprint.Default())
		n.boots(line + "\n")
		p := n.plan(blueprint.Default())
		n.expect(p, bootstrap.RebootNeeded, line)
		if r := n.record(p.Applied); len(r.Differences) == 0 || r.Differences[0].What != "reboot" {
			t.Errorf("record %+v", r)
		}
		n.apply(blueprint.Default())
		n.expect(n.plan(blueprint.Default()), bootstrap.RebootNeeded, line+", after apply")
		n.boots(line + "\n")
		n.expect(n.plan(blueprint.Default()), bootstrap.Impossible, line+", after a reboot")
		n.reboot()
		n.expect(n.plan(blueprint.Default()), bootstrap.Fit, "without")
	}
}

// The blueprint that was applied last is the one to go by, also where nothing had to be done for it.
func TestBlueprintWithNothingToDoIsKept(t *testing.T) {
	n := fit(t)
	n.put("proc/cmdline", "ro intel_iommu=on iommu=nopt\n")
	n.apply(blueprint.Default())
	n.reboot()
	const text = "apiVersion: bootstrap.kata-vfio.dev/v1alpha1\nkind: NodeBlueprint\nversions: {kernel: {minimum: '6.6'}}\n"
	b, err := blueprint.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := n.engine().Apply(t.Context(), b, text)
	if err != nil || len(r.Changed) > 0 {
		t.Fatalf("changed %v, %v", r.Changed, err)
	}
	if status, err := n.engine().Status(); err != nil || status.Blueprint != text {
		t.Errorf("status %+v, %v", status, err)
	}
	journal := n.read("var/lib/kata-vfio/bootstrap/journal.json")
	if _, err := n.engine().Apply(t.Context(), b, text); err != nil || n.read("var/lib/kata-vfio/bootstrap/journal.json") != journal {
		t.Errorf("another apply of it writes the journal anew: %v", err)
	}
	n.revert()
	if status, err := n.engine().Status(); err != nil || status.Blueprint != "" || !status.Applied.IsZero() {
		t.Errorf("after revert %+v, %v", status, err)
	}
}

// A look that is overtaken by a change leaves no record, and one that fails leaves that.
func TestOutdatedLookLeavesNoRecord(t *testing.T) {
	n := fit(t)
	e := n.engine()
	p, err := e.Plan(t.Context(), blueprint.Default())
	if err != nil {
		t.Fatal(err)
	}
	n.apply(blueprint.Default())
	if err := e.Record(t.Context(), p); err == nil || !strings.Contains(err.Error(), "run verify again") {
		t.Errorf("error %v", err)
	}
	if _, err := state.ReadRecord(e.Tree); err == nil {
		t.Error("there is a record")
	}
	n.put("var/lib/kata-vfio/bootstrap/.verified.json4711", "half a")
	if err := e.RecordUnknown(t.Context(), errors.New("no")); err != nil {
		t.Fatal(err)
	}
	r, err := state.ReadRecord(e.Tree)
	if err != nil || r.Outcome != state.Unknown || len(r.Differences) != 1 {
		t.Errorf("record %+v, %v", r, err)
	}
	names, err := e.Tree.ReadDir("var/lib/kata-vfio/bootstrap")
	if err != nil || slices.Contains(names, ".verified.json4711") {
		t.Errorf("left %v, %v", names, err)
	}
}

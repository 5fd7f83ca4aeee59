package blueprint_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

const head = "apiVersion: bootstrap.kata-vfio.dev/v1alpha1\nkind: NodeBlueprint\n"

func TestBlueprintIsReadWholeWithItsDefaults(t *testing.T) {
	got, err := blueprint.Parse([]byte(head + `
name: gpu-pool
kernel:
  arguments: [efi=disable_early_pci_dma]
  hugePages:
  - {size: 1Gi, count: 64, node: 0}
  - {size: 1Gi, count: 64, node: 1}
  earlyBinding: true
vfio:
  keepOff: ["0000:3b:00.0"]
  keepOffMatching: [{types: [gpu], vendors: ["1002"]}]
  allowBootConsole: true
virtualFunctions:
- {pf: ens1f0np0, count: 8}
network: {leaveVFsAlone: false}
containers:
  runtime: CRI-O
versions:
  kernel: {minimum: "6.6"}
labels: {}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &blueprint.Blueprint{
		APIVersion: blueprint.APIVersion, Kind: blueprint.Kind, Name: "gpu-pool",
		Kernel: blueprint.Kernel{
			IOMMU: blueprint.IOMMUOn, Arguments: []string{"efi=disable_early_pci_dma"}, EarlyBinding: true,
			HugePages: []blueprint.HugePages{{Size: "1Gi", Count: 64, Node: new(0)}, {Size: "1Gi", Count: 64, Node: new(1)}},
		},
		VFIO:             blueprint.VFIO{KeepOff: []pci.Address{{Bus: 0x3b}}, KeepOffMatching: []v1alpha1.DeviceMatch{{Types: []string{"gpu"}, Vendors: []pci.ID{0x1002}}}, AllowBootConsole: true},
		VirtualFunctions: []v1alpha1.VFRule{{PF: "ens1f0np0", Count: new(8)}},
		Network:          blueprint.Network{LeaveVFsAlone: new(false)},
		Containers:       blueprint.Containers{Runtime: blueprint.RuntimeCRIO},
		Versions:         blueprint.Versions{Kernel: blueprint.Version{Minimum: "6.6"}},
		Labels:           map[string]string{},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("blueprint (-want +got):\n%s", diff)
	}
}

func TestArgumentThatSwitchesMoreOfACSOnIsAllowed(t *testing.T) {
	if _, err := blueprint.Parse([]byte(head + "kernel: {arguments: ['pci=config_acs=xxxxx1x@10de:2330']}\n")); err != nil {
		t.Error(err)
	}
}

func TestShortBlueprintIsTheDefault(t *testing.T) {
	got, err := blueprint.Parse([]byte(head))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(blueprint.Default(), got); diff != "" {
		t.Errorf("blueprint (-want +got):\n%s", diff)
	}
}

func TestBlueprintErrorsNameTheLine(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "the document is empty"},
		{"two documents", head + "---\na: 1\n", "more than one YAML document"},
		{"not YAML", head + "kernel: {", "line"},
		{"another version", "apiVersion: v1\nkind: NodeBlueprint\n", "line 1: apiVersion: want bootstrap"},
		{"another kind", "apiVersion: bootstrap.kata-vfio.dev/v1alpha1\n\nkind: Node\n", "line 3: kind: want NodeBlueprint"},
		{"no kind", "apiVersion: bootstrap.kata-vfio.dev/v1alpha1\n", "kind: want NodeBlueprint"},
		{"unknown field", head + "kernel:\n  iomu: On\n", "line 4: kernel.iomu: no such field; the fields here are iommu, "},
		{"field twice", head + "kernel: {}\nkernel: {}\n", "line 4: kernel: given twice"},
		{"field of another type's", head + "containers: {runtyme: Auto}\n", "containers.runtyme: no such field"},
		{"ids", head + "vfio: {ids: [\"10de:2330\"]}\n", "vfio.ids: no such field: IDs match every function"},
		{"a text for a number", head + "kernel:\n  hugePages:\n  - size: 1Gi\n    count: many\n", "line 6: kernel.hugePages[0].count: `many` is not a whole number"},
		{"a list for a text", head + "name: [a]\n", "line 3: name: is not a string"},
		{"a text for a list", head + "virtualFunctions: all\n", "want a list"},
		{"an alias", head + "name: &n a\nkernel:\n  iommu: *n\n", "aliases are not supported"},
		{"unknown mode", head + "kernel:\n  iommu: pt\n", `line 4: kernel.iommu: "pt" is not one of On, Passthrough`},
		{"another field's argument", head + "kernel: {arguments: [iommu=pt]}\n", "is set by kernel.iommu"},
		{"another field's argument, spelled otherwise", head + "kernel: {arguments: [vfio_pci.ids=1]}\n", "is set by vfio.keepOff"},
		{"dangerous argument", head + "kernel: {arguments: [intremap=off]}\n", "weakens the isolation of VMs"},
		{"a shell's argument", head + "kernel: {arguments: ['a$(b)']}\n", "is not a kernel argument"},
		{"two arguments in one", head + "kernel: {arguments: ['a b']}\n", "is not a kernel argument"},
		{"size", head + "kernel: {hugePages: [{size: 4Mi, count: 1}]}\n", `"4Mi" is not one of`},
		{"pages twice", head + "kernel: {hugePages: [{size: 2Mi, count: 1}, {size: 2Mi, count: 1, node: 0}]}\n", "duplicate size"},
		{"an argument that believes in ACS", head + "kernel: {arguments: ['pcie_acs_override=downstream']}\n", "weakens the isolation of VMs"},
		{"an argument that switches redirection off", head + "kernel: {arguments: ['pci=noats,disable_acs_redir=0000:00:1c.0']}\n", "switches redirection off for 0000:00:1c.0"},
		{"an argument that clears ACS bits", head + "kernel: {arguments: ['pci=config_acs=0000000@10de:2330']}\n", "switches "},
		{"null for a function", head + "vfio:\n  keepOff:\n  - ~\n", "line 5: vfio.keepOff[0]: null is not an item"},
		{"pages of a device twice", head + "kernel: {hugePages: [{size: 2Mi, count: 1, device: '0000:3b:00.0'}, {size: 2Mi, count: 1, device: '0000:3b:00.0'}]}\n", "duplicate size"},
		{"pages of a device, and everywhere", head + "kernel: {hugePages: [{size: 2Mi, count: 1, device: '0000:3b:00.0'}, {size: 2Mi, count: 1}]}\n", "duplicate size"},
		{"pages of a device and a node", head + "kernel: {hugePages: [{size: 2Mi, count: 1, node: 0, device: '0000:3b:00.0'}]}\n", "kernel.hugePages[0].node: the NUMA node is that of device 0000:3b:00.0"},
		{"null for huge pages", head + "kernel: {hugePages: [null]}\n", "kernel.hugePages[0]: null is not an item"},
		{"unknown runtime", head + "containers:\n  runtime: Podman\n", `line 4: containers.runtime: "Podman" is not one of Auto, containerd, CRI-O, None`},
		{"unknown Kata", head + "containers: {kata: c}\n", `containers.kata: "c" is not one of go, rs`},
		{"unknown base", head + "containers: {base: FPGA}\n", `containers.base: "FPGA" is not one of GPU, NIC`},
		{"hot plug of the Rust runtime", head + "containers: {kata: rs, hotPlug: true}\n", "containers.hotPlug: Kata's Rust runtime has no such setting"},
		{"hot plug with the handler for NICs", head + "containers: {nicHandler: true, hotPlug: true}\n", "containers.nicHandler: the handler kata-vfio plugs devices when the VM starts"},
		{"early binding of nothing", head + "kernel: {earlyBinding: true}\n", "has no effect without functions"},
		{"a console for nothing", head + "vfio: {allowBootConsole: true}\n", "vfio.allowBootConsole: has no effect without functions"},
		{"a match of nothing", head + "vfio:\n  keepOffMatching:\n  - {}\n", "line 5: vfio.keepOffMatching[0]: empty; set at least one of types"},
		{"a match of an unknown type", head + "vfio: {keepOffMatching: [{types: [gpus]}]}\n", `vfio.keepOffMatching[0].types[0]: "gpus" is not one of gpu, pf`},
		{"a match of VFs", head + "vfio: {keepOffMatching: [{types: [gpu, vf]}]}\n", "vfio.keepOffMatching[0].types[1]: VFs appear after boot"},
		{"a match of a PF's VFs", head + "vfio: {keepOffMatching: [{pfNames: [eth0]}]}\n", "vfio.keepOffMatching[0].pfNames: VFs appear after boot"},
		{"resets of a type", head + "vfio:\n  resetMethods:\n  - {match: {types: [gpu]}, methods: [bus]}\n", "line 5: vfio.resetMethods[0].match: has types or pfNames, which udev does not know"},
		{"resets of a vendor's functions", head + "vfio: {resetMethods: [{match: {vendors: ['10de']}, methods: [bus]}]}\n", "vfio.resetMethods[0].match: matches functions of all kinds"},
		{"resets of a class", head + "vfio: {resetMethods: [{match: {classes: ['03']}, methods: [bus]}]}\n", "vfio.resetMethods[0].match: matches functions of all kinds"},
		{"resets of nothing", head + "vfio: {resetMethods: [{methods: [bus]}]}\n", "vfio.resetMethods[0].match: empty"},
		{"resets for the shell", head + "vfio: {resetMethods: [{match: {vendors: ['10de'], classes: ['03\"']}, methods: [bus]}]}\n", "vfio.resetMethods[0].match.classes[0]"},
		{"no reset method", head + "vfio: {resetMethods: [{match: {addresses: ['0000:3b:00.0']}, methods: []}]}\n", "vfio.resetMethods[0].methods: empty"},
		{"unknown reset method", head + "vfio: {resetMethods: [{match: {addresses: ['0000:3b:00.0']}, methods: [default]}]}\n", `vfio.resetMethods[0].methods[0]: "default" is not one of device_specific, acpi`},
		{"reset method twice", head + "vfio: {resetMethods: [{match: {addresses: ['0000:3b:00.0']}, methods: [bus, bus]}]}\n", "duplicate method bus"},
		{"bad address", head + "vfio: {keepOff: [3b]}\n", "vfio.keepOff[0]"},
		{"PF of virtualFunctions", head + "vfio: {keepOff: ['0000:5e:00.0']}\nvirtualFunctions: [{pf: '0000:5e:00.0', count: 4}]\n", "0000:5e:00.0 is a PF of virtualFunctions"},
		{"address twice", head + "vfio: {keepOff: ['0000:3b:00.0', '0000:3b:00.0']}\n", "duplicate address"},
		{"VFs without a count", head + "virtualFunctions:\n- pf: eth0\n", "line 4: virtualFunctions[0].count: missing"},
		{"partitions without their setting", head + "fabric:\n  activate: [0]\n", "line 4: fabric.activate: has no effect without fabric.partitions"},
		{"no number of a partition", head + "fabric: {partitions: true, activate: [64]}\n", "fabric.activate[0]: 64 is not the number of a partition"},
		{"partition twice", head + "fabric: {partitions: true, activate: [7, 7]}\n", "fabric.activate[1]: duplicate partition 7"},
		{"two versions", head + "versions: {kata: {exact: '4.0', minimum: '4.0'}}\n", "use either exact or minimum"},
		{"no version", head + "versions: {kata: {minimum: new}}\n", "is not a version"},
		{"a label for the shell", head + "labels: {a: '$(b)'}\n", "is not a valid label"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := blueprint.Parse([]byte(c.text))
			if invalid, ok := errors.AsType[*blueprint.InvalidError](err); !ok || !strings.Contains(invalid.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestREADMEsExampleIsAGoodBlueprint(t *testing.T) {
	readme, err := os.ReadFile("../../../cmd/kata-vfio-bootstrap/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(string(readme), "```") {
		text, ok := strings.CutPrefix(block, "yaml\n")
		if !ok || !strings.Contains(text, "kind: NodeBlueprint") {
			continue
		}
		if _, err := blueprint.Parse([]byte(text)); err != nil {
			t.Error(err)
		}
		return
	}
	t.Error("cmd/kata-vfio-bootstrap/README.md has no blueprint")
}

func TestVersionsAreComparedByTheirNumbers(t *testing.T) {
	for _, c := range []struct {
		pin  blueprint.Version
		have string
		want bool
	}{
		{blueprint.Version{Minimum: "6.6"}, "6.12.9-amd64", true},
		{blueprint.Version{Minimum: "6.6"}, "6.6.0", true},
		{blueprint.Version{Minimum: "6.6"}, "5.15.0-91-generic", false},
		{blueprint.Version{Minimum: "v2.2"}, "v2.10.0", true},
		{blueprint.Version{Minimum: "2.2.1"}, "2.2", false},
		{blueprint.Version{Exact: "2.4.2"}, "v2.4.2", true},
		{blueprint.Version{Exact: "2.4.2"}, "2.4.20", false},
		{blueprint.Version{Minimum: "2.2.0"}, "2.2", true},
		{blueprint.Version{Minimum: "2.0.0"}, "2", true},
		{blueprint.Version{Minimum: "2.0.1"}, "2.0", false},
		{blueprint.Version{Minimum: "1"}, "unknown", false},
		{blueprint.Version{Minimum: "0.0"}, "unknown", false},
	} {
		if got := c.pin.Admits(c.have); got != c.want {
			t.Errorf("%s with %q: %t", c.pin, c.have, got)
		}
	}
}

// TestMajorNumberMayDecideAlone: a program that was built from a checkout tells only its major version.
func TestMajorNumberMayDecideAlone(t *testing.T) {
	for _, c := range []struct {
		pin             blueprint.Version
		have            string
		admits, depends bool
	}{
		{blueprint.Version{Minimum: "2.2"}, "2.x", false, true},
		{blueprint.Version{Minimum: "2"}, "2.x", true, false},
		{blueprint.Version{Minimum: "2.0"}, "2.x", true, false},
		{blueprint.Version{Minimum: "2.0.1"}, "2.x", false, true},
		{blueprint.Version{Minimum: "3.0"}, "2.x", false, false},
		{blueprint.Version{Minimum: "2.2"}, "1.x", false, false},
		{blueprint.Version{Minimum: "1.7"}, "2.x", true, false},
		{blueprint.Version{Exact: "v2.2.1"}, "2.x", false, true},
		{blueprint.Version{Exact: "2.2.1"}, "1.x", false, false},
		{blueprint.Version{Minimum: "2.2"}, "2.1", false, false},
	} {
		if admits, depends := c.pin.Admits(c.have), c.pin.Depends(c.have); admits != c.admits || depends != c.depends {
			t.Errorf("%s with %q: admitted %t, depends %t", c.pin, c.have, admits, depends)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "kernel: {iommu: On}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := blueprint.Parse(text)
		if (b == nil) == (err == nil) {
			t.Errorf("blueprint %v, error %v", b, err)
		}
	})
}

// TestArgumentsThatAuditFixesNameAreAccepted: what IOM-015, ACS-004 and ACS-009 ask
// for is said in the blueprint; the kernel's other forms, which weaken, are not.
func TestArgumentsThatAuditFixesNameAreAccepted(t *testing.T) {
	const head = "apiVersion: bootstrap.kata-vfio.dev/v1alpha1\nkind: NodeBlueprint\nkernel: {arguments: [\""
	for word, accepted := range map[string]bool{
		"iommu.strict=1":                     true,
		"pci=config_acs=11111@0000:3a:01.0":  true,
		"pci=config_acs=xx111@pci:10b5:8747": true,
		"pci=disable_acs_redir=0000:3a:01.0": false,
		"pci=config_acs=00000@0000:3a:01.0":  false,
		"iommu.passthrough=1":                false,
	} {
		if _, err := blueprint.Parse([]byte(head + word + "\"]}\n")); (err == nil) != accepted {
			t.Errorf("%s: %v", word, err)
		}
	}
}

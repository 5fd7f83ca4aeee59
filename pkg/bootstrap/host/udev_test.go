package host_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// A function that is bound on demand is the node's own meanwhile, and its drivers must get it.
func TestEarlyBindingIsForFunctionsThatAreBound(t *testing.T) {
	const head = "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\ndevices:\n"
	const gpu, nic = "sys/bus/pci/devices/0000:3b:00.0/", "sys/bus/pci/devices/0000:5e:00.2/"
	node := tree{
		gpu + "class": "0x030200\n", gpu + "vendor": "0x10de\n", gpu + "device": "0x2330\n", gpu + "uevent": "", gpu + "driver_override": "(null)\n",
		nic + "class": "0x020000\n", nic + "vendor": "0x15b3\n", nic + "device": "0x101e\n", nic + "uevent": "", nic + "driver_override": "(null)\n",
		nic + "physfn/uevent": "PCI_SLOT_NAME=0000:5e:00.0\n", nic + "physfn/net/ens1": "",
	}
	for _, c := range []struct {
		config string
		image  bool
		// want is of the problem, which is fatal except for an image's; empty if there is none.
		want string
	}{
		{config: ""},
		{config: head + "- {match: {types: [gpu]}, policy: bound}\n- {match: {pfNames: [ens1]}, policy: bound}\n"},
		{config: head + "- {match: {vendors: ['10de']}, policy: bound}\n- {match: {addresses: ['0000:5e:00.2']}, policy: bound}\n"},
		{config: head + "- {match: {types: [vf]}, policy: bound}\n- {match: {types: [gpu]}, policy: onDemand}\n", want: "0000:3b:00.0 is of policy onDemand"},
		{config: head + "- {match: {types: [gpu]}, policy: bound}\n- {match: {pfNames: [ens1]}}\n", want: "0000:5e:00.2 is of policy onDemand"},
		{config: head + "- {match: {types: [gpu]}, policy: bound}\n", want: "0000:5e:00.2 is not ours"},
		{config: "kind: Node\n", want: "the node config can't be read"},
		{config: head + "- {match: {addresses: ['0000:3b:00.0', '0000:5e:00.2']}, policy: bound}\n", image: true},
		{config: head + "- {match: {addresses: ['0000:5e:00.2']}, policy: bound}\n- {match: {types: [gpu]}, policy: bound}\n", image: true, want: "the policy of 0000:3b:00.0 is unknown"},
	} {
		files := tree{}
		if !c.image {
			maps.Copy(files, node)
		}
		if c.config != "" {
			files["etc/kata-vfio/node.yaml"] = c.config
		}
		b := blueprint.Default()
		b.Kernel.EarlyBinding, b.VFIO.KeepOff = true, []pci.Address{{Bus: 0x3b}, {Bus: 0x5e, Function: 2}}
		w := host.Wanted(files, b, &host.Platform{Live: !c.image, Initramfs: host.Dracut, Systemd: true, IOMMUs: []string{"dmar0"}})
		found := 0
		for _, p := range w.Problems {
			if p.Part == "initramfs" {
				found++
				if c.want == "" || !strings.Contains(p.Text, c.want) || p.Fatal == c.image || !strings.Contains(p.Fix, "etc/kata-vfio/node.yaml") && !strings.Contains(p.Fix, "policy: bound") {
					t.Errorf("%s: %+v", c.config, p)
				}
			}
		}
		if found != len(c.want[:min(len(c.want), 1)]) {
			t.Errorf("%s: %d problems %+v", c.config, found, w.Problems)
		}
		b.Kernel.EarlyBinding = false
		for _, p := range host.Wanted(files, b, &host.Platform{Live: !c.image, Systemd: true}).Problems {
			if p.Part == "initramfs" {
				t.Errorf("%s: without early binding %+v", c.config, p)
			}
		}
	}
}

// lockedNode is a running node, one of whose functions an operation holds that hangs.
type lockedNode struct {
	tree
	locked string
}

func (n lockedNode) ReadAttribute(name string, limit int64) (data []byte, locked bool, err error) {
	if strings.HasSuffix(name, n.locked) {
		return nil, true, errors.New("locked")
	}
	data, err = n.ReadAtMost(name, limit)
	return data, false, err
}

// TestFunctionThatIsLockedIsAProblem: and no setting, which would wait for the lock, nor a function that is absent.
func TestFunctionThatIsLockedIsAProblem(t *testing.T) {
	const gpu = "sys/bus/pci/devices/0000:3b:00.0/"
	b := blueprint.Default()
	b.VFIO.KeepOff = []pci.Address{{Bus: 0x3b}}
	for _, attribute := range []string{"uevent", "driver_override"} {
		files := tree{gpu + "uevent": "", gpu + "driver_override": "(null)\n"}
		w := host.Wanted(lockedNode{files, attribute}, b, &host.Platform{Live: true, Systemd: true, IOMMUs: []string{"dmar0"}})
		var codes []rule.Code
		for _, p := range w.Problems {
			if p.Part == "udev" {
				codes = append(codes, p.Code)
			}
		}
		if !slices.Equal(codes, []rule.Code{rule.Locked}) {
			t.Errorf("%s: problems %s, want %s", attribute, codes, rule.Locked)
		}
		for _, s := range w.Settings {
			if strings.HasPrefix(s.Path, gpu) {
				t.Errorf("%s: a setting %+v", attribute, s)
			}
		}
	}
}

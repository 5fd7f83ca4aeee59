package host_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func numaOf(bus, text string) (name, content string) {
	return "sys/bus/pci/devices/0000:" + bus + ":00.0/numa_node", text + "\n"
}

// TestHugePagesAreNextToTheirDevices: counts on one NUMA node add up, and reach the kernel's command line.
func TestHugePagesAreNextToTheirDevices(t *testing.T) {
	of := tree{"sys/devices/system/node/node1/meminfo": "Node 1\n"}
	for bus, node := range map[string]string{"3b": "0", "3c": "0", "9b": "1"} {
		name, content := numaOf(bus, node)
		of[name] = content
	}
	b := blueprint.Default()
	b.Kernel.HugePages = []blueprint.HugePages{
		{Size: blueprint.HugePage1Gi, Count: 64, Device: &pci.Address{Bus: 0x3b}},
		{Size: blueprint.HugePage1Gi, Count: 32, Device: &pci.Address{Bus: 0x9b}},
		{Size: blueprint.HugePage1Gi, Count: 64, Device: &pci.Address{Bus: 0x3c}},
		{Size: blueprint.HugePage2Mi, Count: 8, Node: new(1)},
	}
	p := &host.Platform{Live: true, Systemd: true}
	placed, problems := host.PlaceHugePages(of, b, p)
	want := []blueprint.HugePages{
		{Size: blueprint.HugePage1Gi, Count: 128, Node: new(0)}, {Size: blueprint.HugePage1Gi, Count: 32, Node: new(1)}, {Size: blueprint.HugePage2Mi, Count: 8, Node: new(1)},
	}
	if diff := cmp.Diff(want, placed.Kernel.HugePages); diff != "" || len(problems) > 0 {
		t.Errorf("problems %v, pages (-want +got):\n%s", problems, diff)
	}
	words := host.Arguments(placed, p)
	if got := words[len(words)-1]; got != "hugepagesz=1G hugepages=0:128,1:32" {
		t.Errorf("arguments %q", words)
	}
	if b.Kernel.HugePages[0].Device == nil || b.Kernel.HugePages[0].Count != 64 {
		t.Error("the blueprint itself was changed")
	}
}

// TestHugePagesWithoutANUMANode are refused, except where there is only one.
func TestHugePagesWithoutANUMANode(t *testing.T) {
	name, unknown := numaOf("3b", "-1")
	two := tree{name: unknown, "sys/devices/system/node/node1/meminfo": "Node 1\n"}
	for about, c := range map[string]struct {
		of   tree
		live bool
		want string
	}{
		"one node":    {tree{name: unknown}, true, ""},
		"two nodes":   {two, true, "kernel.hugePages: the firmware does not say on which NUMA node 0000:3b:00.0 is"},
		"no function": {tree{}, true, "kernel.hugePages: the node has no function 0000:3b:00.0"},
		"an image":    {tree{}, false, "kernel.hugePages: the NUMA node of 0000:3b:00.0 is unknown, because an image has no functions"},
	} {
		b := blueprint.Default()
		b.Kernel.HugePages = []blueprint.HugePages{{Size: blueprint.HugePage1Gi, Count: 4, Device: &pci.Address{Bus: 0x3b}}}
		placed, problems := host.PlaceHugePages(c.of, b, &host.Platform{Live: c.live})
		got := ""
		for _, p := range problems {
			got += p.Text
			if !p.Fatal || p.Fix == "" {
				t.Errorf("%s: %+v, want it fatal, with a fix", about, p)
			}
		}
		if got != c.want || (len(placed.Kernel.HugePages) == 1) != (c.want == "") {
			t.Errorf("%s: %q and %v, want %q", about, got, placed.Kernel.HugePages, c.want)
		}
	}
}

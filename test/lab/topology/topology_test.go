package topology_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// The names that tests use are the addresses that the hierarchy gives.
func TestStandardAddresses(t *testing.T) {
	want := map[string]string{
		"pf0": topology.PF0, "gpu0": topology.GPU0, "nvme0": topology.NVMe0, "switch0": topology.Switch0,
		"gpu4": topology.GPU4, "switchnic": topology.SwitchNIC, "pf1": topology.PF1, "gpu1": topology.GPU1,
		"gpu1audio": topology.GPU1Audio, "bridge0": topology.Bridge0, "edu0": topology.Edu0, "nic1": topology.NIC1,
		"nic0": topology.NIC0, "gpu2": topology.GPU2, "gpu3": topology.GPU3, "bigbar": topology.BigBAR,
		"gpu5": topology.GPU5, "switch0-port0": topology.GPU4Port, "switch0-port1": topology.SwitchNICPort, "b8": topology.GPU5Port,
	}
	got := topology.Standard().Addresses()
	for id := range got {
		if _, named := want[id]; !named {
			delete(got, id) // ports need no names
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses of the standard topology (-constants +computed):\n%s", diff)
	}
}

func TestVF(t *testing.T) {
	for _, tt := range []struct {
		pf    string
		index int
		want  string
	}{
		{topology.PF0, 0, "0000:21:10.0"},
		{topology.PF0, 4, "0000:21:11.0"},
		{topology.PF1, 6, "0000:61:11.4"},
		{topology.NVMe0, 0, "0000:23:00.1"},
		{topology.NVMe0, 7, "0000:23:01.0"},
	} {
		if got := topology.VF(tt.pf, tt.index); got != tt.want {
			t.Errorf("VF(%s, %d) = %s, want %s", tt.pf, tt.index, got, tt.want)
		}
	}
}

func TestArgs(t *testing.T) {
	small := topology.Topology{Roots: []topology.Root{{ID: "px", Bus: 0x20, Node: 1, Ports: []topology.Part{
		topology.RootPort("r", topology.Display("d")),
		topology.RootPortWithoutACS("s", topology.Switch("w", topology.Edu("e"))),
	}}}}
	want := []string{
		"-device", "pxb-pcie,id=px,bus_nr=0x20,numa_node=1,bus=pcie.0",
		"-device", "pcie-root-port,id=r,bus=px,addr=0.0,chassis=1,slot=1,io-reserve=0",
		"-device", "bochs-display,id=d,bus=r,addr=0.0",
		"-device", "pcie-root-port,id=s,bus=px,addr=1.0,chassis=2,slot=2,io-reserve=0,disable-acs=on",
		"-device", "x3130-upstream,id=w,bus=s,addr=0.0",
		"-device", "xio3130-downstream,id=w-port0,bus=w,addr=0.0,chassis=3,slot=3",
		"-device", "edu,id=e,bus=w-port0,addr=0.0",
	}
	if diff := cmp.Diff(want, small.Args()); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

// The namespace comes after its controller, and moves no function.
func TestWithNamespace(t *testing.T) {
	with := topology.WithNamespace()
	if diff := cmp.Diff(topology.Standard().Addresses(), with.Addresses()); diff != "" {
		t.Errorf("addresses (-standard +with a namespace):\n%s", diff)
	}
	args := with.Args()
	if last := args[len(args)-1]; !strings.HasPrefix(last, "nvme-ns,") || !strings.Contains(last, ",bus=nvme0,") {
		t.Errorf("the last device is %q, want a namespace of nvme0", last)
	}
}

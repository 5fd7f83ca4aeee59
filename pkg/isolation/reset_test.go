package isolation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// gpuPair is a GPU in group 2 and its audio function below one port.
func gpuPair(audioGroup int, edits ...edit) []device.Function {
	return []device.Function{
		port(rp, 1),
		gpu(gpuAt, 2, append(edits, under(rp), acs(0, 0))...),
		audio("0000:21:00.1", audioGroup, under(rp), acs(0, 0)),
	}
}

func TestResets(t *testing.T) {
	cases := []struct {
		name string
		node *device.Snapshot
		of   string
		want []string // method and set
	}{
		{"kernel's order becomes ours", node(plainGPU(resets("pm", "bus", "flr", "device_specific"))...), gpuAt, []string{
			"device_specific 0000:21:00.0", "flr 0000:21:00.0", "bus 0000:21:00.0", "pm 0000:21:00.0",
		}},
		{"acpi, af_flr and cxl_bus", node(plainGPU(resets("cxl_bus", "af_flr", "acpi"))...), gpuAt, []string{
			"acpi 0000:21:00.0", "af_flr 0000:21:00.0", "cxl_bus 0000:21:00.0",
		}},
		{"a word from a newer kernel is left alone", node(plainGPU(resets("warp"))...), gpuAt, nil},
		{"none", node(plainGPU(resets())...), gpuAt, nil},
		{"hot reset of a GPU with its audio function", node(gpuPair(2, resets())...), gpuAt, []string{
			"vfio_hot_reset 0000:21:00.0 0000:21:00.1",
		}},
		{"hot reset across groups of one GPU", node(gpuPair(3, resets("pm"))...), gpuAt, []string{
			"vfio_hot_reset 0000:21:00.0 0000:21:00.1", "pm 0000:21:00.0",
		}},
		{"audio alone does not take its GPU along", node(gpuPair(3)...), "0000:21:00.1", nil},
		{"bus is not to be had with a neighbour", node(gpuPair(2, resets("bus", "flr"))...), gpuAt, []string{
			"flr 0000:21:00.0", "vfio_hot_reset 0000:21:00.0 0000:21:00.1",
		}},
		{"hot reset of a whole conventional bus", node(bridged("")...), "0000:22:01.0", []string{
			"vfio_hot_reset 0000:22:01.0 0000:22:02.0",
		}},
		{"neighbour outside the group", node(
			port(rp, 1), nic("0000:21:00.0", 2, under(rp), resets()), nic("0000:21:00.1", 3, under(rp)),
		), "0000:21:00.0", nil},
		{"a bridge on the bus rules it out", node(
			port(rp, 2, noACS),
			gpu("0000:21:00.0", 2, under(rp), resets()),
			function("0000:21:01.0", 0x060400, 2, under(rp), express(pci.PCIeToPCI)),
			nic("0000:22:00.0", 2, under(rp, "0000:21:01.0")),
		), "0000:21:00.0", nil},
		{"own VFs don't count", node(
			port(rp, 1), nic("0000:21:00.0", 2, under(rp), resets("bus"), pfOf("0000:21:10.0")),
			nic("0000:21:10.0", 3, under(rp), vfOf21),
		), "0000:21:00.0", []string{"bus 0000:21:00.0"}},
		{"a VF never takes its PF along", node(
			port(rp, 1), nic("0000:21:00.0", 2, under(rp), pfOf("0000:21:10.0")),
			nic("0000:21:10.0", 3, under(rp), vfOf21, resets()),
		), "0000:21:10.0", nil},
		{"root complex device", node(function("0000:00:02.0", 0x030000, 1, express(pci.RCEndpoint), resets("flr", "pm"))), "0000:00:02.0", []string{
			"flr 0000:00:02.0", "pm 0000:00:02.0",
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, ok := c.node.Function(addr(t, c.of))
			if !ok {
				t.Fatalf("no function %s", c.of)
			}
			var got []string
			for _, r := range isolation.Resets(c.node, f) {
				got = append(got, r.Method+" "+addresses(r.Set))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("resets (-want +got):\n%s", diff)
			}
			var best string
			if r := isolation.Judge(c.node, f).Reset; r != nil {
				best = r.Method + " " + addresses(r.Set)
			}
			if len(c.want) > 0 && best != c.want[0] || len(c.want) == 0 && best != "" {
				t.Errorf("verdict's reset = %q, want the first of %q", best, c.want)
			}
		})
	}
}

func addresses(set []pci.Address) string {
	texts := make([]string, len(set))
	for i, a := range set {
		texts[i] = a.String()
	}
	return strings.Join(texts, " ")
}

func TestJudgeResets(t *testing.T) {
	runJudgeCases(t, []judgeCase{
		{name: "no method at all", node: node(plainGPU(resets())...), of: gpuAt, reasons: []string{"NoReset"}},
		{
			name: "only a neighbour's reset", of: "0000:21:00.0",
			node:    node(port(rp, 1), nic("0000:21:00.0", 2, under(rp), resets(), acs(0, 0)), nic("0000:21:00.1", 3, under(rp))),
			reasons: []string{"NoReset 0000:21:00.1"},
		},
		{name: "power management only", node: node(plainGPU(resets("pm"))...), of: gpuAt, notes: []string{"WeakReset"}},
		{name: "power management beside flr", node: node(plainGPU(resets("flr", "pm"))...), of: gpuAt},
	})
}

func TestTaken(t *testing.T) {
	usb := function("0000:21:00.2", 0x0c0330, 4, under(rp))
	ports := []device.Function{port(rp, 1), nic("0000:21:00.0", 2, under(rp)), nic("0000:21:00.1", 3, under(rp))}
	cases := []struct {
		name string
		node *device.Snapshot
		of   string
		want string
	}{
		{"alone", node(plainGPU()...), gpuAt, gpuAt},
		{"without a group", node(gpu(gpuAt, -1)), gpuAt, gpuAt},
		{"group mates but no bridge", node(bridged("pcieport")...), "0000:22:02.0", "0000:22:01.0 0000:22:02.0"},
		{"companions in groups of their own", node(append(gpuPair(3), usb)...), gpuAt, gpuAt + " 0000:21:00.1 0000:21:00.2"},
		{"ports of a NIC are strangers", node(ports...), "0000:21:00.0", "0000:21:00.0"},
		{
			"a companion's mates come too",
			node(append(gpuPair(3), nic("0000:30:00.0", 3))...), gpuAt,
			gpuAt + " 0000:21:00.1 0000:30:00.0",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, ok := c.node.Function(addr(t, c.of))
			if !ok {
				t.Fatalf("no function %s", c.of)
			}
			var got []pci.Address
			for _, g := range isolation.AssignmentSet(c.node, f) {
				got = append(got, g.Address)
			}
			if diff := cmp.Diff(c.want, addresses(got)); diff != "" {
				t.Errorf("taken (-want +got):\n%s", diff)
			}
		})
	}
}

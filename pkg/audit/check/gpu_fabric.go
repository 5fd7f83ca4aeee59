package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// fabricChecks are about NVSwitches.
func fabricChecks() []Check {
	return []Check{
		{ID: "GPU-001", Judge: fabricPartitioned},
		{ID: "GPU-003", Judge: fabricAPIIsLocal},
		{ID: "GPU-004", Judge: switchWithBoard},
	}
}

// switchedBoard is a board of NVIDIA GPUs with the NVSwitches between them.
type switchedBoard struct {
	gpus, switches []pci.Address
	// hidden are functions that may manage NVSwitches, and whose vital product data can't be read.
	hidden []facts.Fact
}

// missing returns the answer for a board without a known NVSwitch.
func (b *switchedBoard) missing() Answer {
	if len(b.hidden) > 0 {
		return unknown("whether "+count(len(b.hidden), "ConnectX function")+" manages NVSwitches", b.hidden...).reaching(b.gpus...)
	}
	return notApplicable("the PCI bus has no NVSwitch")
}

func newFabric(n *facts.Node) switchedBoard {
	var b switchedBoard
	for i := range n.Snapshot.Functions {
		switch f := &n.Snapshot.Functions[i]; {
		case f.IsNVSwitch():
			b.switches = append(b.switches, f.Address)
		case f.MayManageSwitches() != "":
			b.hidden = append(b.hidden, n.ProductData(f))
		case f.Vendor == pci.VendorNVIDIA && f.Type == device.GPU && f.Class.Sub() == pci.Class3D: // a card with a monitor has no NVLink to switches
			b.gpus = append(b.gpus, f.Address)
		}
	}
	return b
}

// owner returns the one tenant that has all GPUs of the board; empty if there is none.
func (b *switchedBoard) owner(n *facts.Node) string {
	tenants := n.Owners(b.gpus...)
	if len(tenants) != 1 || slices.ContainsFunc(b.gpus, func(a pci.Address) bool { return len(n.TenanciesAt(a)) == 0 }) {
		return ""
	}
	return tenants[0]
}

func fabricPartitioned(n *facts.Node) Answer {
	b := newFabric(n)
	if len(b.switches) == 0 {
		return b.missing()
	}
	if !slices.ContainsFunc(b.gpus, n.IsAvailable) {
		return notApplicable("no GPU of the fabric is assignable")
	}
	config := n.FabricConfig()
	mode, line := fabricSetting(config, "FABRIC_MODE")
	owner := b.owner(n)
	switch {
	// The mode does not matter while every GPU that can be reached is the tenant's own.
	case owner != "":
		return pass(fmt.Sprintf("all GPUs (%d) belong to %s", len(b.gpus), owner), line)
	case !config.OK():
		return unknown("how the fabric is partitioned (Fabric Manager may run in its own VM or container)", config).reaching(b.gpus...)
	// The models Shared NVSwitch and vGPU (NVIDIA Fabric Manager User Guide).
	case mode == "1", mode == "2":
		return pass("FABRIC_MODE="+mode+": partitions separate GPUs", line)
	}
	text := fmt.Sprintf("%s without partitions (FABRIC_MODE=%s): each reaches the memory of all others", count(len(b.gpus), "GPU"), cmp.Or(mode, "0"))
	if tenants := n.Owners(b.gpus...); len(tenants) > 0 {
		text += "; tenants with such GPUs: " + strings.Join(tenants, ", ")
	}
	return fail(text, line).reaching(b.gpus...)
}

// fabricSetting returns the value of a key in Fabric Manager's configuration, the last one if there are several.
func fabricSetting(config facts.Fact, key string) (string, facts.Fact) {
	value := ""
	for line := range strings.Lines(config.Value) {
		name, v, ok := strings.Cut(line, "=")
		if ok && strings.TrimSpace(name) == key {
			value = strings.TrimSpace(v)
		}
	}
	if config.OK() {
		config.Value = key + "=" + value
	}
	return value, config
}

func switchWithBoard(n *facts.Node) Answer {
	b := newFabric(n)
	if len(b.switches) == 0 {
		return b.missing()
	}
	owner := b.owner(n)
	found := over(b.switches, func(a pci.Address) Answer {
		return over(n.TenanciesAt(a), func(t facts.Tenancy) Answer {
			if n.Owner(&t) == owner {
				return nil
			}
			return fail(fmt.Sprintf("claim %s has NVSwitch %s, but not all GPUs of the board", t.Claim(), a), stateFact(t.Record)).at(a).reaching(b.gpus...)
		})
	})
	return showing(found.or(pass(count(len(b.switches), "NVSwitch function"), n.Journal())), functionsAt(n, b.switches), one(driverFact))
}

func fabricAPIIsLocal(n *facts.Node) Answer {
	if b := newFabric(n); len(b.switches) == 0 {
		return b.missing()
	}
	config := n.FabricConfig()
	socket, line := fabricSetting(config, "FM_CMD_UNIX_SOCKET_PATH")
	bind, bindLine := fabricSetting(config, "FM_CMD_BIND_INTERFACE")
	number, err := apiPort(config)
	if err != nil {
		return unknown("the port that Fabric Manager listens on", config)
	}
	// The socket counts, not the file: Fabric Manager may have been started with another configuration.
	open, sockets := n.Listening(number)
	switch {
	case len(open) > 0:
		return fail(fmt.Sprintf("Fabric Manager's port %d is open on %s", number, strings.Join(open, ", ")), sockets, bindLine)
	case !sockets.Known():
		return unknown("where Fabric Manager listens", sockets)
	case !config.OK():
		return unknown("where Fabric Manager listens", config)
	case socket == "" && bind != "" && bind != "localhost" && !strings.HasPrefix(bind, "127."):
		return fail("Fabric Manager listens on "+bind, bindLine)
	}
	return pass("it listens on "+cmp.Or(socket, cmp.Or(bind, "127.0.0.1")), line, bindLine, sockets)
}

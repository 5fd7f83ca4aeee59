package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

const (
	vendorNVIDIA   = 0x10de
	vendorMellanox = 0x15b3
	vendorAMD      = 0x1002
	// classOtherBridge is that of an NVSwitch.
	classOtherBridge = 0x0680
	// switchManagement is in the VPD of a ConnectX function by which the NVSwitches of
	// B200 and B300 are managed: they have no function of their own on the PCI bus.
	switchManagement = "SW_MNG"
	fabricConfig     = "usr/share/nvidia/nvswitch/fabricmanager.cfg"
)

// fabric is a board of NVIDIA GPUs with the NVSwitches between them.
type fabric struct {
	gpus, switches []pci.Address
	// hidden are functions that may be NVSwitches, and whose VPD can't be read.
	hidden []facts.Fact
}

// missing says what is to be said of a board without a known NVSwitch.
func (b *fabric) missing() Answer {
	if len(b.hidden) > 0 {
		return unknown("whether "+count(len(b.hidden), "ConnectX function")+" manages NVSwitches", b.hidden...).reaching(b.gpus...)
	}
	return notApplicable("the PCI bus has no NVSwitch")
}

func fabricOf(n *facts.Node) fabric {
	var b fabric
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		switch {
		case f.Vendor != vendorNVIDIA:
		case f.Class.Sub() == classOtherBridge:
			b.switches = append(b.switches, f.Address)
		case f.Type == device.GPU && f.Class.Sub() == pci.Class3D: // a card with a monitor has no NVLink to switches
			b.gpus = append(b.gpus, f.Address)
		}
	}
	b.addManaged(n)
	return b
}

// addManaged adds the NVSwitches that are managed by ConnectX functions. The VPD of
// others is not read: each word of it takes the device's time.
func (b *fabric) addManaged(n *facts.Node) {
	managed := slices.ContainsFunc(functionsAt(n, b.gpus), func(f *device.Function) bool { return switchesAreManaged(f.Device) })
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		if !managed || f.Vendor != vendorMellanox || f.VF != nil {
			continue
		}
		switch vpd := n.VPD(f.Address); {
		case strings.Contains(vpd.Value, switchManagement):
			b.switches = append(b.switches, f.Address)
		case !vpd.Known():
			b.hidden = append(b.hidden, vpd)
		}
	}
}

// switchesAreManaged reports whether a GPU is of a kind whose NVSwitches are behind
// ConnectX functions: GB100 (B100, B200) and GB110 (B300), by pci.ids.
func switchesAreManaged(id pci.ID) bool {
	return 0x2900 <= id && id <= 0x29ff || 0x3180 <= id && id <= 0x31ff
}

// owner returns the one tenant that has all GPUs of the board; empty for none.
func (b *fabric) owner(n *facts.Node) string {
	tenants := n.TenantsOf(b.gpus...)
	if len(tenants) != 1 || slices.ContainsFunc(b.gpus, func(a pci.Address) bool { return len(n.TenanciesOf(a)) == 0 }) {
		return ""
	}
	return tenants[0]
}

func fabricPartitioned(n *facts.Node) Answer {
	b := fabricOf(n)
	if len(b.switches) == 0 {
		return b.missing()
	}
	if !slices.ContainsFunc(b.gpus, n.IsAvailable) {
		return notApplicable("no GPU of the fabric is assignable")
	}
	config := n.Read(fabricConfig)
	mode, line := fabricSetting(config, "FABRIC_MODE")
	owner := b.owner(n)
	switch {
	case owner != "":
		return pass(fmt.Sprintf("all %d GPUs belong to %s", len(b.gpus), owner), line)
	case !config.OK():
		return unknown("how the fabric is partitioned (Fabric Manager may run in its own VM or container)", config).reaching(b.gpus...)
	case mode == "1", mode == "2":
		return pass("FABRIC_MODE="+mode+": partitions separate GPUs", line)
	}
	text := fmt.Sprintf("%s without partitions (FABRIC_MODE=%s): each reaches the memory of all others", count(len(b.gpus), "GPU"), orElse(mode, "0"))
	if tenants := n.TenantsOf(b.gpus...); len(tenants) > 0 {
		text += "; tenants with such GPUs: " + strings.Join(tenants, ", ")
	}
	return fail(text, line).reaching(b.gpus...)
}

// fabricSetting returns what Fabric Manager's configuration sets a key to, the last
// time if there are several.
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

// onePartition can tell from the number of GPUs alone that they are no partition:
// boards have partitions of 1, 2, 4, 8 and 16. Which are active says Fabric Manager
// to who asks it.
func onePartition(n *facts.Node) Answer {
	b := fabricOf(n)
	if len(b.switches) == 0 {
		return b.missing()
	}
	var found Answer
	var held []pci.Address
	for _, rec := range n.Records() {
		var gpus []pci.Address
		for i := range rec.Plan.Functions {
			if a := rec.Plan.Functions[i].Address; slices.Contains(b.gpus, a) {
				gpus = append(gpus, a)
			}
		}
		if held = append(held, gpus...); len(gpus)&(len(gpus)-1) == 0 {
			continue
		}
		found = append(found, fail(fmt.Sprintf("claim %s has %d GPUs, which match no partition", rec.Plan.Claim, len(gpus)), recordFact(rec, string(rec.State))).
			object("claim "+rec.Plan.Claim.Namespace+"/"+rec.Plan.Claim.Name).reaching(gpus...)...)
	}
	switch {
	case len(held) == 0:
		return notApplicable("no claim has a GPU of the fabric")
	case len(found) > 0:
		return found
	case b.owner(n) != "":
		return pass("all GPUs of the board belong to one tenant", n.Journal())
	}
	text := "no file shows the active partitions: compare `fmpm -l` with the GPUs of each claim"
	if tenants := n.TenantsOf(held...); len(tenants) > 1 {
		text = fmt.Sprintf("%s share a fabric, and %s", strings.Join(tenants, " and "), text)
	}
	_, mode := fabricSetting(n.Read(fabricConfig), "FABRIC_MODE")
	return say(finding.Manual, text, []facts.Fact{mode, n.Journal()}).reaching(held...)
}

func switchWithBoard(n *facts.Node) Answer {
	b := fabricOf(n)
	if len(b.switches) == 0 {
		return b.missing()
	}
	owner := b.owner(n)
	var found Answer
	for _, a := range b.switches {
		for _, t := range n.TenanciesOf(a) {
			if t.Tenant() == owner {
				continue
			}
			found = append(found, fail(fmt.Sprintf("claim %s has NVSwitch %s, but not all GPUs of the board", t.Claim(), a), recordOf(&t)).at(a).reaching(b.gpus...)...)
		}
	}
	if len(found) > 0 {
		return found
	}
	return showing(pass(count(len(b.switches), "NVSwitch function"), n.Journal()), functionsAt(n, b.switches), one(driverFact))
}

func fabricAPIIsLocal(n *facts.Node) Answer {
	if b := fabricOf(n); len(b.switches) == 0 {
		return b.missing()
	}
	config := n.Read(fabricConfig)
	socket, line := fabricSetting(config, "FM_CMD_UNIX_SOCKET_PATH")
	bind, bindLine := fabricSetting(config, "FM_CMD_BIND_INTERFACE")
	port, _ := fabricSetting(config, "FM_CMD_PORT_NUMBER")
	number, err := strconv.ParseUint(orElse(port, "6666"), 10, 16)
	if err != nil {
		return unknown("the port that Fabric Manager listens on", config)
	}
	open, sockets := n.Listening(uint16(number))
	switch {
	case len(open) > 0:
		return fail(fmt.Sprintf("Fabric Manager's port %d is open on %s", number, strings.Join(open, ", ")), sockets, bindLine)
	case !config.OK():
		return unknown("where Fabric Manager listens", config)
	case socket == "" && bind != "" && bind != "localhost" && !strings.HasPrefix(bind, "127."):
		return fail("Fabric Manager listens on "+bind, bindLine)
	}
	return pass("it listens on "+orElse(socket, orElse(bind, "127.0.0.1")), line, bindLine, sockets)
}

//go:build lab

package discovery_test

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// registers are what lspci -vvv makes of a function's configuration space.
type registers struct {
	BARs           []string
	Express        string // lspci's words for the device/port type
	FLR            bool
	Power          string
	MSI, MSIX, AER bool
	ACS            string // capability and control
	ATS, PASID     string
	PRI            string
	SRIOV          string
}

// TestCapabilitiesAreWhatLspciSays compares capabilities and BARs of every function.
func TestCapabilitiesAreWhatLspciSays(t *testing.T) {
	kernel.VFs(t, topology.PF0, "7")
	kernel.VFs(t, topology.NVMe0, "8")
	snap, all := stage.Scan(t), lspci(t)
	if len(all) != len(snap.Functions) {
		t.Errorf("lspci shows %d functions, the scan %d", len(all), len(snap.Functions))
	}
	seen := map[string]int{}
	for address, want := range all {
		f := stage.Function(t, snap, address)
		if f.Capabilities.Truncated && f.Capabilities.Express != nil {
			t.Errorf("the scan of %s did not read all of its configuration space", address)
		}
		if diff := cmp.Diff(want, registersOf(f)); diff != "" {
			t.Errorf("%s (-lspci +scan):\n%s", address, diff)
		}
		count(seen, want)
	}
	t.Logf("%d functions compared, with %v", len(all), seen)
	for _, name := range []string{"ACS", "FLR", "SR-IOV", "MSI", "MSI-X", "AER"} {
		if seen[name] == 0 {
			t.Errorf("no function of the machine has %s", name)
		}
	}
}

func count(seen map[string]int, r registers) {
	for name, there := range map[string]bool{
		"ACS": r.ACS != "", "FLR": r.FLR, "SR-IOV": r.SRIOV != "", "MSI": r.MSI, "MSI-X": r.MSIX, "AER": r.AER, "ATS": r.ATS != "",
	} {
		if there {
			seen[name]++
		}
	}
}

// command runs a command, after the test's end, too.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// lspci reads its report of all functions.
func lspci(t *testing.T) map[string]registers {
	t.Helper()
	all := map[string]registers{}
	for block := range strings.SplitSeq(strings.TrimSpace(command(t, "lspci", "-D", "-vvv")), "\n\n") {
		address, _, _ := strings.Cut(block, " ")
		p := &parser{}
		for _, line := range strings.Split(block, "\n")[1:] {
			p.line(line)
		}
		all[address] = p.registers
	}
	return all
}

// parser reads the lines on one function.
type parser struct {
	registers
	capability string // that the deeper lines are about
}

// line reads a line: one tab begins a new subject, two and more go on with it.
func (p *parser) line(line string) {
	if !strings.HasPrefix(line, "\t\t") {
		p.subject(strings.TrimSpace(line))
		return
	}
	name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
	p.detail(name, strings.TrimSpace(rest))
}

func (p *parser) subject(line string) {
	p.capability = ""
	if bar := region.FindStringSubmatch(line); bar != nil {
		p.BARs = append(p.BARs, barText(bar))
	}
	match := heading.FindStringSubmatch(line)
	if match == nil {
		return
	}
	p.capability = match[1]
	switch name := match[1]; {
	case strings.HasPrefix(name, "Express"):
		p.Express = strings.TrimSpace(expressNoise.ReplaceAllString(name, ""))
	case strings.HasPrefix(name, "MSI:"):
		p.MSI = true
	case strings.HasPrefix(name, "MSI-X:"):
		p.MSIX = true
	case name == "Advanced Error Reporting":
		p.AER = true
	}
}

var (
	region       = regexp.MustCompile(`^Region (\d): (Memory|I/O ports) at \S+(?: \((32|64)-bit, (non-)?prefetchable\))?.*\[size=(\d+)([KMGT]?)\]`)
	heading      = regexp.MustCompile(`^Capabilities: \[[0-9a-f]+(?: v\d)?\] (.*)$`)
	expressNoise = regexp.MustCompile(`Express \(v\d\) |\(Slot[+-]\)|, IntMsgNum \d+`)
	totals       = regexp.MustCompile(`Total VFs: (\d+), Number of VFs: (\d+)`)
)

func (p *parser) detail(name, text string) {
	switch {
	case strings.Contains(name+text, "FLReset+"): // of the capability: no reset is under way
		p.FLR = true
	case strings.HasPrefix(p.capability, "Power Management") && name == "Status":
		p.Power = strings.Join(strings.Fields(text)[:2], " ")
	case p.capability == "Access Control Services" && name == "ACSCap":
		p.ACS = fmt.Sprintf("%#x", switches(text))
	case p.capability == "Access Control Services" && name == "ACSCtl":
		p.ACS += fmt.Sprintf(" %#x", switches(text))
	case name == "ATSCtl":
		p.ATS = onOff(strings.Contains(text, "Enable+"))
	case name == "PASIDCtl":
		p.PASID = onOff(strings.Contains(text, "Enable+"))
	case name == "PRICtl":
		p.PRI = onOff(strings.Contains(text, "Enable+"))
	case strings.HasPrefix(p.capability, "Single Root") && name == "Initial VFs":
		if n := totals.FindStringSubmatch(text); n != nil {
			p.SRIOV = n[1] + " " + n[2]
		}
	}
}

// switches reads lspci's words for the ACS bits.
func switches(text string) (bits int) {
	for i, word := range []string{"SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans"} {
		if strings.Contains(text, word+"+") {
			bits |= 1 << i
		}
	}
	return bits
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// barText is a BAR in one form: number, space, size in bytes.
func barText(match []string) string {
	size, _ := strconv.ParseUint(match[5], 10, 64) // the pattern admits digits only
	size <<= 10 * strings.Index("_KMGT", match[6])
	if match[6] == "" {
		size, _ = strconv.ParseUint(match[5], 10, 64)
	}
	if match[2] != "Memory" {
		return fmt.Sprintf("%s: I/O, %d", match[1], size)
	}
	return fmt.Sprintf("%s: %s-bit, prefetchable %t, %d", match[1], match[3], match[4] == "", size)
}

// registersOf puts what the scan says into the same form.
func registersOf(f *device.Function) registers {
	c := &f.Capabilities
	r := registers{MSI: c.MSI, MSIX: c.MSIX, AER: c.AER, ATS: switchable(c.ATS), PASID: switchable(c.PASID), PRI: switchable(c.PRI)}
	for _, b := range f.BARs {
		r.BARs = append(r.BARs, barOf(b))
	}
	if c.Express != nil {
		r.Express = portType(c.Express.Type)
		// Of ports lspci does not show the bit.
		r.FLR = c.Express.FLR && strings.HasSuffix(r.Express, "Endpoint")
	}
	if c.Power != nil {
		r.Power = fmt.Sprintf("D%d NoSoftRst%s", c.Power.State, map[bool]string{true: "+", false: "-"}[c.Power.NoSoftReset])
	}
	if c.ACS != nil {
		r.ACS = fmt.Sprintf("%#x %#x", c.ACS.Capability&0x7f, c.ACS.Control&0x7f)
	}
	if c.SRIOV != nil {
		r.SRIOV = fmt.Sprintf("%d %d", c.SRIOV.TotalVFs, c.SRIOV.NumVFs)
	}
	return r
}

func switchable(s *pci.Switchable) string {
	if s == nil {
		return ""
	}
	return onOff(s.Enabled)
}

func barOf(b device.BAR) string {
	if b.IO {
		return fmt.Sprintf("%d: I/O, %d", b.Index, b.Size)
	}
	return fmt.Sprintf("%d: %s-bit, prefetchable %t, %d", b.Index, map[bool]string{true: "64", false: "32"}[b.Is64], b.Prefetchable, b.Size)
}

func portType(p pci.PortType) string {
	return map[pci.PortType]string{
		pci.Endpoint: "Endpoint", pci.LegacyEndpoint: "Legacy Endpoint", pci.RootPort: "Root Port", pci.UpstreamPort: "Upstream Port",
		pci.DownstreamPort: "Downstream Port", pci.PCIeToPCI: "PCI-Express to PCI/PCI-X Bridge", pci.RCEndpoint: "Root Complex Integrated Endpoint",
	}[p]
}

// TestNamesAreWhatLspciSays compares names, classes and places, by lspci's report for machines.
func TestNamesAreWhatLspciSays(t *testing.T) {
	fs, err := sysfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	names, err := inventory.LoadNames(fs)
	if err != nil {
		t.Fatal(err)
	}
	snap := stage.Scan(t, inventory.WithNames(names))
	for block := range strings.SplitSeq(strings.TrimSpace(command(t, "lspci", "-D", "-vmmnn")), "\n\n") {
		want := map[string]string{"NUMANode": "", "IOMMUGroup": "", "Rev": "00", "ProgIf": "00"}
		for line := range strings.SplitSeq(block, "\n") {
			key, value, _ := strings.Cut(line, ":")
			want[key] = strings.TrimSpace(value)
		}
		f := stage.Function(t, snap, want["Slot"])
		if diff := cmp.Diff(named(want), namesOf(f)); diff != "" {
			t.Errorf("%s (-lspci +scan):\n%s", want["Slot"], diff)
		}
	}
}

// nameAndID takes "82576 Gigabit Network Connection [10c9]" apart.
var nameAndID = regexp.MustCompile(`^(.*) \[([0-9a-f]{4})\]$`)

func named(lspci map[string]string) []string {
	vendor, model, class := nameAndID.FindStringSubmatch(lspci["Vendor"]), nameAndID.FindStringSubmatch(lspci["Device"]), nameAndID.FindStringSubmatch(lspci["Class"])
	for _, match := range [][]string{vendor, model} {
		if match[1] == "Vendor" || match[1] == "Device" { // lspci's words for what has no name
			match[1] = ""
		}
	}
	return []string{
		vendor[1], vendor[2], model[1], model[2],
		class[2] + lspci["ProgIf"], lspci["Rev"], lspci["NUMANode"], lspci["IOMMUGroup"],
	}
}

func namesOf(f *device.Function) []string {
	numa, group := "", ""
	if f.NUMANode != nil {
		numa = strconv.Itoa(*f.NUMANode)
	}
	if f.Group != nil {
		group = strconv.Itoa(*f.Group)
	}
	return []string{f.VendorName, f.Vendor.String(), f.Model, f.Device.String(), f.Class.String(), fmt.Sprintf("%02x", f.Revision), numa, group}
}

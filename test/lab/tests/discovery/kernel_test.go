//go:build lab

// Package discovery_test holds what the inventory says of the machine against what the kernel and lspci say, read
// independently, and the verdicts on isolation against what the topology was built for.
package discovery_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// facts are what sysfs says of a function, in its own words where it has any.
type facts struct {
	Vendor, Device, SubVendor, SubDevice, Class, Revision string
	Modalias, Driver, Override, NUMA, Group               string
	Members, Reset, Link                                  []string
	Root                                                  string
	Upstream                                              []string
	PF, TotalVFs, NumVFs                                  string
	VFIndex                                               int // -1 for no VF
	VFs                                                   []string
	BARs                                                  []string // number and size
	Net, DRM, NVMe                                        []string
	VFIO                                                  string
}

// TestScanIsWhatTheKernelSays compares every function of the machine, with VFs of two kinds and one function on
// vfio-pci, to plain reads.
func TestScanIsWhatTheKernelSays(t *testing.T) {
	kernel.VFs(t, topology.PF0, "7")
	kernel.VFs(t, topology.NVMe0, "8")
	kernel.Bind(t, topology.GPU0, "vfio-pci")
	snap, children := stage.Scan(t), owned(t)
	addresses := stage.Files(t, "/sys/bus/pci/devices")
	if len(snap.Functions) != len(addresses) {
		t.Errorf("the scan has %d functions, the kernel %d", len(snap.Functions), len(addresses))
	}
	for _, address := range addresses {
		want, got := read(t, address, children), ofScan(snap, stage.Function(t, snap, address))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-kernel +scan):\n%s", address, diff)
		}
	}
	t.Logf("%d functions compared", len(addresses))
}

// read reads one function.
func read(t *testing.T, address string, children map[string]*facts) facts {
	t.Helper()
	text := func(name string) string { return optional(t, kernel.Path(address, name)) }
	f := facts{
		Vendor: text("vendor"), Device: text("device"), SubVendor: text("subsystem_vendor"), SubDevice: text("subsystem_device"),
		Class: text("class"), Revision: text("revision"), Modalias: text("modalias"),
		Driver: kernel.Driver(t, address), Override: strings.TrimSuffix(text("driver_override"), "(null)"),
		NUMA: text("numa_node"), Group: kernel.Group(t, address),
		Members: stage.Files(t, kernel.Path(address, "iommu_group/devices")), Reset: strings.Fields(text("reset_method")),
		TotalVFs: text("sriov_totalvfs"), NumVFs: text("sriov_numvfs"), VFIndex: -1,
	}
	if c := children[address]; c != nil {
		f.Net, f.DRM, f.NVMe = c.Net, c.DRM, c.NVMe
	}
	if names := stage.Files(t, kernel.Path(address, "vfio-dev")); len(names) == 1 && kernel.Variant(t) == "iommufd" {
		f.VFIO = names[0]
	}
	f.readPlace(t, address)
	f.readVFs(t, address)
	f.readLink(text)
	f.readBARs(t, address)
	return f
}

// optional reads a file that a function may lack, or that the kernel may refuse to show.
func optional(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (f *facts) readPlace(t *testing.T, address string) {
	t.Helper()
	place, err := filepath.EvalSymlinks(kernel.Path(address))
	if err != nil {
		t.Fatal(err)
	}
	elements := strings.Split(strings.TrimPrefix(place, "/sys/devices/"), "/")
	f.Root = elements[0]
	if above := elements[1 : len(elements)-1]; len(above) > 0 {
		f.Upstream = above
	}
}

func (f *facts) readVFs(t *testing.T, address string) {
	t.Helper()
	f.VFs = virtual(address)
	if pf, err := os.Readlink(kernel.Path(address, "physfn")); err == nil {
		f.PF = filepath.Base(pf)
		f.VFIndex = slices.Index(virtual(f.PF), address)
	}
}

// virtual follows the links from a PF to its VFs.
func virtual(pf string) []string {
	var vfs []string
	for i := 0; ; i++ {
		vf, err := os.Readlink(kernel.Path(pf, "virtfn"+strconv.Itoa(i)))
		if err != nil {
			return vfs
		}
		vfs = append(vfs, filepath.Base(vf))
	}
}

// readLink leaves out what the kernel calls unknown, and what a VF's own registers say: its link is the PF's, and hardware
// shows none in them.
func (f *facts) readLink(text func(string) string) {
	if f.PF != "" {
		return
	}
	known := false
	link := []string{text("current_link_speed"), text("current_link_width"), text("max_link_speed"), text("max_link_width")}
	for i, word := range link {
		if word == "Unknown" || word == "0" || word == "255" {
			link[i] = ""
		}
		known = known || link[i] != ""
	}
	if known {
		f.Link = link
	}
}

// readBARs takes the sizes of the files by which user space maps the BARs.
func (f *facts) readBARs(t *testing.T, address string) {
	t.Helper()
	for i := range 6 {
		if info, err := os.Stat(kernel.Path(address, fmt.Sprintf("resource%d", i))); err == nil {
			f.BARs = append(f.BARs, fmt.Sprintf("%d: %d", i, info.Size()))
		}
	}
}

// owned finds the functions of the kernel's network interfaces, DRM minors and NVMe controllers, from their side.
func owned(t *testing.T) map[string]*facts {
	t.Helper()
	owners := map[string]*facts{}
	for class, wanted := range map[string]*regexp.Regexp{
		"net": regexp.MustCompile(`.`), "drm": regexp.MustCompile(`^(card|renderD)\d+$`), "nvme": regexp.MustCompile(`^nvme\d+$`),
	} {
		for _, name := range stage.Files(t, "/sys/class/"+class) {
			place, err := filepath.EvalSymlinks(filepath.Join("/sys/class", class, name))
			if err != nil {
				t.Fatal(err)
			}
			addresses := regexp.MustCompile(`[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]`).FindAllString(place, -1)
			if len(addresses) == 0 || !wanted.MatchString(name) {
				continue
			}
			owner := addresses[len(addresses)-1]
			if owners[owner] == nil {
				owners[owner] = &facts{}
			}
			owners[owner].add(class, name)
		}
	}
	return owners
}

func (f *facts) add(class, name string) {
	switch class {
	case "net":
		f.Net = append(f.Net, name)
	case "drm":
		f.DRM = append(f.DRM, name)
	case "nvme":
		f.NVMe = append(f.NVMe, name)
	}
}

// ofScan puts what the scan says into sysfs' words.
func ofScan(snap *device.Snapshot, f *device.Function) facts {
	got := facts{
		Vendor: "0x" + f.Vendor.String(), Device: "0x" + f.Device.String(), Class: "0x" + f.Class.String(),
		SubVendor: "0x" + f.SubVendor.String(), SubDevice: "0x" + f.SubDevice.String(),
		Revision: fmt.Sprintf("0x%02x", f.Revision), Modalias: f.Modalias, Driver: f.Driver, Override: f.DriverOverride,
		NUMA: "-1", Reset: f.ResetMethods, Root: f.Root, Upstream: texts(f.Upstream), VFIndex: -1,
		Net: f.Children.Net, DRM: f.Children.DRM, NVMe: f.Children.NVMe, VFIO: f.Children.VFIO,
	}
	if f.NUMANode != nil {
		got.NUMA = strconv.Itoa(*f.NUMANode)
	}
	if f.Group != nil {
		got.Group = strconv.Itoa(*f.Group)
	}
	if g, ok := snap.GroupWith(f); ok {
		got.Members = append(texts(g.Members), g.Others...)
	}
	if f.PF != nil {
		got.TotalVFs, got.NumVFs, got.VFs = strconv.Itoa(f.PF.TotalVFs), strconv.Itoa(f.PF.NumVFs), texts(f.PF.VFs)
	}
	if f.VF != nil {
		got.PF, got.VFIndex = f.VF.PF.String(), f.VF.Index
	}
	if l := f.Link; l != nil {
		got.Link = []string{l.Speed, positive(l.Width), l.MaxSpeed, positive(l.MaxWidth)}
	}
	for _, b := range f.BARs {
		got.BARs = append(got.BARs, fmt.Sprintf("%d: %d", b.Index, b.Size))
	}
	return got
}

func positive(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func texts(addrs []pci.Address) []string {
	var list []string
	for _, a := range addrs {
		list = append(list, a.String())
	}
	return list
}

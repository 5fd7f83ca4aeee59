package guestnet

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// Seen is what a VM sees of its PCI functions.
type Seen struct {
	Functions []Function `json:"functions"`
}

// Function is a PCI function of the VM.
type Function struct {
	Address string `json:"address"`
	// Vendor, Device (4 hexadecimal digits) and Class (6) are as in sysfs without the 0x.
	Vendor string `json:"vendor"`
	Device string `json:"device"`
	Class  string `json:"class"`
	// Driver is empty if none is bound.
	Driver string `json:"driver,omitempty"`
}

// Files are those of sysfs.
type Files = fs.ReadLinkFS

// ReadFunctions reads the PCI functions from sysfs.
func ReadFunctions(sys Files) (*Seen, error) {
	const dir = "bus/pci/devices"
	entries, err := fs.ReadDir(sys, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a VM without PCI has no directory
		return nil, fmt.Errorf("list PCI functions: %w", err)
	}
	seen := &Seen{Functions: []Function{}}
	for _, e := range entries {
		f := Function{Address: e.Name()}
		for name, to := range map[string]*string{"vendor": &f.Vendor, "device": &f.Device, "class": &f.Class} {
			text, err := fs.ReadFile(sys, dir+"/"+e.Name()+"/"+name)
			if err != nil {
				return nil, fmt.Errorf("read PCI function %s: %w", f.Address, err)
			}
			*to = strings.TrimPrefix(strings.TrimSpace(string(text)), "0x")
		}
		link, err := sys.ReadLink(dir + "/" + e.Name() + "/driver")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the driver of PCI function %s: %w", f.Address, err)
		}
		f.Driver = link[strings.LastIndex(link, "/")+1:]
		seen.Functions = append(seen.Functions, f)
	}
	return seen, nil
}

// Count returns how many functions have these ids.
func (s *Seen) Count(vendor, device string) (n int) {
	for _, f := range s.Functions {
		if f.Vendor == vendor && f.Device == device {
			n++
		}
	}
	return n
}

// Lacking compares what the VM sees with the devices that the metadata below dir gives to this container. It returns how many devices
// were compared, and says what is missing. The error is an [InputError] if there is no device that can be compared.
func (s *Seen) Lacking(dir string) (compared int, missing []string, err error) {
	if dir == "" {
		dir = DefaultMetadataDir
	}
	entries, err := readEntries(dir)
	if err != nil {
		return 0, nil, err
	}
	want := map[[2]string]int{}
	for i := range entries {
		ids := [2]string{entries[i].text("vendor"), entries[i].text("device")}
		if ids[0] == "" || ids[1] == "" {
			continue // VFs of a node with few attributes (publish.vfAttributes)
		}
		compared++
		want[ids]++
	}
	if compared == 0 {
		return 0, nil, inputErrorf("%s has %s of %s, none with PCI ids; does the container name the claim in resources.claims?", dir, output.Count(len(entries), "device"), v1alpha1.DriverName)
	}
	for ids, n := range want {
		if got := s.Count(ids[0], ids[1]); got != n {
			missing = append(missing, fmt.Sprintf("%s %s:%s, the claims give %d", output.Count(got, "function"), ids[0], ids[1], n))
		}
	}
	slices.Sort(missing)
	return compared, missing, nil
}

// text returns an attribute's text; empty if there is none.
func (e *entry) text(name string) string {
	a, ok := e.attribute(resourceapi.QualifiedName(name))
	if !ok || a.StringValue == nil {
		return ""
	}
	return *a.StringValue
}

package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// idsFiles are where distributions put the pci.ids database.
func idsFiles() []string {
	return []string{"usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids"}
}

// Names looks up the names of vendors and models in a pci.ids database (pci.ids(5)). A nil *Names knows no name. It is safe for concurrent
// use.
//
// The database has forty thousand names, of which a node needs about ten. So Names keeps the text as it is, with an index of its vendors,
// and loading it takes one pass over its lines.
type Names struct {
	text    string
	vendors map[pci.ID]int // where the vendor's line begins
}

// LoadNames reads the node's database; nil if it has none.
func LoadNames(fsys *sysfs.FS) (*Names, error) {
	for _, file := range idsFiles() {
		data, err := fsys.ReadFile(file)
		if err == nil {
			return ParseNames(data), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("load PCI names: %w", err)
		}
	}
	return nil, nil
}

// ParseNames indexes the text of a database. Lines that make no sense are
// passed over: names are for display.
func ParseNames(data []byte) *Names {
	n := &Names{text: string(data), vendors: map[pci.ID]int{}}
	at := 0
	for line := range strings.Lines(n.text) {
		if strings.HasPrefix(line, "C ") { // the classes follow
			break
		}
		if !belongs(line) {
			if id, _, ok := entry(line); ok {
				n.vendors[id] = at
			}
		}
		at += len(line)
	}
	return n
}

// Name returns the names of a vendor and of its device, empty if unknown.
func (n *Names) Name(vendor, dev pci.ID) (vendorName, model string) {
	if n == nil {
		return "", ""
	}
	at, ok := n.vendors[vendor]
	if !ok {
		return "", ""
	}
	first := true
	for line := range strings.Lines(n.text[at:]) {
		if first {
			_, vendorName, _ = entry(line)
			first = false
			continue
		}
		if !belongs(line) {
			break
		}
		if id, name, ok := entry(strings.TrimPrefix(line, "\t")); ok && id == dev {
			return vendorName, name
		}
	}
	return vendorName, ""
}

// belongs reports whether a line is part of the vendor above it.
func belongs(line string) bool {
	return strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "#") || line == "\n"
}

// entry splits a line such as "10de  NVIDIA Corporation". It returns false for a line without an ID and a name.
func entry(line string) (id pci.ID, name string, ok bool) {
	digits, name, ok := strings.Cut(line, "  ")
	if !ok || id.UnmarshalText([]byte(digits)) != nil {
		return 0, "", false
	}
	return id, strings.TrimSpace(name), true
}

// Apply sets the names in a snapshot that was scanned without names, so that the names can be loaded during the scan. The snapshot must not
// be shared yet.
func (n *Names) Apply(s *device.Snapshot) {
	functions := make([]*device.Function, len(s.Functions))
	for i := range s.Functions {
		functions[i] = &s.Functions[i]
	}
	n.apply(functions)
}

// apply names the functions.
func (n *Names) apply(functions []*device.Function) {
	if n == nil {
		return
	}
	type key struct{ vendor, device pci.ID }
	type names struct{ vendor, model string }
	known := map[key]names{}
	for _, f := range functions {
		k := key{f.Vendor, f.Device}
		found, ok := known[k]
		if !ok {
			found.vendor, found.model = n.Name(k.vendor, k.device)
			known[k] = found
		}
		f.VendorName, f.Model = found.vendor, found.model
	}
}

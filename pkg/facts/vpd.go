package facts

import (
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// maxVPD is how much is read of a function's vital product data. The device hands
// out four bytes at a time, and its identity stands at the front.
const maxVPD = 1 << 10

// VPD returns the printable part of a function's vital product data. Each word of it
// is asked of the device, so that only a check that depends on it should read it.
func (n *Node) VPD(a pci.Address) Fact {
	name := path.Join("sys/bus/pci/devices", a.String(), "vpd")
	return n.once(n.files, name, func() Fact {
		data, err := n.fs.ReadAtMost(name, maxVPD)
		seen := fact(name, printable(data), "read", err)
		seen.Needs = "root"
		return seen
	})
}

// printable returns text with each run of other bytes as one space.
func printable(data []byte) string {
	words := strings.FieldsFunc(string(data), func(r rune) bool { return r <= ' ' || r > '~' })
	return strings.Join(words, " ")
}

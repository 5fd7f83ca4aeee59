package facts

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Command returns the command register of a function, of which no more than the
// six bytes up to it are read. A function that is locked or does not answer is
// not touched.
func (n *Node) Command(f *device.Function) (uint16, Fact) {
	const end = 6
	name := path.Join(sysfs.FunctionPath(f.Address), "config")
	seen := Fact{Path: "/" + name, How: "config"}
	if f.Locked || f.ConfigDead {
		seen.Status, seen.Err = Broken, "the function does not answer"
		return 0, seen
	}
	head, err := n.fs.ReadAtMost(name, end)
	seen = fact(name, "", "config", err)
	if seen.OK() && len(head) < end {
		seen.Status, seen.Err = Broken, "it is too short"
	}
	if !seen.OK() {
		return 0, seen
	}
	command := binary.LittleEndian.Uint16(head[end-2:])
	seen.Value = fmt.Sprintf("command 0x%04x", command)
	return command, seen
}

// FatalErrors returns how many fatal errors the kernel counted for a function
// since it was found (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats).
func (n *Node) FatalErrors(f *device.Function) (uint64, Fact) {
	file := n.Read(path.Join(sysfs.FunctionPath(f.Address), "aer_dev_fatal"))
	if !file.OK() {
		return 0, file
	}
	if total, ok := pci.ParseFatalErrors(file.Value); ok {
		return total, file
	}
	file.Status, file.Err = Broken, "it has no total"
	return 0, file
}

// Permissions returns who may do what with a file of the node, links followed.
func (n *Node) Permissions(name string) (fs.FileMode, Fact) {
	name = strings.TrimPrefix(path.Clean(name), "/")
	info, err := n.fs.Stat(name)
	seen := fact(name, "", "stat", err)
	if !seen.OK() {
		return 0, seen
	}
	seen.Value = info.Mode().String()
	return info.Mode().Perm(), seen
}

// Config returns what is readable of a function's configuration space; the fact's value
// is the caller's to fill in. A function that is locked or does not answer is not
// touched.
func (n *Node) Config(a pci.Address) ([]byte, Fact) {
	seen := Fact{Path: "/" + path.Join(sysfs.FunctionPath(a), "config"), How: "config"}
	f, ok := n.Snapshot.Function(a)
	if !ok || f.Locked || f.ConfigDead {
		seen.Status, seen.Err = Broken, "the function does not answer"
		return nil, seen
	}
	registers, err := n.fs.ConfigSpace(a)
	if err != nil {
		return nil, broken(seen.Path, seen.How, err)
	}
	const header = 64
	if len(registers) <= header {
		seen.Status, seen.Err = Denied, "the header alone is readable"
		return nil, seen
	}
	return registers, seen
}

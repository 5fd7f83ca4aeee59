// Package look reads what a VM sees of its hardware, from inside.
package look

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// Report reads what the VM's kernel has found: functions, interfaces, displays, disks. It may be repeated.
func Report() (*protocol.Report, error) {
	var r protocol.Report
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Sscan(string(uptime), &r.Uptime); err != nil {
		return nil, fmt.Errorf("parse the uptime %q: %w", uptime, err)
	}
	r.Functions, err = functions()
	if err != nil {
		return nil, err
	}
	r.Interfaces, err = Interfaces()
	if err != nil {
		return nil, err
	}
	var errs [3]error
	r.Displays, errs[0] = nodes("/sys/class/drm/card[0-9]*")
	r.Framebuffers, errs[1] = nodes("/sys/class/graphics/fb[0-9]*")
	r.NVMe, errs[2] = nodes("/sys/class/nvme/nvme[0-9]*")
	return &r, errors.Join(errs[:]...)
}

func functions() ([]protocol.Function, error) {
	dirs, err := filepath.Glob("/sys/bus/pci/devices/*")
	if err != nil {
		return nil, err
	}
	var found []protocol.Function
	for _, dir := range dirs {
		f := protocol.Function{Address: filepath.Base(dir), Driver: linkName(filepath.Join(dir, "driver"))}
		for name, into := range map[string]*string{"vendor": &f.Vendor, "device": &f.Device, "class": &f.Class} {
			text, err := attribute(filepath.Join(dir, name))
			if err != nil {
				return nil, err
			}
			*into = strings.TrimPrefix(text, "0x")
		}
		found = append(found, f)
	}
	return found, nil
}

// Interfaces are the network interfaces that have a PCI function.
func Interfaces() ([]protocol.Interface, error) {
	dirs, err := filepath.Glob("/sys/class/net/*/device")
	if err != nil {
		return nil, err
	}
	var found []protocol.Interface
	for _, device := range dirs {
		dir := filepath.Dir(device)
		mac, err := attribute(filepath.Join(dir, "address"))
		if err != nil {
			return nil, err
		}
		found = append(found, protocol.Interface{
			Name: filepath.Base(dir), Address: linkName(device), Driver: linkName(filepath.Join(device, "driver")),
			MAC: mac, Addresses: addresses(filepath.Base(dir)), Carrier: Carrier(dir),
		})
	}
	return found, nil
}

// addresses are those of an interface; it may be gone by now and have none.
func addresses(name string) []string {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil
	}
	list, err := i.Addrs()
	if err != nil {
		return nil
	}
	var all []string
	for _, a := range list {
		all = append(all, a.String())
	}
	return all
}

// Carrier tells of the interface whose directory of sysfs this is whether it has a link. It is nil while the interface is
// down: the attribute can't be read then.
func Carrier(dir string) *bool {
	text, err := attribute(filepath.Join(dir, "carrier"))
	if err != nil {
		return nil
	}
	up := text == "1"
	return &up
}

// nodes lists class devices with the PCI function each belongs to. DRM's connectors (card0-VGA-1) are none.
func nodes(pattern string) ([]protocol.Node, error) {
	dirs, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	var found []protocol.Node
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if strings.Contains(name, "-") {
			continue
		}
		path, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, err
		}
		found = append(found, protocol.Node{Name: name, Address: lastFunction(path)})
	}
	return found, nil
}

// lastFunction is the last PCI address in a path of sysfs: a device's own function is behind its bridges.
func lastFunction(path string) string {
	all := regexp.MustCompile(`[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]`).FindAllString(path, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

func attribute(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

// linkName is the last part of a symbolic link's target, or empty.
func linkName(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

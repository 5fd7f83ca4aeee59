package link

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Number returns the number of a PF's interface, by which it is asked for; 0 where
// it has none in the network namespace that sysfs shows.
func Number(fs *sysfs.FS, pf pci.Address) (int, error) {
	names, err := uplinks(fs, pf)
	if err != nil {
		return 0, fmt.Errorf("find the interface of PF %s: %w", pf, err)
	}
	if len(names) == 0 {
		return 0, nil
	}
	if len(names) > 1 { // two ports on one function (mlx4)
		return 0, fmt.Errorf("PF %s has several interfaces (%s), and which one its VFs belong to is not known", pf, strings.Join(names, ", "))
	}
	text, err := fs.ReadString(path.Join(netDir(pf), names[0], "ifindex"))
	if err != nil {
		return 0, fmt.Errorf("find the interface of PF %s: %w", pf, err)
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("interface %s of PF %s: number %q: %w", names[0], pf, text, err)
	}
	return number, nil
}

func netDir(pf pci.Address) string { return path.Join(sysfs.FunctionPath(pf), "net") }

// representor is the port name of an interface that stands for a VF or a
// subfunction in switchdev mode ("pf0vf3", "c1pf0sf88"); it hangs on the PF's
// function like the PF's own (Documentation/networking/switchdev.rst).
var representor = regexp.MustCompile(`pf\d+(vf|sf)\d+$`)

// uplinks returns the PF's interfaces without representors.
func uplinks(fs *sysfs.FS, pf pci.Address) ([]string, error) {
	dir := netDir(pf)
	there, err := fs.Exists(dir)
	if err != nil || !there {
		return nil, err
	}
	names, err := fs.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		port, err := fs.ReadString(path.Join(dir, name, "phys_port_name"))
		return err == nil && representor.MatchString(port) // drivers without port names answer EOPNOTSUPP
	}), nil
}

package nested

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Where the device nodes lie.
const (
	groupDir = "/dev/vfio"
	cdevDir  = "/dev/vfio/devices"
)

// Where sysfs, relative to its root, has what is behind them.
const (
	sysGroups = "kernel/iommu_groups"
	sysCdevs  = "class/vfio-dev"
	sysPCI    = "bus/pci/devices"
)

// assigned is a function for the VM.
type assigned struct {
	address string
	iommufd bool
}

// resolve finds the functions behind device nodes, in order: the one of a cdev, and of a group the one that Kata plugs
// before the VM boots.
func resolve(sys string, nodes []string) ([]assigned, error) {
	var found []assigned
	for _, node := range nodes {
		var one assigned
		var err error
		switch filepath.Dir(node) {
		case cdevDir:
			one, err = cdev(sys, filepath.Base(node))
		case groupDir:
			one, err = group(sys, filepath.Base(node))
		default:
			err = fmt.Errorf("neither a group in %s nor a device in %s", groupDir, cdevDir)
		}
		if err != nil {
			return nil, fmt.Errorf("find the function of %s: %w", node, err)
		}
		found = append(found, one)
	}
	return found, nil
}

func cdev(sys, name string) (assigned, error) {
	path, err := os.Readlink(filepath.Join(sys, sysCdevs, name, "device"))
	return assigned{address: filepath.Base(path), iommufd: true}, err
}

// ignored are the classes of host and PCI bridges, which Kata leaves out of a group.
func ignored() []string { return []string{"0x0600", "0x0604"} }

// group returns the first function of a group that is not a bridge, the one that Kata's Go runtime cold-plugs.
func group(sys, number string) (assigned, error) {
	entries, err := os.ReadDir(filepath.Join(sys, sysGroups, number, "devices"))
	if err != nil {
		return assigned{}, err
	}
	for _, e := range entries {
		class, err := os.ReadFile(filepath.Join(sys, sysPCI, e.Name(), "class"))
		if err != nil {
			return assigned{}, err
		}
		if !slices.ContainsFunc(ignored(), func(prefix string) bool { return strings.HasPrefix(string(class), prefix) }) {
			return assigned{address: e.Name()}, nil
		}
	}
	return assigned{}, fmt.Errorf("group %s has only bridges: %w", number, fs.ErrNotExist)
}

// deviceArgs are QEMU's arguments for the functions. As Kata's are, each iommufd object is of one function, so that two
// functions of one IOMMU group fail: the kernel lets one iommufd context have a group.
func deviceArgs(functions []assigned) []string {
	var args []string
	for i, f := range functions {
		device := fmt.Sprintf("vfio-pci,host=%s,bus=port%d", f.address, i)
		if f.iommufd {
			args = append(args, "-object", fmt.Sprintf("iommufd,id=iommufd%d", i))
			device += fmt.Sprintf(",iommufd=iommufd%d", i)
		}
		port := fmt.Sprintf("pcie-root-port,id=port%d,chassis=%d", i, i+1)
		args = append(args, "-device", port, "-device", device)
	}
	return args
}

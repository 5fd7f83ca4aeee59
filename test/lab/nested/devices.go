package nested

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Where the device nodes lie.
const (
	groupDir  = "/dev/vfio"
	cdevDir   = "/dev/vfio/devices"
	sysGroups = "/sys/kernel/iommu_groups"
	sysCdevs  = "/sys/class/vfio-dev"
	sysPCI    = "/sys/bus/pci/devices"
)

// assigned is a function for the VM.
type assigned struct {
	address string
	iommufd bool
}

// resolve finds the functions behind device nodes, in order: all of a group but its bridges, or the one of a cdev.
func resolve(nodes []string) ([]assigned, error) {
	var found []assigned
	for _, node := range nodes {
		var some []assigned
		var err error
		switch filepath.Dir(node) {
		case cdevDir:
			some, err = cdev(filepath.Base(node))
		case groupDir:
			some, err = group(filepath.Base(node))
		default:
			err = fmt.Errorf("neither a group in %s nor a device in %s", groupDir, cdevDir)
		}
		if err != nil {
			return nil, fmt.Errorf("find the function of %s: %w", node, err)
		}
		found = append(found, some...)
	}
	return found, nil
}

func cdev(name string) ([]assigned, error) {
	path, err := os.Readlink(filepath.Join(sysCdevs, name, "device"))
	if err != nil {
		return nil, err
	}
	return []assigned{{address: filepath.Base(path), iommufd: true}}, nil
}

func group(number string) ([]assigned, error) {
	entries, err := os.ReadDir(filepath.Join(sysGroups, number, "devices"))
	if err != nil {
		return nil, err
	}
	var found []assigned
	for _, e := range entries {
		class, err := os.ReadFile(filepath.Join(sysPCI, e.Name(), "class"))
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(string(class), "0x06") {
			found = append(found, assigned{address: e.Name()})
		}
	}
	return found, nil
}

// deviceArgs are QEMU's arguments for the functions.
func deviceArgs(functions []assigned) []string {
	var args []string
	for _, f := range functions {
		if f.iommufd {
			args = append(args, "-object", "iommufd,id=iommufd0")
			break
		}
	}
	for i, f := range functions {
		device := fmt.Sprintf("vfio-pci,host=%s,bus=port%d", f.address, i)
		if f.iommufd {
			device += ",iommufd=iommufd0"
		}
		port := fmt.Sprintf("pcie-root-port,id=port%d,chassis=%d", i, i+1)
		args = append(args, "-device", port, "-device", device)
	}
	return args
}

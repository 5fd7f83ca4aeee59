package host

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// nvlsmConfig is a file of the package nvlsm, NVIDIA's subnet manager of the NVSwitches (ubuntu24.04/nvidia-driver in
// NVIDIA/gpu-driver-container).
const nvlsmConfig = "usr/share/nvidia/nvlsm/nvlsm.conf"

// managedSwitches prepares the start of Fabric Manager on boards whose NVSwitches are behind ConnectX functions (B200, B300). Its unit starts
// nvlsm itself: ExecStart is nvidia-fabricmanager-start.sh, which recognizes the board by SW_MNG, refuses without ib_umad and ibstat, and starts
// both (pull requests 717 of siderolabs/extensions and 700 of spectrocloud/CanvOS, and the function _start_daemons of gpu-driver-container).
// NVIDIA's packages have no unit of nvlsm, and one of the node's own would compete with that script for the fabric.
func (n *node) managedSwitches() {
	found, hidden := n.switchManagers()
	if len(hidden) > 0 {
		n.fact(fabricPart, "NVSwitches", "unknown: no vital product data of "+strings.Join(hidden, ", "), devicesDir)
	}
	if len(found) == 0 {
		return
	}
	n.fact(fabricPart, "NVSwitches", "managed by "+strings.Join(found, ", "), devicesDir)
	names := []string{"mlx5_ib", "ib_umad"}
	if known := n.platform.Modules; known != nil {
		names = slices.DeleteFunc(names, func(name string) bool { return !known[name].Loadable })
	}
	if len(names) > 0 {
		n.file(state.File{
			Part: fabricPart, Path: "etc/modules-load.d/kata-vfio-fabric.conf", Content: []byte(header + strings.Join(names, "\n") + "\n"),
			Why: "nvlsm reaches the NVSwitches by InfiniBand", Then: []state.FollowUp{state.Reboot},
		})
	}
	value := "installed; Fabric Manager starts it"
	if _, err := n.tree.ReadAtMost(n.real(nvlsmConfig), 1<<20); err != nil {
		value = "not found; install nvlsm and infiniband-diags, without which Fabric Manager does not start"
	}
	n.fact(fabricPart, "nvlsm", value, "/"+nvlsmConfig)
}

const devicesDir = "sys/bus/pci/devices"

// switchManagers returns the ConnectX functions that manage NVSwitches, and the ConnectX functions whose vital product data
// can't be read. It reads this data only if the node has a GPU whose NVSwitches are managed in this way: a device takes time
// for each word of the data.
func (n *node) switchManagers() (found, hidden []string) {
	names, err := n.tree.ReadDir(devicesDir)
	if err != nil {
		return nil, nil // an image has none
	}
	managed := slices.ContainsFunc(names, func(name string) bool {
		return n.id(name, "vendor") == pci.VendorNVIDIA && fabric.HasManagedSwitches(n.id(name, "device"))
	})
	if !managed {
		return nil, nil
	}
	for _, name := range names {
		// A VF has a directory physfn, and no such data.
		if vf, _ := n.tree.ReadDir(path.Join(devicesDir, name, "physfn")); len(vf) > 0 || n.id(name, "vendor") != pci.VendorMellanox {
			continue
		}
		vpd, _, err := n.read(path.Join(devicesDir, name, "vpd")) // if it is locked, there is an error
		switch {
		case err != nil:
			hidden = append(hidden, name)
		case fabric.ManagesSwitches(string(vpd)):
			found = append(found, name)
		}
	}
	return found, hidden
}

// id returns an ID of a function; 0 if it can't be read.
func (n *node) id(function, attribute string) pci.ID {
	text, err := n.tree.ReadAtMost(path.Join(devicesDir, function, attribute), 1<<10)
	if err != nil {
		return 0
	}
	id, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(string(text)), "0x"), 16, 16)
	if err != nil {
		return 0
	}
	return pci.ID(id)
}

package node

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

const (
	// FabricManager is the service of the board's scripted Fabric Manager.
	FabricManager = "fabric-manager"
	// fabricSocket is where bootstrap has NVIDIA's serve its API.
	fabricSocket = "/run/kata-vfio-fabric/fabricmanager.sock"

	// BoardGPU1 is a board's GPU on its module 1. The order of the modules is not that of their addresses.
	BoardGPU1 = topology.GPU5
	// BoardGPU3 is the one on module 3.
	BoardGPU3 = topology.GPU2
	// BoardPartition is the device of both.
	BoardPartition = "gpu-x2-0000-66-69"
	// BoardIDs1 are what a VM sees of BoardGPU1: the stand-in's own vendor, device and class, in its registers.
	BoardIDs1 = "1234 1111 038000"
	// BoardIDs3 are the same of BoardGPU3.
	BoardIDs3 = "1002 5046 030000"
	// boardIDs are those that the node's kernel has of them on a board: an H100's.
	boardIDs = "10de 2330 030200"
)

// boardPartitions are those that Fabric Manager lists, with their modules.
func boardPartitions() []string { return []string{"0=1,3", "1=1", "2=3"} }

// BoardSettings are the chart's for a node with the board, as deploy/guides/hgx.md has them.
func BoardSettings() []string {
	const modules = "nodeConfig.fabric.modules"
	return []string{
		"plugin.fabric.enabled=true", "deviceClasses.gpu-x2.enabled=true",
		modules + "[0].module=1", modules + "[0].address=" + BoardGPU1, modules + "[1].module=3", modules + "[1].address=" + BoardGPU3,
	}
}

// SetIDs is the beginning of a script with the function `ids ADDRESS VENDOR DEVICE CLASS`, which has the kernel take a PCI function for
// another one.
const SetIDs = `set -e
modprobe labids
ids() { echo "$@" >/sys/module/labids/parameters/set; }
`

// makeBoard makes the stand-ins GPUs of a board, on vfio-pci before the plugin sees them, as bootstrap has a node boot: no driver of the
// node takes them back. unmakeBoard ends that.
const (
	makeBoard = SetIDs + `for a in ` + BoardGPU1 + ` ` + BoardGPU3 + `; do
	cd /sys/bus/pci/devices/$a
	[ ! -e driver ] || echo $a >driver/unbind
	echo vfio-pci >driver_override
	ids $a ` + boardIDs + `
	echo $a >/sys/bus/pci/drivers_probe
done`
	unmakeBoard = SetIDs + `for a in ` + BoardGPU1 + ` ` + BoardGPU3 + `; do
	cd /sys/bus/pci/devices/$a
	[ ! -e driver ] || echo $a >driver/unbind
	echo >driver_override
done
ids ` + BoardGPU1 + ` ` + BoardIDs1 + `
ids ` + BoardGPU3 + ` ` + BoardIDs3 + `
echo ` + BoardGPU1 + ` >/sys/bus/pci/drivers_probe`
)

// StartBoard starts Fabric Manager, and makes two stand-ins GPUs of its board. The node needs Config.Board.
func (n *Node) StartBoard(ctx context.Context) error {
	if err := n.StartFabricManager(); err != nil {
		return err
	}
	return n.script(ctx, "make a board", makeBoard)
}

// StopBoard ends what StartBoard began. No VM may have one of the GPUs.
func (n *Node) StopBoard(ctx context.Context) error {
	return errors.Join(n.script(ctx, "end the board", unmakeBoard), n.StopService(ctx, FabricManager))
}

// StartFabricManager starts the scripted Fabric Manager, with further flags of its own. All partitions are inactive.
func (n *Node) StartFabricManager(flags ...string) error {
	args := append([]string{AskFabricManager("")[0], "-socket", fabricSocket}, flags...)
	return n.StartService(FabricManager, append(args, boardPartitions()...)...)
}

// AskFabricManager is the command that makes a call to Fabric Manager, such as "partitions", and prints the answer: a line with the code,
// and one for each partition with its number, 1 if it is active, and its modules.
func AskFabricManager(call string) []string {
	return []string{filepath.Join(Dir, "bin", FabricManager), "-socket", fabricSocket, "-ask", call}
}

package sysfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// A node's files are read below one root: "/" on a live node, or, as here, the root of a scripted kernel.
func Example() {
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	kernel, err := sysfstest.NewAt(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer kernel.Close()
	gpu := kernel.AddGPU(0x3b)

	node, err := sysfs.Open(kernel.Root())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close()
	driver, err := node.Driver(gpu)
	fmt.Println(gpu, "is bound to", driver, err)
	class, err := node.ReadString(sysfs.FunctionPath(gpu) + "/class")
	fmt.Println("class", class, err)

	// An absent attribute is told from one that can't be read.
	_, err = node.ReadString(sysfs.FunctionPath(gpu) + "/sriov_totalvfs")
	fmt.Println("no SR-IOV:", errors.Is(err, fs.ErrNotExist))
	_, err = node.Driver(pci.Address{Bus: 0x7f})
	fmt.Println("no function:", errors.Is(err, sysfs.ErrNoFunction))
	// Output:
	// 0000:3b:00.0 is bound to nvidia <nil>
	// class 0x030200 <nil>
	// no SR-IOV: true
	// no function: true
}

package lab

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/remote"
)

// Files in a machine's directory.
const (
	shareDir    = "share"
	stateFile   = "state.img"
	initrdFile  = "initrd.img"
	consoleFile = "console.log"
	qemuLog     = "qemu.log"
	monitorFile = "qmp.sock"
)

// qemuArgs are the arguments of the machine's QEMU, without the command itself.
func qemuArgs(c Config, img image.Image, dir string) []string {
	in := func(name string) string { return filepath.Join(dir, name) }
	args := []string{
		"-name", "kata-vfio-lab", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "q35", "-accel", "tcg,thread=multi,tb-size=512",
		// The firmware reserves 2^(bits-11) bytes for each port behind a switch, below 4 GiB if a device there has
		// a 32-bit BAR; with the usual 40 bits it runs out of room and stops without a word.
		"-cpu", "max,phys-bits=37",
		"-device", "intel-iommu,intremap=on,caching-mode=on",
		"-kernel", img.Kernel(), "-initrd", in(initrdFile), "-append", c.kernelLine(),
		"-serial", "file:" + in(consoleFile),
		"-qmp", "unix:" + in(monitorFile) + ",server=on,wait=off",
	}
	args = append(args, memoryArgs(c)...)
	args = append(args, diskArgs(img.Disk(), "root", "readonly=on")...)
	args = append(args, diskArgs(in(stateFile), "state", "cache=writeback")...)
	args = append(args,
		"-fsdev", "local,id=host,path="+in(shareDir)+",security_model=none,multidevs=remap",
		"-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
		"-netdev", "user,id=outside,net=10.0.2.0/24"+forwards(c),
		"-device", "virtio-net-pci,netdev=outside,romfile=",
	)
	return append(args, c.Topology.Args()...)
}

// forwards are the ports of this host that lead to the machine. The agent's is port 0: the kernel chooses a free one,
// and the monitor tells which.
func forwards(c Config) string {
	var text strings.Builder
	for _, f := range append(c.Forwards, Forward{0, remote.Port}) {
		fmt.Fprintf(&text, ",hostfwd=tcp:127.0.0.1:%d-:%d", f.Host, f.Machine)
	}
	return text.String()
}

// memoryArgs splits memory and processors over two NUMA nodes, a socket each. One processor is on the first node, and the
// second has memory alone.
func memoryArgs(c Config) []string {
	first := max(c.CPUs/2, 1)
	args := []string{
		"-m", fmt.Sprintf("%dM", c.MemoryMiB), "-smp", fmt.Sprintf("%d,sockets=%d", c.CPUs, min(c.CPUs, 2)),
		"-object", fmt.Sprintf("memory-backend-ram,id=mem0,size=%dM", c.MemoryMiB/2),
		"-object", fmt.Sprintf("memory-backend-ram,id=mem1,size=%dM", c.MemoryMiB/2),
		"-numa", fmt.Sprintf("node,nodeid=0,cpus=0-%d,memdev=mem0", first-1),
	}
	second := "node,nodeid=1,memdev=mem1"
	if c.CPUs > first {
		second += fmt.Sprintf(",cpus=%d-%d", first, c.CPUs-1)
	}
	return append(args, "-numa", second)
}

func diskArgs(file, serial, option string) []string {
	return []string{
		"-drive", fmt.Sprintf("if=none,id=%s,file=%s,format=raw,%s", serial, file, option),
		"-device", fmt.Sprintf("virtio-blk-pci,drive=%s,serial=%s", serial, serial),
	}
}

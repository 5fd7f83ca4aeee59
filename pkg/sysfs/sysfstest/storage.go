package sysfstest

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// AddMount mounts the file system of a block device: ("nvme0n1p1", "/data").
func (k *Kernel) AddMount(device, point string) {
	k.build(func() {
		n, ok := k.nodes["/dev/"+device]
		if !ok {
			k.wrong("mount %s: no such block device", device)
			return
		}
		k.host.mounts = append(k.host.mounts, fmt.Sprintf("%d 1 %s / %s rw,relatime shared:1 - ext4 /dev/%s rw",
			len(k.host.mounts)+30, n, point, device))
		k.showMounts()
	})
}

// AddSwap uses a block device as swap.
func (k *Kernel) AddSwap(device string) {
	k.build(func() {
		k.host.swaps = append(k.host.swaps, fmt.Sprintf("%-40spartition\t1048572\t\t0\t\t-2", "/dev/"+device))
		k.showMounts()
	})
}

// AddStack puts a device-mapper device on a block device: ("nvme0n1p1", "dm-0").
func (k *Kernel) AddStack(device, upper string) {
	k.build(func() {
		dir := path.Join("sys/devices/virtual/block", upper)
		lower := k.real(path.Join("sys/class/block", device))
		k.mkdir(path.Join(dir, "slaves"))
		k.link(path.Join("sys/class/block", upper), dir)
		k.link(path.Join(dir, "slaves", device), lower)
		k.link(path.Join(lower, "holders", upper), dir)
	})
}

// showMounts writes what proc says about mounts and swap. Callers hold mu.
func (k *Kernel) showMounts() {
	info := []string{"20 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw"}
	mounts := []string{"/dev/root / ext4 rw,relatime 0 0"}
	for _, m := range k.host.mounts {
		f := strings.Fields(m)
		info = append(info, m)
		mounts = append(mounts, fmt.Sprintf("%s %s ext4 rw,relatime 0 0", f[len(f)-2], f[4]))
	}
	k.put("proc/1/mountinfo", lines(info...), readOnly)
	k.put("proc/1/mounts", lines(mounts...), readOnly)
	k.put("proc/swaps", lines(append([]string{"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"}, k.host.swaps...)...), readOnly)
}

// real returns where a path of the tree leads, itself a path of the tree.
// Callers hold mu.
func (k *Kernel) real(name string) string {
	whole, err := filepath.EvalSymlinks(k.Path(name))
	if err != nil {
		k.wrong("follow %s: %w", name, err)
		return name
	}
	base, err := filepath.EvalSymlinks(k.dir)
	if err != nil {
		k.wrong("follow %s: %w", k.dir, err)
		return name
	}
	rel, err := filepath.Rel(base, whole)
	if err != nil {
		k.wrong("follow %s: %w", name, err)
		return name
	}
	return rel
}

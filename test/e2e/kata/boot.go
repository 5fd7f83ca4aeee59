package kata

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Kata's own guest, below Dir on the node.
const (
	guestKernel = "guest/kernel"
	guestRoot   = "guest/root"
)

// guest is what a configuration says that VMs boot, as files of this host: a kernel, and an image or an initial RAM file system.
type guest struct{ kernel, image, initrd string }

func (g guest) root() string { return cmp.Or(g.image, g.initrd) }

// configuration has the settings of Kata's configuration that the lab reads.
type configuration struct {
	Hypervisor struct {
		QEMU struct{ Kernel, Image, Initrd string } `toml:"qemu"`
	}
	Runtime struct{ Name string }
}

func readConfiguration(path string) (configuration, error) {
	var c configuration
	text, err := os.ReadFile(path)
	if err == nil {
		err = toml.Unmarshal(text, &c)
	}
	if err != nil {
		return c, fmt.Errorf("read Kata's configuration %s: %w", path, err)
	}
	return c, nil
}

// rustName is the value of runtime.name that only configurations of the Rust runtime have.
const rustName = "virt_container"

// runtimeOf tells which runtime a configuration is for. One that can't be read is the Go runtime's: Find says what is wrong with it.
func runtimeOf(config string) Runtime {
	if c, err := readConfiguration(config); err == nil && c.Runtime.Name == rustName {
		return Rust
	}
	return Go
}

// readGuest finds what a configuration names, which is below Dir where the release is unpacked at its place, and below dir here.
func readGuest(config, dir string) (guest, error) {
	c, err := readConfiguration(config)
	if err != nil {
		return guest{}, err
	}
	here := func(path string) string {
		if rest, below := strings.CutPrefix(path, Dir+"/"); below {
			return filepath.Join(dir, rest)
		}
		return path
	}
	qemu := c.Hypervisor.QEMU
	g := guest{kernel: here(qemu.Kernel), image: here(qemu.Image), initrd: here(qemu.Initrd)}
	for _, file := range []string{g.kernel, g.root()} {
		if _, err := os.Stat(file); err != nil {
			return guest{}, fmt.Errorf("find the guest that %s names: %w. Name a static kata-agent by KATA_AGENT instead, for a guest of the lab's: "+
				"test/e2e/README.md, \"A static agent\", has the lines that build one", config, err)
		}
	}
	return g, nil
}

// BootFiles are the paths on the node of what VMs boot; of image and initrd one is empty. ours and initramfs are the lab's guest.
func (i Install) BootFiles(ours, initramfs string) (kernel, image, initrd string) {
	own := func(file string) string { return filepath.Join(Dir, file) }
	switch {
	case i.labOwn:
		return ours, "", initramfs
	case i.guest.image != "":
		return own(guestKernel), own(guestRoot), ""
	default:
		return own(guestKernel), "", own(guestRoot)
	}
}

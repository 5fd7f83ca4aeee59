package sanitizer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// nvmeNode is a controller by the devices of the kernel's driver nvme.
type nvmeNode struct {
	g          *guest
	root       string
	dir        string // of the controller in sysfs
	file       *os.File
	namespaces map[uint32]*os.File
	appear     time.Duration // how long the kernel may take to make a namespace's device
}

// openNVMe opens the controller of a function.
func openNVMe(ctx context.Context, g *guest, root string, f function) (*nvmeNode, error) {
	dir := attributePath(f.address, "nvme")
	names, err := g.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(names) != 1 {
		return nil, fmt.Errorf("%s is not bound to the driver nvme: use a guest kernel with CONFIG_BLK_DEV_NVME", f)
	}
	if err != nil {
		return nil, fmt.Errorf("find the NVMe controller of %s: %w", f, err)
	}
	n := &nvmeNode{g: g, root: root, dir: path.Join(dir, names[0]), namespaces: map[uint32]*os.File{}, appear: 30 * time.Second}
	if n.file, err = n.open(n.dir, names[0], unix.S_IFCHR); err != nil {
		return nil, fmt.Errorf("open the NVMe controller of %s: %w", f, err)
	}
	return n, ctx.Err()
}

func (n *nvmeNode) close() {
	_ = n.file.Close() // all writes have completed by ioctl
	n.forget()
}

// forget closes the namespaces' devices.
func (n *nvmeNode) forget() {
	for id, f := range n.namespaces {
		_ = f.Close()
		delete(n.namespaces, id)
	}
}

func (n *nvmeNode) admin(c *nvmeCommand) (uint32, error) {
	return c.execute(int(n.file.Fd()), ioctlAdmin)
}

func (n *nvmeNode) io(c *nvmeCommand) error {
	f, err := n.namespace(c.nsid)
	if err != nil {
		return err
	}
	_, err = c.execute(int(f.Fd()), ioctlIO)
	return err
}

func (n *nvmeNode) rescan() error {
	n.forget()
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, n.file.Fd(), ioctlRescan, 0)
	if errno != 0 {
		return fmt.Errorf("rescan the controller: %w", errno)
	}
	return nil
}

// namespace returns the open device of a namespace. The kernel makes it some time after the namespace was attached.
func (n *nvmeNode) namespace(id uint32) (*os.File, error) {
	if f := n.namespaces[id]; f != nil {
		return f, nil
	}
	deadline := time.Now().Add(n.appear)
	for {
		dir, name, err := n.find(id)
		if err == nil {
			n.namespaces[id], err = n.open(dir, name, unix.S_IFBLK)
			return n.namespaces[id], err
		}
		if !errors.Is(err, errNoDevice) || time.Now().After(deadline) {
			return nil, err
		}
		<-time.After(100 * time.Millisecond)
	}
}

var errNoDevice = errors.New("the VM's kernel has no device for it")

// find returns the directory in sysfs and the name of a namespace's block device: "nvme0n1" below the controller, or with
// native multipath "nvme0c0n1" there, whose head "nvme0n1" takes the commands (drivers/nvme/host/core.c nvme_alloc_ns).
func (n *nvmeNode) find(id uint32) (dir, name string, err error) {
	names, err := n.g.fs.ReadDir(n.dir)
	if err != nil {
		return "", "", fmt.Errorf("find namespace %d: %w", id, err)
	}
	block := regexp.MustCompile(`^(nvme\d+)(c\d+)?(n\d+)$`)
	for _, entry := range names {
		parts := block.FindStringSubmatch(entry)
		if parts == nil {
			continue
		}
		text, err := n.g.fs.ReadString(path.Join(n.dir, entry, "nsid"))
		if err != nil {
			return "", "", fmt.Errorf("find namespace %d: %w", id, err)
		}
		if text == strconv.FormatUint(uint64(id), 10) {
			name := parts[1] + parts[3]
			return path.Join("sys/class/block", name), name, nil
		}
	}
	return "", "", fmt.Errorf("namespace %d: %w", id, errNoDevice)
}

// open opens a device by its number in sysfs. A container may lack its node in /dev: then it makes one for the open.
func (n *nvmeNode) open(dir, name string, kind uint32) (*os.File, error) {
	text, err := n.g.fs.ReadString(path.Join(dir, "dev"))
	if err != nil {
		return nil, err
	}
	number, err := parseDevice(text)
	if err != nil {
		return nil, fmt.Errorf("number of %s: %w", name, err)
	}
	node := filepath.Join(n.root, "dev", name)
	var is unix.Stat_t
	if err := unix.Stat(node, &is); err == nil && is.Mode&unix.S_IFMT == kind && is.Rdev == number {
		return os.OpenFile(node, os.O_RDWR, 0)
	}
	return openNew(filepath.Join(n.root, "dev"), name, kind, number)
}

// openNew makes a device node in a new directory below dir, opens it, and removes both.
func openNew(dir, name string, kind uint32, number uint64) (f *os.File, err error) {
	private, err := os.MkdirTemp(dir, "sanitize-")
	if err != nil {
		return nil, fmt.Errorf("make a device node of %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(private)) }()
	node := filepath.Join(private, name)
	if err := unix.Mknod(node, kind|0o600, int(number)); err != nil {
		return nil, fmt.Errorf("make a device node of %s: %w; add the capability MKNOD to the container", name, err)
	}
	return os.OpenFile(node, os.O_RDWR, 0)
}

// parseDevice reads a device number: "259:0".
func parseDevice(text string) (uint64, error) {
	major, minor, ok := strings.Cut(text, ":")
	a, err1 := strconv.ParseUint(major, 10, 32)
	b, err2 := strconv.ParseUint(minor, 10, 32)
	if !ok || err1 != nil || err2 != nil {
		return 0, fmt.Errorf("%q is not MAJOR:MINOR", text)
	}
	return unix.Mkdev(uint32(a), uint32(b)), nil
}

package link

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// TestInterfaceWhosePortIsUnknown: while the kernel does not say which port an interface is, it may be a VF's representor.
// A FIFO can't be read either.
func TestInterfaceWhosePortIsUnknown(t *testing.T) {
	root, pf := t.TempDir(), pci.Address{Bus: 0x5e}
	dir := filepath.Join(root, netDir(pf), "eth0")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "ifindex"), []byte("7\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	fs, err := sysfs.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fs.Close() }()
	if number, err := Number(fs, pf); err != nil || number != 7 {
		t.Errorf("an interface without a port's name: %d, %v; want 7", number, err)
	}
	fifo := filepath.Join(dir, "phys_port_name")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if number, err := Number(fs, pf); !errors.Is(err, errNoAnswer) {
		t.Errorf("%d, %v; want %v", number, err, errNoAnswer)
	}
	if _, err := lock.WriteString("pf0vf3\n"); err != nil { // the read that hangs gets this
		t.Fatal(err)
	}
}

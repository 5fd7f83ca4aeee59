package sanitizer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// maxROM is the size of the largest expansion ROM (PCI Local Bus Specification 3.0, 6.2.5.2).
const maxROM = 16 << 20

// hashROM returns the SHA-256 of the function's expansion ROM, "" if it has none. The attribute rom returns the contents
// only between two writes (Documentation/PCI/sysfs-pci.rst).
func (g *guest) hashROM(ctx context.Context, a pci.Address) (string, error) {
	has, err := g.fs.Exists(attributePath(a, "rom"))
	if err != nil || !has {
		return "", err
	}
	if err := g.control.Write(ctx, control.ROM(a, true)); err != nil {
		return "", err
	}
	data, err := g.fs.ReadAtMost(attributePath(a, "rom"), maxROM+1)
	if err := errors.Join(err, g.control.Write(ctx, control.ROM(a, false))); err != nil {
		return "", err
	}
	if len(data) > maxROM {
		return "", fmt.Errorf("the expansion ROM of %s has more than %d bytes", a, maxROM)
	}
	if len(data) == 0 {
		return "", nil
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

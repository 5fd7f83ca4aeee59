package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// The directory of netdevsim's build, inside the tools root.
const netdevsimDir = "/build/netdevsim"

// buildNetdevsim builds the kernel's simulated NIC as it stands in the kernel's source; it lies under netdevsimDir
// afterwards. Debian's kernel leaves it out, and has all that it needs.
func (b *build) buildNetdevsim(ctx context.Context) error {
	if err := os.Rename(filepath.Join(b.tools(), "build/linux/drivers/net/netdevsim"), filepath.Join(b.tools(), netdevsimDir)); err != nil {
		return err
	}
	_, err := b.chroot(ctx, b.tools(), "make", "-C", "/lib/modules/"+b.kernel+"/build", "M="+netdevsimDir, "-j2",
		"CONFIG_NETDEVSIM=m", "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules")
	if err != nil {
		return fmt.Errorf("build netdevsim: %w", err)
	}
	return nil
}

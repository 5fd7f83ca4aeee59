package image

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed vgpu
var vgpuFiles embed.FS

// The directory of labvgpu's build against Debian's own VFIO, inside the tools root. The one against the rebuilt VFIO is in vfioDir.
const vgpuDir = "/build/vgpu"

// arrangeVGPU lays labvgpu's sources, which are this project's, into a directory of the tools root.
func (b *build) arrangeVGPU(dir string) error {
	if err := os.MkdirAll(filepath.Join(b.tools(), dir), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"Makefile", "labvgpu.c"} {
		text, err := vgpuFiles.ReadFile("vgpu/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(b.tools(), dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// buildVGPU builds labvgpu for the legacy variant; it lies under vgpuDir afterwards.
func (b *build) buildVGPU(ctx context.Context) error {
	if err := b.arrangeVGPU(vgpuDir); err != nil {
		return fmt.Errorf("arrange the sources of labvgpu: %w", err)
	}
	if _, err := b.chroot(ctx, b.tools(), "make", "-C", "/lib/modules/"+b.kernel+"/build", "M="+vgpuDir, "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"); err != nil {
		return fmt.Errorf("build labvgpu: %w", err)
	}
	return nil
}

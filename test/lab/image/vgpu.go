package image

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed vgpu
var vgpuFiles embed.FS

// The directory of labvgpu's build against Debian's own VFIO, inside the tools root. The one against the rebuilt VFIO is in vfioDir.
const vgpuDir = "/build/vgpu"

// arrangeVGPU lays labvgpu's sources, which are this project's, into a directory of the tools root.
func (b *build) arrangeVGPU(dir string) error { return b.arrange(vgpuFiles, "vgpu", dir) }

// buildVGPU builds labvgpu for the legacy variant; it lies under vgpuDir afterwards.
func (b *build) buildVGPU(ctx context.Context) error {
	if err := b.arrangeVGPU(vgpuDir); err != nil {
		return fmt.Errorf("arrange the sources of labvgpu: %w", err)
	}
	return b.makeModules(ctx, vgpuDir)
}

// arrange lays a module's sources into a directory of the tools root.
func (b *build) arrange(sources embed.FS, folder, dir string) error {
	of, err := fs.Sub(sources, folder)
	if err != nil {
		return err
	}
	return os.CopyFS(filepath.Join(b.tools(), dir), of)
}

// makeModules builds what arrange has laid there.
func (b *build) makeModules(ctx context.Context, dir string) error {
	if _, err := b.chroot(ctx, b.tools(), "make", "-C", "/lib/modules/"+b.kernel+"/build", "M="+dir, "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"); err != nil {
		return fmt.Errorf("build the modules of %s: %w", dir, err)
	}
	return nil
}

package image

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed vfio
var vfioFiles embed.FS

// The directory of the module build, inside the tools root.
const vfioDir = "/build/vfio"

// vfioOptions are the kernel options of the rebuilt modules, for make. Those left empty are off: what they would
// build needs hardware that the lab has not. DEBUG_INFO_BTF_MODULES is off because no pahole is installed;
// IOMMUFD_DRIVER must be m (y builds no iova_bitmap); VFIO_PCI_IGD stays on since vfio-pci-core calls into it.
func vfioOptions() []string {
	return strings.Fields(`
		CONFIG_DEBUG_INFO_BTF_MODULES= CONFIG_IOMMUFD=m CONFIG_IOMMUFD_DRIVER=m CONFIG_IOMMUFD_TEST=
		CONFIG_VFIO=m CONFIG_VFIO_GROUP=y CONFIG_VFIO_CONTAINER=y CONFIG_VFIO_DEVICE_CDEV=y
		CONFIG_VFIO_IOMMU_TYPE1=m CONFIG_VFIO_PCI_CORE=m CONFIG_VFIO_PCI=m CONFIG_VFIO_PCI_INTX=y
		CONFIG_VFIO_PCI_MMAP=y CONFIG_VFIO_PCI_IGD=y CONFIG_VFIO_PCI_VGA=y CONFIG_VFIO_VIRQFD=y
		CONFIG_VFIO_NOIOMMU=y CONFIG_VFIO_MDEV= CONFIG_VFIO_DEBUGFS= CONFIG_VFIO_PLATFORM_BASE=
		CONFIG_VFIO_CDX= CONFIG_VFIO_FSL_MC= CONFIG_MLX5_VFIO_PCI= CONFIG_PDS_VFIO_PCI= CONFIG_HISI_ACC_VFIO_PCI=
		CONFIG_VIRTIO_VFIO_PCI= CONFIG_QAT_VFIO_PCI= CONFIG_NVGRACE_GPU_VFIO_PCI=`)
}

// vfioDefines are the options among them that the distribution's headers lack, for the compiler.
const vfioDefines = "-DCONFIG_IOMMUFD_MODULE=1 -DCONFIG_VFIO_DEVICE_CDEV=1 " +
	"-DCONFIG_VFIO_NOIOMMU=1 -DCONFIG_IOMMUFD_DRIVER_MODULE=1 -DCONFIG_INTERVAL_TREE_SPAN_ITER=1"

// unpackSource takes from the kernel's source package what the module build needs and nothing else.
func (b *build) unpackSource(ctx context.Context) error {
	archives, err := filepath.Glob(filepath.Join(b.tools(), "usr/src/linux-source-*.tar.xz"))
	if err != nil || len(archives) != 1 {
		return errors.Join(err, fmt.Errorf("the linux-source package has %d archives, not 1", len(archives)))
	}
	name := strings.TrimSuffix(filepath.Base(archives[0]), ".tar.xz")
	if err := os.MkdirAll(filepath.Join(b.tools(), "build/linux"), 0o755); err != nil {
		return err
	}
	_, err = b.chroot(ctx, b.tools(), "tar", "-x", "--xz", "-f", "/usr/src/"+filepath.Base(archives[0]), "-C", "/build/linux",
		"--strip-components=1", name+"/drivers/vfio", name+"/drivers/iommu", name+"/lib/interval_tree.c", name+"/drivers/net/netdevsim")
	return err
}

// buildVFIO builds the iommufd variant's modules; they lie under vfioDir afterwards.
func (b *build) buildVFIO(ctx context.Context) error {
	if err := b.arrangeVFIO(); err != nil {
		return fmt.Errorf("arrange the vfio and iommufd sources: %w", err)
	}
	args := []string{"-C", "/lib/modules/" + b.kernel + "/build", "M=" + vfioDir, "KCFLAGS=" + vfioDefines, "-j2"}
	args = append(args, vfioOptions()...)
	if _, err := b.chroot(ctx, b.tools(), "make", append(args, "modules")...); err != nil {
		return fmt.Errorf("build vfio with device nodes: %w", err)
	}
	return nil
}

// arrangeVFIO lays the kernel's directories side by side as one external module tree.
func (b *build) arrangeVFIO() error {
	linux, dir := filepath.Join(b.tools(), "build/linux"), filepath.Join(b.tools(), vfioDir)
	if err := os.MkdirAll(filepath.Join(dir, "itspan"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"iommu/iommufd", "vfio"} {
		if err := os.Rename(filepath.Join(linux, "drivers", name), filepath.Join(dir, filepath.Base(name))); err != nil {
			return err
		}
	}
	headers, err := filepath.Glob(filepath.Join(linux, "drivers/iommu/*.h")) // included as "../iommu-priv.h"
	if err != nil {
		return err
	}
	for _, h := range headers {
		if err := os.Rename(h, filepath.Join(dir, filepath.Base(h))); err != nil {
			return err
		}
	}
	return errors.Join(
		b.arrangeVGPU(filepath.Join(vfioDir, "vgpu")),
		b.writeEmbedded("vfio/Kbuild", filepath.Join(dir, "Kbuild"), os.O_TRUNC),
		os.WriteFile(filepath.Join(dir, "itspan/Makefile"), []byte("obj-m += itspan.o\n"), 0o644),
		b.spanIterator(filepath.Join(linux, "lib/interval_tree.c"), filepath.Join(dir, "itspan/itspan.c")),
		b.license(filepath.Join(dir, "iommufd/iova_bitmap.c")),
	)
}

// license adds the MODULE_LICENSE that iova_bitmap.c lacks in kernels that never build it as a module alone.
func (b *build) license(path string) error {
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), "MODULE_LICENSE") {
		return err
	}
	return b.writeEmbedded("vfio/iova_bitmap.tail.c", path, os.O_APPEND)
}

// spanIterator cuts the span iterator out of the kernel's interval_tree.c.
func (b *build) spanIterator(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	const start = "#ifdef CONFIG_INTERVAL_TREE_SPAN_ITER"
	_, section, ok := strings.Cut(string(text), start)
	if !ok {
		return fmt.Errorf("%s has no %q", from, start)
	}
	section, _, ok = strings.Cut(section, "\n#endif")
	if !ok {
		return fmt.Errorf("%s does not end %q", from, start)
	}
	head, err := vfioFiles.ReadFile("vfio/itspan.head.c")
	if err != nil {
		return err
	}
	return os.WriteFile(to, append(head, section+"\n"...), 0o644)
}

func (b *build) writeEmbedded(name, path string, flag int) error {
	text, err := vfioFiles.ReadFile(name)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flag, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

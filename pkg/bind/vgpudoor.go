package bind

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// vgpuDoor reads vGPU types and puts them in force. Today it uses sysfs. Future kernels may offer fwctl instead.
type vgpuDoor interface {
	// current returns the number of the type of the VF's vGPU, [noType] without one.
	current(vf pci.Address) (string, error)
	// creatable returns the types that the VF can have now. Each vGPU on the GPU makes the list shorter.
	creatable(vf pci.Address) (vgpuTypes, error)
	// assign makes the VF a vGPU of the type with the number. With [noType], it ends the VF's vGPU.
	assign(ctx context.Context, vf pci.Address, id string) error
}

// sysfsVGPU uses the directory nvidia of a VF in sysfs. The directory belongs to NVIDIA's driver, and no document of
// the kernel describes it.
type sysfsVGPU struct {
	fs     *sysfs.FS
	kernel *control.Control
}

const (
	currentVGPUType    = "current_vgpu_type"
	creatableVGPUTypes = "creatable_vgpu_types"
)

func (s *sysfsVGPU) current(vf pci.Address) (string, error) {
	text, err := s.fs.ReadString(sysfs.FunctionPath(vf) + "/nvidia/" + currentVGPUType)
	if errors.Is(err, fs.ErrNotExist) {
		return "", unsettable(
			fmt.Sprintf("%s has no file nvidia/%s: NVIDIA's driver did not make it a VF for vGPUs", vf, currentVGPUType),
			"load NVIDIA's vGPU host driver (17 or later, Linux 6.8 or later) and enable the VFs with /usr/lib/nvidia/sriov-manage -e",
		)
	}
	return strings.TrimSpace(text), err
}

func (s *sysfsVGPU) creatable(vf pci.Address) (vgpuTypes, error) {
	text, err := s.fs.ReadString(sysfs.FunctionPath(vf) + "/nvidia/" + creatableVGPUTypes)
	if err != nil {
		return nil, fmt.Errorf("list the vGPU types of %s: %w", vf, err)
	}
	return parseTypes(text), nil
}

func (s *sysfsVGPU) assign(ctx context.Context, vf pci.Address, id string) error {
	return s.kernel.Write(ctx, control.VGPUType(vf, currentVGPUType, id))
}

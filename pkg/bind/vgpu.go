package bind

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// VGPU sets the vGPU type of VFs on NVIDIA's driver: writing a type's number makes a vGPU, and writing 0 frees it. The door is the VF's
// directory nvidia in sysfs; it belongs to NVIDIA's driver, and no document of the kernel describes it.
type VGPU struct {
	fs     *sysfs.FS
	kernel *control.Control
}

// noType is the value of a VF that has no vGPU.
const noType = "0"

// Resolve implements [Provider]: it finds the number of the type's name. The list shrinks while vGPUs of the GPU exist, so it
// is read right before.
func (v *VGPU) Resolve(ctx context.Context, fn *plan.Function, s *plan.Setting) error {
	found, err := v.Read(ctx, fn, s.Name)
	if err != nil {
		return err
	}
	s.Found = found
	if found != noType {
		return nil // the caller refuses it
	}
	text, err := v.fs.ReadString(vgpuDirectory(fn) + "/creatable_vgpu_types")
	if err != nil {
		return fmt.Errorf("list the vGPU types of %s: %w", fn.Address, err)
	}
	types := parseTypes(text)
	id, ok := types.id(s.Want)
	if !ok {
		return unsettable(
			fmt.Sprintf("%s can't be a vGPU of type %q now; NVIDIA's driver offers %s", fn.Address, s.Want, types),
			"correct gpuSlices[].nvidia in the node config: vgpuType as `nvidia-smi vgpu -s` prints it, instances not above Max Instances; "+
				"a GPU that has vGPUs of another size offers no other type until they end",
		)
	}
	s.Want = id
	return nil
}

// Read implements [Provider].
func (v *VGPU) Read(_ context.Context, fn *plan.Function, name string) (string, error) {
	text, err := v.fs.ReadString(vgpuDirectory(fn) + "/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", unsettable(
			fmt.Sprintf("%s has no file nvidia/%s: NVIDIA's driver did not make it a VF for vGPUs", fn.Address, name),
			"load NVIDIA's vGPU host driver (17 or later, Linux 6.8 or later) and enable the VFs with /usr/lib/nvidia/sriov-manage -e",
		)
	}
	return strings.TrimSpace(text), err
}

// Set implements [Provider]. A type that is not creatable is an error of the write, and the value stays 0.
func (v *VGPU) Set(ctx context.Context, fn *plan.Function, name, value string) error {
	return v.kernel.Write(ctx, control.VGPUType(fn.Address, name, value))
}

// Accepts implements [Provider].
func (*VGPU) Accepts(_, want, now string) bool { return want == now }

func vgpuDirectory(fn *plan.Function) string { return sysfs.FunctionPath(fn.Address) + "/nvidia" }

// vgpuType is one line of creatable_vgpu_types.
type vgpuType struct{ id, name string }

type vgpuTypes []vgpuType

// parseTypes reads "1428 : NVIDIA H200X-141C" lines. The order of number and name differs between driver versions. Other lines,
// such as a heading, are left out.
func parseTypes(text string) vgpuTypes {
	var all vgpuTypes
	for line := range strings.Lines(text) {
		first, second, ok := strings.Cut(line, ":")
		first, second = strings.TrimSpace(first), strings.TrimSpace(second)
		switch {
		case ok && isTypeID(first):
			all = append(all, vgpuType{id: first, name: second})
		case ok && isTypeID(second):
			all = append(all, vgpuType{id: second, name: first})
		}
	}
	return all
}

func isTypeID(s string) bool {
	n, err := strconv.ParseUint(s, 10, 32)
	return err == nil && n != 0
}

// id returns the number of a type, whose name may lack the vendor.
func (t vgpuTypes) id(name string) (string, bool) {
	bare := func(s string) string { return strings.TrimPrefix(s, "NVIDIA ") }
	for _, one := range t {
		if bare(one.name) == bare(name) {
			return one.id, true
		}
	}
	return "", false
}

// String lists the names.
func (t vgpuTypes) String() string {
	if len(t) == 0 {
		return "no type"
	}
	names := make([]string, len(t))
	for i, one := range t {
		names[i] = strconv.Quote(one.name)
	}
	return strings.Join(names, ", ")
}

func unsettable(text, fix string) error { return &UnsettableError{Text: text, Fix: fix} }

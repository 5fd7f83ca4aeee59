package bind

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// VGPU sets the vGPU type of VFs on NVIDIA's driver. To put a type's number in force makes a vGPU, and to put 0 in
// force frees it.
type VGPU struct{ door vgpuDoor }

// noType is the value of a VF that has no vGPU.
const noType = "0"

// Resolve implements [Provider]: it finds the number of the type's name.
func (v *VGPU) Resolve(ctx context.Context, fn *plan.Function, s *plan.Setting) error {
	found, err := v.Read(ctx, fn, s.Name)
	if err != nil {
		return err
	}
	s.Found = found
	if found != noType {
		return nil // the caller refuses it
	}
	types, err := v.door.creatable(fn.Address)
	if err != nil {
		return err
	}
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
func (v *VGPU) Read(_ context.Context, fn *plan.Function, _ string) (string, error) {
	return v.door.current(fn.Address)
}

// SetsAlone implements [Alone]: the types that a VF can have depend on the other VFs of its GPU.
func (*VGPU) SetsAlone() {}

// Set implements [Provider]. The list of types may have shrunk since Resolve, so Set reads it again, and refuses a type
// that is not in it any more. If the list shrinks after that, the driver refuses the write, and the value stays 0.
func (v *VGPU) Set(ctx context.Context, fn *plan.Function, _, value string) error {
	if value == noType {
		return notEnded(v.door.assign(ctx, fn.Address, value), fn)
	}
	types, err := v.door.creatable(fn.Address)
	if err != nil {
		return err
	}
	if !types.offer(value) {
		return unsettable(
			fmt.Sprintf("%s can't be a vGPU of the type with number %s any more: others of the GPU were made meanwhile, and NVIDIA's driver offers %s", fn.Address, value, types),
			"see that nothing else makes vGPUs on this GPU, and that nvidia.instances in the node config is not above Max Instances",
		)
	}
	return v.door.assign(ctx, fn.Address, value)
}

// notEnded adds the likely reason and a remedy to the error of a vGPU that does not end.
func notEnded(err error, fn *plan.Function) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: the vGPU does not end. If no VM has it, the VF may be wedged, as NVIDIA's driver can leave a VF whose VM was killed in its "+
		"first seconds: drain the other VFs of GPU %s, and when none has a claim, make all of them again (sriov-manage -d, then -e)", err, gpuAddress(fn))
}

// gpuAddress returns the address of a VF's GPU.
func gpuAddress(fn *plan.Function) string {
	if fn.PF == nil {
		return "of " + fn.Address.String()
	}
	return fn.PF.String()
}

// Accepts implements [Provider].
func (*VGPU) Accepts(_, want, now string) bool { return want == now }

// vgpuType is one type that a VF can be.
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

// id returns the number of the type with a name. The name may lack the vendor, "NVIDIA".
func (t vgpuTypes) id(name string) (string, bool) {
	bare := func(s string) string { return strings.TrimPrefix(s, "NVIDIA ") }
	for _, one := range t {
		if bare(one.name) == bare(name) {
			return one.id, true
		}
	}
	return "", false
}

// offer reports whether a type with the number is among them.
func (t vgpuTypes) offer(id string) bool {
	return slices.ContainsFunc(t, func(one vgpuType) bool { return one.id == id })
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

package bind

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// Xe sets how Intel's driver xe shares a GPU among its VFs (Documentation/ABI/testing/sysfs-driver-intel-xe-sriov). The
// values last as long as the VFs.
type Xe struct {
	fs     *sysfs.FS
	kernel *control.Control
}

// admin returns the directory in which the PF has the values of a VF. It first checks that the PF's VF with that index
// is still this one. In these directories, the PF counts its VFs from 1.
func (x *Xe) admin(fn *plan.Function) (string, error) {
	if fn.PF == nil {
		return "", fmt.Errorf("%s is no VF", fn.Address)
	}
	vf, err := x.fs.ReadLink(fmt.Sprintf("%s/virtfn%d", sysfs.FunctionPath(*fn.PF), fn.VFIndex))
	if err != nil {
		return "", fmt.Errorf("find VF %s among those of its PF %s: %w", fn.Address, fn.PF, err)
	}
	if now := path.Base(vf); now != fn.Address.String() {
		return "", fmt.Errorf("VF %d of PF %s is %s, and not %s any more: its VFs were made again", fn.VFIndex, fn.PF, now, fn.Address)
	}
	// The kernel counts virtfn from 0 (sriov_add_vfs in drivers/pci/iov.c), and xe its VFs from 1.
	return control.XeAdmin(*fn.PF, fn.VFIndex+1), nil
}

// Resolve implements [Provider].
func (x *Xe) Resolve(ctx context.Context, fn *plan.Function, s *plan.Setting) error {
	var err error
	if s.Found, err = x.Read(ctx, fn, s.Name); err != nil || s.Name != plan.XePriority || s.Found == s.Want {
		return err
	}
	dir, err := x.admin(fn)
	if err != nil {
		return err
	}
	// The firmware of today's GPUs gives all VFs one priority, and xe then makes the file read-only (sched_priority_change_allowed in
	// drivers/gpu/drm/xe/xe_sriov_pf_sysfs.c).
	info, err := x.fs.Stat(dir + "/profile/" + s.Name)
	if err == nil && info.Mode()&0o222 == 0 {
		return unsettable(
			fmt.Sprintf("the priority of %s is %s, and driver xe can't change that of a single VF of this GPU", fn.Address, s.Found),
			fmt.Sprintf("leave priority out of gpuSlices in the node config, or write %q to sriov_admin/.bulk_profile/%s of the PF, for all of its VFs", s.Want, s.Name),
		)
	}
	return err
}

// Read implements [Provider]. The kernel answers EUCLEAN if the tiles of a GPU have different values.
func (x *Xe) Read(_ context.Context, fn *plan.Function, name string) (string, error) {
	dir, err := x.admin(fn)
	if err != nil {
		return "", err
	}
	text, err := x.fs.ReadString(dir + "/profile/" + name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", missingProfile(name)
	case errors.Is(err, unix.EUCLEAN):
		return "", fmt.Errorf("%s: the tiles of the GPU have different values: write one value to the file, and try again: %w", name, err)
	case err != nil:
		return "", err
	}
	if name == plan.XePriority {
		return chosen(text), nil
	}
	return text, nil
}

// missingProfile returns the refusal for a value that the kernel does not have. The bounds of time are needed even if
// the node config does not name them.
func missingProfile(name string) error {
	text := "driver xe has no " + name + " for this VF: this kernel, or this GPU, does not have it"
	switch name {
	case plan.XeExecQuantum, plan.XePreemptTimeout:
		return unsettable(text+", and without it the slice has the GPU without end",
			"use a kernel whose xe has sriov_admin in the PF's directory, or set `allowUnisolated: true` in a DeviceClass whose tenants may do that, and leave "+
				"execQuantumMs and preemptTimeoutUs out of gpuSlices")
	case plan.XeMemory:
		return unsettable(text, "use Linux 7.0 and a discrete GPU, or leave memoryMiB out of gpuSlices in the node config")
	}
	return unsettable(text, "leave priority out of gpuSlices in the node config")
}

// chosen returns the word in brackets: "low" of "[low] normal".
func chosen(text string) string {
	_, rest, ok := strings.Cut(text, "[")
	word, _, closed := strings.Cut(rest, "]")
	if !ok || !closed {
		return text
	}
	return word
}

// Set implements [Provider].
func (x *Xe) Set(ctx context.Context, fn *plan.Function, name, value string) error {
	dir, err := x.admin(fn)
	if err != nil {
		return err
	}
	return x.kernel.Write(ctx, control.XeValue(fn.Address, dir, name, value))
}

// Stop implements [Stopper]. It does nothing if the kernel lacks the file. The next FLR of the VF ends the stop.
func (x *Xe) Stop(ctx context.Context, fn *plan.Function) error {
	dir, err := x.admin(fn)
	if err != nil {
		return err
	}
	if there, err := x.fs.Exists(dir + "/stop"); err != nil || !there {
		return err
	}
	return x.kernel.Write(ctx, control.XeStop(fn.Address, dir))
}

// Accepts implements [Provider]. The firmware rounds times and memory, and the kernel does not say how. So a value that
// differs by up to an eighth is accepted. 0, "no limit", is accepted only for 0.
func (x *Xe) Accepts(name, want, now string) bool {
	if name == plan.XePriority || want == now {
		return want == now
	}
	w, err := strconv.ParseUint(want, 10, 64)
	n, nowErr := strconv.ParseUint(now, 10, 64)
	if err != nil || nowErr != nil || w == 0 || n == 0 {
		return false
	}
	return max(w, n)-min(w, n) <= max(w/8, 1)
}

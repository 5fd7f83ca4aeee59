package bind

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// SetVFs gives the PF that many VFs, by way of none where it has others, and
// keeps host drivers from taking them. It may be repeated. The caller has seen
// that no VF of the PF is in use, unless it has that many: then what is bound
// stays so, and only further drivers are kept off. After an error the PF has its
// former number, none, or the new one, and reading tells which.
func (e *Executor) SetVFs(ctx context.Context, pf pci.Address, count int) error {
	have, err := e.numVFs(pf)
	if err != nil || have == 0 && count == 0 {
		return err
	}
	if err := e.keepDriversOff(ctx, pf); err != nil {
		return fmt.Errorf("keep host drivers from the VFs of PF %s: %w", pf, err)
	}
	if have == count {
		return nil
	}
	if have != 0 {
		if err := e.kernel.SetNumVFs(ctx, pf, 0); err != nil {
			return fmt.Errorf("disable the %d VFs of PF %s: %w", have, pf, err)
		}
	}
	if count != 0 {
		if err := e.kernel.SetNumVFs(ctx, pf, count); err != nil {
			return fmt.Errorf("enable %d VFs of PF %s: %w%s", count, pf, err, hint(err))
		}
	}
	got, err := e.numVFs(pf)
	if err == nil && got != count {
		err = fmt.Errorf("enable %d VFs of PF %s: the kernel took it and says %d", count, pf, got)
	}
	return err
}

// keepDriversOff switches sriov_drivers_autoprobe off. The kernel only keeps the
// word, and looks at it in a VF's next probe (drivers/pci/iov.c, pci-driver.c).
func (e *Executor) keepDriversOff(ctx context.Context, pf pci.Address) error {
	if err := e.kernel.SetAutoprobe(ctx, pf, false); err != nil {
		return err
	}
	on, err := e.autoprobe(sysfs.FunctionPath(pf))
	if err == nil && on {
		err = errors.New("the kernel took it, and sriov_drivers_autoprobe is on")
	}
	return err
}

// autoprobe reports whether host drivers may take the VFs of the PF at a path.
// A kernel that knows no such attribute lets them.
func (e *Executor) autoprobe(dir string) (bool, error) {
	text, err := e.fs.ReadString(dir + "/sriov_drivers_autoprobe")
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return text != "0", err
}

// hint says what the kernel's refusals of a number of VFs mean
// (sriov_numvfs_store and sriov_enable in drivers/pci/iov.c).
func hint(err error) string {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return " (the PF's driver makes no VFs; load another, or enable SR-IOV in it)"
	case errors.Is(err, syscall.ERANGE):
		return " (more than sriov_totalvfs)"
	case errors.Is(err, syscall.ENOMEM):
		return " (no room for the VFs' BARs or bus numbers: enable SR-IOV in the firmware, or boot with pci=realloc)"
	}
	return ""
}

func (e *Executor) numVFs(pf pci.Address) (int, error) {
	text, err := e.fs.ReadString(sysfs.FunctionPath(pf) + "/sriov_numvfs")
	if err != nil {
		return 0, fmt.Errorf("count the VFs of PF %s: %w", pf, err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("count the VFs of PF %s: %w", pf, err)
	}
	return n, nil
}

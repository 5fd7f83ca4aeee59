package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Reset resets a by the method, one of the kernel's words in reset_method
// ("flr", "bus", ...). The kernel tries its list in order and passes over a
// method that turns out not to apply, so for the time of the reset the list is
// cut down to the one method: that a reset was done says then that this one was.
// The former list is put back afterwards, also when the reset failed or ctx
// ended; a crash in between leaves the list cut down until somebody writes it
// ("default" brings back the kernel's own) or the node reboots.
//
// Kernels before 5.15 have no reset_method: there the reset is asked for as it
// is, and the caller has made sure that the method is the only one possible.
func (c *Control) Reset(ctx context.Context, a pci.Address, method string) error {
	list := device(a, "reset_method")
	former, err := c.r.ReadString(list)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && former == method:
		return c.write(ctx, attribute{a, device(a, "reset"), "1"})
	case err != nil:
		return fmt.Errorf("read reset_method of %s: %w", a, err)
	}
	if err := c.write(ctx, attribute{a, list, method}); err != nil {
		return err
	}
	// The list is restored even if the caller has given up by now.
	restore := attribute{a, list, restorable(former)}
	err = c.writeThen(ctx, attribute{a, device(a, "reset"), "1"}, func() {
		_ = c.w.Write(restore.path, []byte(restore.value)) // nobody is left to tell
	})
	if _, ok := errors.AsType[*StuckError](err); ok {
		return err
	}
	return errors.Join(err, c.write(context.WithoutCancel(ctx), restore))
}

// restorable returns the text that sets reset_method to the list. An empty
// list means that an administrator has disabled resets, which takes a newline:
// the kernel ignores an empty write.
func restorable(list string) string {
	if strings.TrimSpace(list) == "" {
		return "\n"
	}
	return list
}

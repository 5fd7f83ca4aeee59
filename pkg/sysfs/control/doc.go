// Package control is the only code that writes to sysfs. It changes which
// driver a function has, resets functions and creates VFs; what it writes is
// decided elsewhere, and whether a write had its effect is for the caller to
// verify: several of these attributes accept a write and do nothing.
//
// A write to these attributes runs kernel work in the caller's context and may
// take seconds or forever: unbinding a function whose VFIO device is open waits
// until the holder closes it, and no signal ends the wait (drivers/vfio/vfio_main.c,
// vfio_unregister_group_dev). So each write has a goroutine of its own and a
// deadline. Past it the caller gets a [StuckError] and goes on; the goroutine
// stays with the kernel, and the function is fenced: nothing more is written
// for it until the kernel lets go. Other functions are not affected.
//
// The attributes are described in the kernel's Documentation/ABI/testing/sysfs-bus-pci.
package control

// Package sysfstest is a scripted node: a directory with sys, proc, dev and
// lib trees of plain files and links that reads like a Linux node with PCI
// functions, and a Write method that answers like the kernel and changes the
// tree as the kernel would. Code that reads goes through the directory
// ([Kernel.Root]); code that writes takes the [Kernel] as its
// control.Writer. Nothing needs privileges, nothing outside the directory is
// touched.
//
//	k := sysfstest.New(t)
//	gpu := k.AddGPU(0x3b)
//	c := control.New(k, fs, time.Second)
//
// # The rules it speaks
//
// They were read in Linux 6.12; the names are those of its functions.
//
//   - A write creates nothing: a missing attribute is ENOENT, one without a
//     store function EACCES, an empty write does nothing (fs/kernfs/file.c
//     kernfs_fop_write_iter, fs/sysfs/file.c sysfs_kf_write). One trailing
//     newline of an address or word does not count (sysfs_streq); an address in
//     another case names nothing.
//   - driver_override: set; cleared by "\n"; EINVAL from 4095 bytes on; reads
//     "(null)" when not set; rebinds nothing (drivers/base/dd.c
//     __device_set_driver_override, driver_set_override in older kernels). It is
//     lost with the function and on reboot.
//   - unbind: ENODEV unless the function is bound to that very driver
//     (drivers/base/bus.c unbind_store). The links go first, then the driver's
//     remove function runs, which may block, then the function is free
//     (drivers/base/dd.c __device_release_driver): during a blocked unbind the
//     driver link is gone, but the driver still has the function.
//   - drivers_probe: ENODEV for an unknown address. Success without effect when
//     the function is bound already, when nothing matched, and when the driver's
//     own probe failed, since the kernel then tries the next driver (drivers/base/bus.c
//     bus_rescan_devices_helper, drivers/base/dd.c __device_attach_driver).
//     EINVAL when the attempt failed before the driver's probe: a host driver in
//     a group whose DMA a VFIO user owns (drivers/pci/pci-driver.c
//     pci_dma_configure, drivers/iommu/iommu.c iommu_device_use_default_domain).
//   - bind: ENODEV without a match, EBUSY when bound already or when the
//     group's DMA is owned, else the error of the driver's probe (dd.c
//     device_driver_attach).
//   - Matching: with a driver_override, that driver alone and whatever its id
//     table says; else id tables in the order of registration (pci-driver.c
//     pci_match_device). VFIO drivers match by override only (override_only
//     ids). A VF of a PF with sriov_drivers_autoprobe 0 is not probed without an
//     override (pci_device_can_probe).
//   - A driver that is registered later is offered all unbound functions (dd.c
//     driver_attach).
//   - VFIO drivers refuse bridges (EINVAL), PFs with enabled VFs (EBUSY) and
//     functions without an IOMMU group (EINVAL), and make /dev/vfio/<group> for
//     the first member and, with iommufd, vfio-dev/vfioN and
//     /dev/vfio/devices/vfioN; the group node goes with the last member
//     (drivers/vfio/pci/vfio_pci_core.c vfio_pci_core_register_device,
//     drivers/vfio/group.c). Unbinding waits while a holder has the function
//     open (drivers/vfio/vfio_main.c vfio_unregister_group_dev): by then the
//     function's own character device is gone, the group's is not.
//   - reset_method: EINVAL for a word that the function does not offer, the old
//     list stays; "default" restores, "\n" disables; reset: EINVAL unless 1,
//     then the methods in order, going on after ENOTTY only (drivers/pci/pci.c
//     reset_method_store, __pci_reset_function_locked). The header of the
//     configuration space is saved and restored around a reset. The store function
//     of reset_method does not take the device lock.
//   - VFIO's hot reset reaches all functions below the bridge above: EINVAL unless
//     the caller has the groups of all of them, EBUSY while a process has one open
//     (drivers/vfio/pci/vfio_pci_core.c vfio_pci_dev_set_hot_reset).
//   - sriov_numvfs: EINVAL, ERANGE above sriov_totalvfs, ENOENT without a driver
//     that does SR-IOV, EBUSY from one number to another (drivers/pci/iov.c
//     sriov_numvfs_store). A VF's configuration space has ffff for its ids. The
//     removal of a VF waits for its holder. Unbinding the PF's driver removes
//     the VFs, unless the driver leaves them ([Driver.KeepsVFs]).
//
// # Where it differs
//
//   - All writes that concern one function come one after another, hooks
//     included. The kernel's device lock covers most of them, but a drivers_probe
//     during a blocked unbind, for one, returns at once and does nothing.
//   - Reads of the plain tree never block. The kernel's show functions of
//     sriov_numvfs and driver_override take the device lock in some versions, so that
//     reading them hangs as long as an unbind does, and a reset keeps everybody from
//     the configuration space: [Kernel.Reading] does that.
//   - Device nodes are empty regular files, since mknod takes privileges; the
//     numbers are in sysfs' dev attributes and in [Kernel.Node].
//   - Groups are as the test says; they are not derived from ACS.
//   - Uevents are sent for functions, their drivers, their VFs and what drivers make
//     of them ([Kernel.OnUevent]); modules and the IOMMU send none.
//   - Drivers have no new_id and remove_id, and attributes that kata-vfio never
//     writes are read-only.
package sysfstest

// SPDX-License-Identifier: GPL-2.0
/*
 * Gives a PCI function other ids and another class, as the kernel sees them: QEMU has no GPU of a vendor, and its VFs are Intel's.
 *
 *	echo 0000:61:10.0 1002 74b5 120000 > /sys/module/labids/parameters/set
 *
 * sysfs, the matching of drivers and udev see them at once. The function's registers keep its own, so a guest sees those, except for
 * the vendor and the device of a VF: a real one has none in its registers, and vfio_pci_core takes them from here.
 */
#include <linux/module.h>
#include <linux/pci.h>

static int lab_set(const char *text, const struct kernel_param *param)
{
	unsigned int domain, bus, slot, function, vendor, device, class;
	struct pci_dev *pdev;

	if (sscanf(text, "%x:%x:%x.%x %x %x %x", &domain, &bus, &slot, &function, &vendor, &device, &class) != 7)
		return -EINVAL;
	if (slot > 31 || function > 7 || vendor > 0xffff || device > 0xffff || class > 0xffffff)
		return -EINVAL;
	pdev = pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, function));
	if (!pdev)
		return -ENODEV;
	device_lock(&pdev->dev);
	pdev->vendor = vendor;
	pdev->device = device;
	pdev->class = class;
	device_unlock(&pdev->dev);
	kobject_uevent(&pdev->dev.kobj, KOBJ_CHANGE);
	pci_dev_put(pdev);
	return 0;
}

static const struct kernel_param_ops lab_ops = { .set = lab_set };
module_param_cb(set, &lab_ops, NULL, 0200);
MODULE_PARM_DESC(set, "ADDRESS VENDOR DEVICE CLASS");

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("other ids for PCI functions, for kata-vfio's lab");

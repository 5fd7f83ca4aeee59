// SPDX-License-Identifier: GPL-2.0
/*
 * A stand-in for NVIDIA's vGPU host driver, on a NIC whose VFs work without a driver of their PF.
 *
 * It registers as "nvidia" and takes a PF by driver_override. The PF and its VFs then have the ids and the class of a GPU. Each VF is
 * a VFIO device of this driver, and has the files of NVIDIA's driver in sysfs: nvidia/current_vgpu_type and
 * nvidia/creatable_vgpu_types. A VF without a type can't be opened. What the kernel does for a driver over vfio_pci_core is real;
 * what NVIDIA's driver does is imitated after reports of its users, and nothing here is a GPU.
 */
#include <linux/delay.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/uaccess.h>
#include <linux/vfio.h>
#include <linux/vfio_pci_core.h>

/* Faults. */
static bool blocks;
module_param(blocks, bool, 0644);
MODULE_PARM_DESC(blocks, "writes of a type do not return as long as this is set");
static bool reverts;
module_param(reverts, bool, 0644);
MODULE_PARM_DESC(reverts, "writes of a type succeed, and the VF has none afterwards");
static bool sticks;
module_param(sticks, bool, 0644);
MODULE_PARM_DESC(sticks, "a VF keeps its type: writes of 0 fail");
static unsigned int instances;
module_param(instances, uint, 0644);
MODULE_PARM_DESC(instances, "the number of GPU instances, each for one vGPU of a MIG-backed type");

#define LAB_DEVICE 0x2335
#define LAB_CLASS (PCI_CLASS_DISPLAY_3D << 8)

/* A vGPU type. All vGPUs of a GPU have one size. */
struct lab_type {
	unsigned int id;
	const char *name;
	unsigned int size;
	unsigned int max;
	bool mig;
};

static const struct lab_type lab_types[] = {
	{ 1428, "NVIDIA H200X-35C", 35, 4, false },
	{ 1429, "NVIDIA H200X-70C", 70, 2, false },
	{ 1450, "NVIDIA H200X-1-18C", 18, 4, true },
};

/* The PF, with what it had before this driver took it. */
struct lab_gpu {
	struct mutex lock; /* guards vfs, and each VF's type and open */
	struct list_head vfs;
	unsigned short vendor, device;
	unsigned int class;
};

struct lab_vf {
	struct vfio_pci_core_device core; /* first, as vfio_pci_core has it for the driver's data */
	struct lab_gpu *gpu;
	struct list_head sibling;
	const struct lab_type *type; /* NULL: none */
	bool open;
};

static struct lab_vf *lab_vf(struct device *dev)
{
	return container_of((struct vfio_pci_core_device *)dev_get_drvdata(dev), struct lab_vf, core);
}

/* Reports whether one more vGPU of the type fits on the GPU. */
static bool lab_fits(struct lab_gpu *gpu, const struct lab_type *type)
{
	struct lab_vf *vf;
	unsigned int used = 0;

	list_for_each_entry(vf, &gpu->vfs, sibling) {
		if (vf->type && vf->type->size != type->size)
			return false;
		used += vf->type != NULL;
	}
	return used < type->max;
}

/* Reports whether a GPU instance is free. */
static bool lab_has_instance(struct lab_gpu *gpu)
{
	struct lab_vf *vf;
	unsigned int used = 0;

	list_for_each_entry(vf, &gpu->vfs, sibling)
		used += vf->type && vf->type->mig;
	return used < instances;
}

static ssize_t creatable_vgpu_types_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct lab_gpu *gpu = lab_vf(dev)->gpu;
	ssize_t n = sysfs_emit(buf, "ID    : vGPU Name\n");
	size_t i;

	mutex_lock(&gpu->lock);
	for (i = 0; i < ARRAY_SIZE(lab_types); i++)
		if (lab_fits(gpu, &lab_types[i]))
			n += sysfs_emit_at(buf, n, "%-6u: %s\n", lab_types[i].id, lab_types[i].name);
	mutex_unlock(&gpu->lock);
	return n;
}
static DEVICE_ATTR_RO(creatable_vgpu_types);

static ssize_t current_vgpu_type_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct lab_vf *vf = lab_vf(dev);
	ssize_t n;

	mutex_lock(&vf->gpu->lock);
	n = sysfs_emit(buf, "%u\n", vf->type ? vf->type->id : 0);
	mutex_unlock(&vf->gpu->lock);
	return n;
}

/* Gives the VF a type, or takes it away: id 0. The lock is held. */
static int lab_assign(struct lab_vf *vf, unsigned int id)
{
	size_t i;

	if (!id) {
		if (vf->type && (vf->open || sticks))
			return -EPERM;
		vf->type = NULL;
		return 0;
	}
	if (vf->type)
		return -EINVAL;
	for (i = 0; i < ARRAY_SIZE(lab_types); i++) {
		const struct lab_type *type = &lab_types[i];

		if (type->id != id || !lab_fits(vf->gpu, type))
			continue;
		if (type->mig && !lab_has_instance(vf->gpu)) {
			dev_err(&vf->core.pdev->dev, "failed to add vgpu create request: 0x38\n");
			return -EIO;
		}
		if (!reverts)
			vf->type = type;
		return 0;
	}
	return -EINVAL;
}

static ssize_t current_vgpu_type_store(struct device *dev, struct device_attribute *attr, const char *buf, size_t count)
{
	struct lab_vf *vf = lab_vf(dev);
	unsigned int id;
	int err = kstrtouint(buf, 0, &id);

	if (err)
		return err;
	while (READ_ONCE(blocks)) /* no signal ends it, as in a driver that waits for its GPU */
		msleep(20);
	mutex_lock(&vf->gpu->lock);
	err = lab_assign(vf, id);
	mutex_unlock(&vf->gpu->lock);
	return err ? err : count;
}
static DEVICE_ATTR_RW(current_vgpu_type);

static struct attribute *lab_attrs[] = {
	&dev_attr_creatable_vgpu_types.attr,
	&dev_attr_current_vgpu_type.attr,
	NULL,
};

static const struct attribute_group lab_group = { .name = "nvidia", .attrs = lab_attrs };

static int lab_open(struct vfio_device *vdev)
{
	struct lab_vf *vf = container_of(vdev, struct lab_vf, core.vdev);
	int err = -ENODEV;

	mutex_lock(&vf->gpu->lock);
	if (vf->type)
		err = vfio_pci_core_enable(&vf->core);
	if (!err) {
		vfio_pci_core_finish_enable(&vf->core);
		vf->open = true;
	}
	mutex_unlock(&vf->gpu->lock);
	return err;
}

static void lab_close(struct vfio_device *vdev)
{
	struct lab_vf *vf = container_of(vdev, struct lab_vf, core.vdev);

	vfio_pci_core_close_device(vdev);
	mutex_lock(&vf->gpu->lock);
	vf->open = false;
	mutex_unlock(&vf->gpu->lock);
}

/* Reads for the guest, which sees the class of a GPU and not the NIC's. vfio_pci_core does that for the ids of VFs. */
static ssize_t lab_read(struct vfio_device *vdev, char __user *buf, size_t count, loff_t *ppos)
{
	static const u8 class[] = { LAB_CLASS & 0xff, LAB_CLASS >> 8 & 0xff, LAB_CLASS >> 16 };
	loff_t from = *ppos;
	ssize_t n = vfio_pci_core_read(vdev, buf, count, ppos);
	int i;

	if (n <= 0 || VFIO_PCI_OFFSET_TO_INDEX(from) != VFIO_PCI_CONFIG_REGION_INDEX)
		return n;
	from &= VFIO_PCI_OFFSET_MASK;
	for (i = 0; i < ARRAY_SIZE(class); i++) {
		loff_t at = PCI_CLASS_PROG + i - from;

		if (at >= 0 && at < n && put_user(class[i], (u8 __user *)buf + at))
			return -EFAULT;
	}
	return n;
}

static const struct vfio_device_ops lab_ops = {
	.name = "labvgpu",
	.init = vfio_pci_core_init_dev,
	.release = vfio_pci_core_release_dev,
	.open_device = lab_open,
	.close_device = lab_close,
	.ioctl = vfio_pci_core_ioctl,
	.device_feature = vfio_pci_core_ioctl_feature,
	.read = lab_read,
	.write = vfio_pci_core_write,
	.mmap = vfio_pci_core_mmap,
	.request = vfio_pci_core_request,
	.match = vfio_pci_core_match,
	.bind_iommufd = vfio_iommufd_physical_bind,
	.unbind_iommufd = vfio_iommufd_physical_unbind,
	.attach_ioas = vfio_iommufd_physical_attach_ioas,
	.detach_ioas = vfio_iommufd_physical_detach_ioas,
};

static int lab_probe_vf(struct pci_dev *pdev)
{
	struct lab_gpu *gpu = dev_get_drvdata(&pci_physfn(pdev)->dev);
	struct lab_vf *vf;
	int err;

	if (!gpu || pci_physfn(pdev)->driver != pdev->driver)
		return -ENODEV;
	pdev->device = LAB_DEVICE;
	pdev->class = LAB_CLASS;
	vf = vfio_alloc_device(lab_vf, core.vdev, &pdev->dev, &lab_ops);
	if (IS_ERR(vf))
		return PTR_ERR(vf);
	vf->gpu = gpu;
	dev_set_drvdata(&pdev->dev, &vf->core);
	err = vfio_pci_core_register_device(&vf->core);
	if (err)
		goto put;
	mutex_lock(&gpu->lock);
	list_add_tail(&vf->sibling, &gpu->vfs);
	mutex_unlock(&gpu->lock);
	err = sysfs_create_group(&pdev->dev.kobj, &lab_group);
	if (!err)
		return 0;
	mutex_lock(&gpu->lock);
	list_del(&vf->sibling);
	mutex_unlock(&gpu->lock);
	vfio_pci_core_unregister_device(&vf->core);
put:
	vfio_put_device(&vf->core.vdev);
	return err;
}

static int lab_probe_pf(struct pci_dev *pdev)
{
	struct lab_gpu *gpu = devm_kzalloc(&pdev->dev, sizeof(*gpu), GFP_KERNEL);
	int err;

	if (!gpu)
		return -ENOMEM;
	err = pci_enable_device(pdev);
	if (err)
		return err;
	mutex_init(&gpu->lock);
	INIT_LIST_HEAD(&gpu->vfs);
	gpu->vendor = pdev->vendor;
	gpu->device = pdev->device;
	gpu->class = pdev->class;
	pdev->vendor = PCI_VENDOR_ID_NVIDIA; /* the VFs get it from here */
	pdev->device = LAB_DEVICE;
	pdev->class = LAB_CLASS;
	dev_set_drvdata(&pdev->dev, gpu);
	return 0;
}

static int lab_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	return pdev->is_virtfn ? lab_probe_vf(pdev) : lab_probe_pf(pdev);
}

static void lab_remove(struct pci_dev *pdev)
{
	struct lab_gpu *gpu;
	struct lab_vf *vf;

	if (!pdev->is_virtfn) {
		gpu = dev_get_drvdata(&pdev->dev);
		pci_disable_sriov(pdev);
		pdev->vendor = gpu->vendor;
		pdev->device = gpu->device;
		pdev->class = gpu->class;
		pci_disable_device(pdev);
		return;
	}
	vf = lab_vf(&pdev->dev);
	sysfs_remove_group(&pdev->dev.kobj, &lab_group);
	vfio_pci_core_unregister_device(&vf->core);
	mutex_lock(&vf->gpu->lock);
	list_del(&vf->sibling);
	mutex_unlock(&vf->gpu->lock);
	vfio_put_device(&vf->core.vdev);
}

/* NVIDIA's driver refuses this, and its script makes the VFs; here it is the only way. */
static int lab_sriov(struct pci_dev *pdev, int vfs)
{
	int err;

	if (!vfs) {
		pci_disable_sriov(pdev);
		return 0;
	}
	err = pci_enable_sriov(pdev, vfs);
	return err ? err : vfs;
}

static const struct pci_device_id lab_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_NVIDIA, PCI_ANY_ID) }, /* VFs of a PF that has become NVIDIA's */
	{ }
};

static struct pci_driver lab_driver = {
	.name = "nvidia",
	.id_table = lab_ids,
	.probe = lab_probe,
	.remove = lab_remove,
	.sriov_configure = lab_sriov,
	.driver_managed_dma = true,
};
module_pci_driver(lab_driver);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("stand-in for NVIDIA's vGPU host driver, for kata-vfio's lab");

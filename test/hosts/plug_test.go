package hosts_test

import (
	"fmt"
	"strings"
)

// plug writes what sysfs has of the function, which has one interrupt.
func (f *function) plug(t *tree, n *node, irq string) {
	t.tb.Helper()
	config, err := f.config()
	t.check(err)
	f.put(t, f.attributes())
	f.put(t, map[string]string{"config": config})
	if methods := f.resets(); methods != "" {
		f.put(t, map[string]string{"reset_method": methods + "\n", "reset": ""})
	}
	t.link("/sys/bus/pci/devices/"+f.address, f.dir)
	t.link(f.dir+"/subsystem", "/sys/bus/pci")
	if f.driver != "-" {
		f.bind(t, n, irq)
	}
	if f.has("group") {
		f.join(t, n)
	}
	if name, ok := f.words["net"]; ok {
		f.network(t, name)
	}
	f.virtualize(t)
}

func (f *function) put(t *tree, attributes map[string]string) {
	t.tb.Helper()
	for name, value := range attributes {
		t.put(f.dir+"/"+name, value)
	}
}

func (f *function) attributes() map[string]string {
	subVendor, subDevice, _ := strings.Cut(f.or("sub", "0000:0000"), ":")
	all := map[string]string{
		"subsystem_vendor": "0x" + subVendor + "\n", "subsystem_device": "0x" + subDevice + "\n", "revision": "0xa1\n", "enable": "1\n", "msi_bus": "1\n", "ari_enabled": "0\n", "d3cold_allowed": "1\n", "power_state": "D0\n",
		"current_link_speed": "32.0 GT/s PCIe\n", "max_link_speed": "32.0 GT/s PCIe\n", "current_link_width": "16\n", "max_link_width": "16\n", "local_cpulist": "0-31\n",
		"vendor": fmt.Sprintf("0x%04x\n", f.vendor), "device": fmt.Sprintf("0x%04x\n", f.model), "class": fmt.Sprintf("0x%06x\n", f.class),
		"numa_node": f.or("numa", "0") + "\n", "driver_override": f.or("override", "(null)") + "\n",
		"resource": "0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200\n" + strings.Repeat("0x0 0x0 0x0\n", 12),
		"modalias": fmt.Sprintf("pci:v%08Xd%08Xsv0000%ssd0000%sbc%02Xsc%02Xi%02X\n", f.vendor, f.model, strings.ToUpper(subVendor), strings.ToUpper(subDevice), f.class>>16, f.class>>8&0xff, f.class&0xff),
	}
	if value, ok := f.words["boot"]; ok {
		all["boot_vga"] = value + "\n"
	}
	return all
}

// bind has the driver serve the function, with an interrupt that an IOMMU remaps, where there is one.
func (f *function) bind(t *tree, n *node, irq string) {
	t.tb.Helper()
	driver := "/sys/bus/pci/drivers/" + f.driver
	t.put(driver+"/new_id", "")
	t.link(f.dir+"/driver", driver)
	t.link(driver+"/"+f.address, f.dir)
	chip := "PCI-MSIX-" + f.address
	if len(n.IOMMUs) > 0 {
		chip = "IR-" + chip
	}
	t.put(f.dir+"/msi_irqs/"+irq, "msix\n")
	t.put("/sys/kernel/irq/"+irq+"/chip_name", chip+"\n")
}

// join makes the function a member of its IOMMU group.
func (f *function) join(t *tree, n *node) {
	t.tb.Helper()
	group := "/sys/kernel/iommu_groups/" + f.words["group"]
	domain := n.Domain
	if domain == "" {
		domain = "DMA-FQ"
	}
	t.put(group+"/type", domain+"\n")
	t.put(group+"/reserved_regions", "0x00000000fee00000 0x00000000feefffff msi\n")
	t.link(f.dir+"/iommu_group", group)
	t.link(group+"/devices/"+f.address, f.dir)
	unit := "/sys/class/iommu/" + f.or("iommu", n.IOMMUs[0])
	t.link(unit+"/devices/"+f.address, f.dir)
	t.link(f.dir+"/iommu", unit)
}

func (f *function) network(t *tree, name string) {
	t.tb.Helper()
	dir := f.dir + "/net/" + name
	for attribute, value := range map[string]string{"address": "94:6d:ae:00:00:01", "operstate": "up", "ifindex": "7"} {
		t.put(dir+"/"+attribute, value+"\n")
	}
	t.link(dir+"/device", f.dir)
	t.link("/sys/class/net/"+name, dir)
}

// virtualize makes a PF's attributes, or joins a VF to its PF.
func (f *function) virtualize(t *tree) {
	t.tb.Helper()
	if total, ok := f.words["vfs"]; ok {
		f.put(t, map[string]string{"sriov_totalvfs": total + "\n", "sriov_numvfs": "0\n", "sriov_drivers_autoprobe": "1\n", "sriov_vf_device": "101e\n"})
	}
	index, address, ok := strings.Cut(f.words["vf"], "@")
	if !ok {
		return
	}
	pf := "/sys/bus/pci/devices/" + address
	t.link(f.dir+"/physfn", strings.Replace(f.dir, f.address, address, 1))
	t.put(pf+"/sriov_numvfs", strings.TrimSpace(t.next(pf+"/sriov_numvfs"))+"\n")
	t.link(strings.Replace(f.dir, f.address, address, 1)+"/virtfn"+index, f.dir)
}

// next is the number in a file and one more.
func (t *tree) next(name string) string {
	t.tb.Helper()
	var n int
	_, err := fmt.Sscan(t.text(name), &n)
	t.check(err)
	return fmt.Sprint(n + 1)
}

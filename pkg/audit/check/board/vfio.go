package board

// goodVfio sets up what the checks of VFIO look at: vfio-pci's parameters,
// udev's rules, and process 1, which says that proc shows the whole node.
func (t *Tree) goodVfio() {
	for name, value := range map[string]string{
		"disable_denylist": "N", "enable_sriov": "N", "nointxmask": "N", "disable_vga": "Y", "disable_idle_d3": "N",
	} {
		t.SetParameter("vfio_pci", name, value)
	}
	t.Put("usr/lib/udev/rules.d/50-udev-default.rules", "# what systemd has\nKERNEL==\"vfio\", MODE=\"0666\", OPTIONS+=\"static_node=vfio/vfio\"\n")
	t.Put("etc/udev/rules.d/70-kata.rules", "SUBSYSTEM==\"vfio\", GROUP=\"kvm\", MODE=\"0660\"\n")
	t.Symlink("proc/1/ns/pid", pidNamespace)
	t.Symlink("proc/1/ns/mnt", mountNamespace)
}

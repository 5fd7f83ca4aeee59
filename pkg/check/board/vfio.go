package board

// goodVfio sets up what the checks of VFIO look at: vfio-pci's parameters, and
// process 1, which says that proc shows the whole node.
func (t *Tree) goodVfio() {
	for name, value := range map[string]string{
		"disable_denylist": "N", "enable_sriov": "N", "nointxmask": "N", "disable_vga": "Y", "disable_idle_d3": "N",
	} {
		t.SetParameter("vfio_pci", name, value)
	}
	t.Symlink("proc/1/ns/pid", "pid:[4026531836]")
}

package board

// goodConfidential sets up what the checks of CC look at: TDX, asked for and on.
func (t *Tree) goodConfidential() {
	t.Put("etc/modprobe.d/tdx.conf", "options kvm_intel tdx=1\n")
	t.Put("sys/module/kvm_intel/parameters/tdx", "Y\n")
}

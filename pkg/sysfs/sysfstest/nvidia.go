package sysfstest

// Numbers of the nodes that NVIDIA's driver has for all GPUs. Those of uvm and caps
// are allotted as it comes.
const (
	majorUVM  = 508
	majorCaps = 234
)

// AddNVIDIANodes makes the nodes by which processes use all GPUs of NVIDIA's driver,
// as its tools do, and what /proc/devices says of them.
func (k *Kernel) AddNVIDIANodes() {
	k.build(func() {
		for node, n := range map[string]Number{
			"/dev/nvidiactl":               {majorNVIDIA, 255},
			"/dev/nvidia-modeset":          {majorNVIDIA, 254},
			"/dev/nvidia-uvm":              {majorUVM, 0},
			"/dev/nvidia-uvm-tools":        {majorUVM, 1},
			"/dev/nvidia-caps/nvidia-cap1": {majorCaps, 1},
			"/dev/nvidia-caps/nvidia-cap2": {majorCaps, 2},
		} {
			k.nodes[node] = n
			k.put(node[1:], "", 0o600)
		}
		k.put("proc/devices", "Character devices:\n  1 mem\n195 nvidia\n234 nvidia-caps\n508 nvidia-uvm\n\nBlock devices:\n  8 sd\n", readOnly)
	})
}

// SetNVIDIAModeset loads nvidia_drm with modeset on or off.
func (k *Kernel) SetNVIDIAModeset(on bool) {
	text := "N\n"
	if on {
		text = "Y\n"
	}
	k.build(func() { k.put("sys/module/nvidia_drm/parameters/modeset", text, readOnly) })
}

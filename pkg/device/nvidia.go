package device

import "slices"

// WaitsForUsers reports whether the unbind from a host driver waits in the kernel until
// nothing uses the function, as NVIDIA's does: no signal and no time-out end that wait.
func WaitsForUsers(driver string) bool { return driver == "nvidia" }

// NeverLetsGo says, as the end of a sentence, what to do about an unbind from such a
// driver that hangs.
const NeverLetsGo = "stop every process that has a /dev/nvidia* node open; from version 595 on the driver does not end the unbind " +
	"even then (https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1119): restart the node"

// SharedNodes returns the nodes below /dev by which a process may use any function
// of the driver; one that ends in "/" stands for all that are in it. Who has one open
// may use each of the functions: the driver tells nobody which (NV_ESC_ATTACH_GPUS_TO_FD
// takes a GPU through nvidiactl alone, and uvm and modeset take GPUs in the kernel).
func SharedNodes(driver string) []string {
	if !WaitsForUsers(driver) {
		return nil
	}
	return nvidiaShared()
}

// IsShared reports whether a node is one of those of any driver.
func IsShared(node string) bool { return slices.Contains(nvidiaShared(), node) }

func nvidiaShared() []string {
	return []string{"/dev/nvidia-caps/", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"}
}

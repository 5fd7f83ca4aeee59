package check

import (
	"path"
	"slices"
	"strings"
)

// driverRoot is where NVIDIA's driver container shows its root directory on the node.
const driverRoot = "/run/nvidia/driver"

// vendorPaths are the directories and files of nodes that specs of vendors mount: files of graphics libraries, and sockets and
// directories of NVIDIA's services (nvidia-container-toolkit, internal/discover: graphics.go, ipc.go, gds.go; k8s-dra-driver-gpu,
// sharing.go and computedomain.go).
func vendorPaths() []string {
	return []string{
		"/etc/OpenCL", "/etc/X11/xorg.conf.d", "/etc/cufile.json", "/etc/egl", "/etc/glvnd", "/etc/nvidia/nvoptix.bin", "/etc/vulkan",
		"/run/nvidia-fabricmanager", "/run/nvidia-persistenced", "/run/nvidia/mps", "/run/udev", "/tmp/nvidia-mps",
		"/var/lib/kubelet/plugins/gpu.nvidia.com/mps", "/var/lib/kubelet/plugins/compute-domain.nvidia.com/domains",
		"/dev/dri",
	}
}

// isSensitive reports whether a mount may give control of the node, or its secrets: whether it is neither a file of the system's
// libraries and programs, nor known from vendors. The sockets of Kata's and the cluster's services, and the devices, are among the rest.
func isSensitive(host string) bool {
	host = path.Clean(host)
	if below, ok := strings.CutPrefix(host, "/var/run/"); ok {
		host = "/run/" + below // a link on all distributions
	}
	if below, ok := strings.CutPrefix(host, driverRoot); ok && strings.HasPrefix(below, "/") {
		host = below
	}
	isKnown := slices.ContainsFunc(vendorPaths(), func(known string) bool { return host == known || strings.HasPrefix(host, known+"/") })
	return !isKnown && !strings.HasPrefix(host, "/dev/nvidia") && !isSoftware(host) && !isClaimsMetadata(host)
}

// isClaimsMetadata reports whether a file is the metadata of one claim's request, which a DRA driver's spec mounts from the driver's
// directory below the kubelet's (kubeletplugin, metadata.go).
func isClaimsMetadata(host string) bool {
	_, below, ok := strings.Cut(host, "/plugins/")
	if !ok {
		return false
	}
	_, below, _ = strings.Cut(below, "/") // the driver's name
	return isMetadata(below)
}

// isSoftware reports whether a path is below a directory of installed libraries, programs or firmware. The files of the runtime itself
// don't count.
func isSoftware(host string) bool {
	parts := strings.Split(strings.TrimPrefix(host, "/"), "/")
	switch parts[0] {
	case "lib", "lib32", "lib64", "libx32", "bin", "sbin":
		return len(parts) > 1
	case "usr":
		return len(parts) > 2 // /usr/lib and its like are the system's as a whole
	case "opt":
		return len(parts) > 1 && parts[1] != "kata" && parts[1] != "cni" && parts[1] != "cdi"
	}
	return false
}

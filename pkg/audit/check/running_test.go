package check_test

import (
	"os"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// runningFaults are what a running containerd says that its files, or the journal, contradict.
func runningFaults() []fault {
	handler := func(about string, change func(*facts.CRIHandler)) fault {
		return fault{rule: "RT-031", about: about, board: board.New, plant: func(t *board.Tree) {
			t.AskedContainerd(func(r *facts.RunningContainerd) {
				h := r.CRI.Handlers["kata-gpu"]
				change(&h)
				r.CRI.Handlers["kata-gpu"] = h
			})
		}}
	}
	answer := func(rule, about string, state finding.State, change func(*facts.RunningContainerd)) fault {
		return fault{rule: rule, about: about, board: board.Server, state: state, plant: func(t *board.Tree) { t.AskedContainerd(change) }}
	}
	return []fault{
		handler("annotations that still reach Kata", func(h *facts.CRIHandler) { h.PodAnnotations = []string{"io.katacontainers.*"} }),
		handler("host devices for privileged containers", func(h *facts.CRIHandler) { h.PrivilegedWithoutHostDevices = false }),
		handler("another shim", func(h *facts.CRIHandler) { h.Path = "/usr/local/bin/containerd-shim-kata-v2" }),
		handler("another configuration of Kata's", func(h *facts.CRIHandler) { h.Config = "/etc/kata-containers/configuration.toml" }),
		handler("another sandboxer", func(h *facts.CRIHandler) { h.Sandboxer = "shim" }),
		answer("RT-031", "a handler that is not there yet", "", func(r *facts.RunningContainerd) { delete(r.CRI.Handlers, "kata-gpu") }),
		answer("RT-031", "a handler that no file has", "", func(r *facts.RunningContainerd) {
			r.CRI.Handlers["kata-old"] = facts.CRIHandler{Type: "io.containerd.kata.v2"}
		}),
		answer("RT-031", "other directories of CDI", "", func(r *facts.RunningContainerd) { r.CRI.CDIDirs = []string{"/etc/cdi"} }),
		answer("RT-031", "NRI not loaded", "", func(r *facts.RunningContainerd) { r.Plugins[1].Error = "listen: address already in use" }),
		answer("RT-031", "no CRI", finding.NotApplicable, func(r *facts.RunningContainerd) { r.CRI = nil }),
		{rule: "RT-031", about: "an answer that can't be read", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put(runtimes.RunningFile, "{")
		}},
		answer("RT-032", "a privileged container on the node's kernel", "", func(r *facts.RunningContainerd) {
			r.Containers = []facts.Container{{ID: "a", Space: "k8s.io", Runtime: "io.containerd.runc.v2", Namespace: "t1", Pod: "p", Privileged: true}}
		}),
		answer("RT-032", "a container whose bundle says less", "", func(r *facts.RunningContainerd) {
			r.Containers = []facts.Container{{
				ID: "container-of-t1", Space: "k8s.io", Runtime: "io.containerd.runc.v2", Namespace: "t1", Pod: "pod-of-t1", Privileged: true,
			}}
		}),
		answer("RT-032", "a privileged container in a VM", finding.Pass, func(r *facts.RunningContainerd) {
			r.Containers = []facts.Container{{ID: "a", Space: "k8s.io", Runtime: "io.containerd.kata-gpu.v2", Namespace: "t1", Pod: "p", Privileged: true}}
		}),
		answer("RT-032", "a privileged container of the infrastructure", finding.Pass, func(r *facts.RunningContainerd) {
			r.Containers = []facts.Container{{ID: "a", Space: "k8s.io", Runtime: "io.containerd.runc.v2", Namespace: "kube-system", Pod: "cni", Privileged: true}}
		}),
		{rule: "RT-032", about: "a bundle that says so", board: board.Server, plant: func(t *board.Tree) {
			t.Put("run/containerd/io.containerd.runtime.v2.task/k8s.io/b/config.json", privilegedBundle)
		}},
		nodeFault("a container of no pod", "gpu0", facts.Container{ID: "a", Space: "moby"}, ""),
		nodeFault("a pod of another tenant", "gpu0", facts.Container{ID: "a", Space: "k8s.io", Namespace: "t2", Pod: "p"}, ""),
		nodeFault("a pod of the tenant", "gpu0", facts.Container{ID: "a", Space: "k8s.io", Namespace: "t1", Pod: "p"}, finding.Pass),
		{rule: "VFIO-021", about: "an answer that can't be read", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put(runtimes.RunningFile, "{")
		}},
		renamedFault("another name for the node, in a container of no pod", facts.Container{ID: "a", Space: "moby"}, ""),
		renamedFault("another name for the node, in a pod of the tenant", facts.Container{ID: "a", Space: "k8s.io", Namespace: "t1", Pod: "p"}, finding.Pass),
		nodeFault("the infrastructure", "gpu0", facts.Container{ID: "a", Space: "k8s.io", Namespace: "kube-system", Pod: "cni", Privileged: true}, finding.Pass),
	}
}

const privilegedBundle = `{"annotations": {"io.kubernetes.cri.sandbox-namespace": "t1", "io.kubernetes.cri.sandbox-name": "p"},
"process": {"capabilities": {"bounding": ["CAP_CHOWN", "CAP_SYS_ADMIN"]}}, "linux": {"resources": {"devices": [{"allow": true, "access": "rwm"}]}}}`

// nodeFault has a container have the VFIO node of a device.
func nodeFault(about, name string, c facts.Container, state finding.State) fault {
	return fault{rule: "VFIO-021", about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
		c.Devices = []string{vfioNode(t, name)}
		t.AskedContainerd(func(r *facts.RunningContainerd) { r.Containers = []facts.Container{c} })
	}}
}

// renamedFault has a container have the node of gpu0 by a name of its own, as `docker run --device /dev/vfio/12:/dev/x` does.
func renamedFault(about string, c facts.Container, state finding.State) fault {
	return fault{rule: "VFIO-021", about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
		number := strings.TrimSpace(t.Text("sys/class/vfio/" + path.Base(vfioNode(t, "gpu0")) + "/dev"))
		c.Devices, c.CharDevices = []string{"/dev/x"}, map[string]string{"/dev/x": number}
		t.AskedContainerd(func(r *facts.RunningContainerd) { r.Containers = []facts.Container{c} })
	}}
}

// vfioNode is the node of a device's IOMMU group.
func vfioNode(t *board.Tree, name string) string {
	t.TB.Helper()
	group, err := os.Readlink(t.Path("sys/bus/pci/devices/" + t.Devices[name].String() + "/iommu_group"))
	if err != nil {
		t.TB.Fatal(err)
	}
	return "/dev/vfio/" + path.Base(group)
}

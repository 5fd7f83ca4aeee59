package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// foreignSpec is a spec in YAML of another vendor's.
func foreignSpec(t *board.Tree, name, edits string) {
	t.Put("etc/cdi/"+name+".yaml", "cdiVersion: 0.6.0\nkind: example.com/pgpu\ndevices:\n- name: \"0\"\n  containerEdits:\n"+edits)
}

// changeSpec replaces text in a claim's spec.
func changeSpec(t *board.Tree, tenant, name, old, with string) {
	rec := record(t, tenant, name)
	text := t.Text(board.SpecFile(rec))
	if !strings.Contains(text, old) {
		t.TB.Fatalf("the spec has no %q: %s", old, text)
	}
	t.Put(board.SpecFile(rec), strings.ReplaceAll(text, old, with))
}

func cdiFaults() []fault {
	return slices.Concat(ownerOfSpecFaults(), specFaults(), goneFaults(), editFaults())
}

// goneFaults are about claims' specs with nodes that nobody is behind.
func goneFaults() []fault {
	// leaves has the claim's function leave VFIO, and its VMM end.
	leaves := func(t *board.Tree) {
		t.Delete(procOf(record(t, "t1", "train").Sandbox.VMM))
		t.GiveBack(t.Devices["gpu0"])
	}
	iommufd := func(t *board.Tree) {
		n, _ := t.Node(nodeOf(t, "gpu0"))
		changeSpec(t, "t1", "train", fmt.Sprintf(`"minor": %d`, n.Minor), `"minor": 9999`)
		changeSpec(t, "t1", "train", nodeOf(t, "gpu0"), "/dev/vfio/devices/vfio99")
	}
	return []fault{
		{rule: "CDI-002", about: "its function is with its driver again", board: board.Server, state: finding.Pass, plant: leaves},
		{rule: "CDI-002", about: "its function is with its driver again, by iommufd", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			iommufd(t)
			leaves(t)
		}},
		{rule: "CDI-002", about: "its function is gone", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			t.Delete(procOf(record(t, "t1", "train").Sandbox.VMM))
			t.Remove(t.Devices["gpu0"])
		}},
		{rule: "CDI-002", about: "a node of iommufd's that was nobody's", board: board.Server, plant: func(t *board.Tree) {
			t.Put(sysfs.FunctionPath(t.Devices["gpu0"])+"/vfio-dev/vfio0/dev", "511:0\n")
			iommufd(t)
		}},
		{rule: "CDI-002", about: "a group's node that was nobody's", board: board.Server, plant: func(t *board.Tree) {
			n, _ := t.Node(nodeOf(t, "gpu0"))
			changeSpec(t, "t1", "train", fmt.Sprintf(`"minor": %d`, n.Minor), `"minor": 9999`)
			changeSpec(t, "t1", "train", nodeOf(t, "gpu0"), "/dev/vfio/4711")
		}},
	}
}

func ownerOfSpecFaults() []fault {
	return []fault{
		{rule: "CDI-001", about: "a spec of a user's", board: board.Server, plant: func(t *board.Tree) { t.Own("etc/cdi/nvidia.yaml", "100644", 1000, 1000) }},
		{rule: "CDI-001", about: "a directory that all may write to", board: board.Server, plant: func(t *board.Tree) { t.Own("run/cdi", "40777", 0, 0) }},
	}
}

func specFaults() []fault {
	return []fault{
		{rule: "CDI-002", about: "a foreign spec by path", board: board.Server, plant: func(t *board.Tree) {
			foreignSpec(t, "pgpu", "    deviceNodes:\n    - path: "+nodeOf(t, "gpu0")+"\n")
		}},
		{rule: "CDI-002", about: "a foreign spec by number", board: board.Server, plant: func(t *board.Tree) {
			n, _ := t.Node(nodeOf(t, "gpu0"))
			foreignSpec(t, "pgpu", fmt.Sprintf("    deviceNodes:\n    - path: /dev/harmless\n      type: c\n      major: %d\n      minor: %d\n", n.Major, n.Minor))
		}},
		{rule: "CDI-002", about: "a foreign spec by a mount of all nodes", board: board.Server, plant: func(t *board.Tree) {
			foreignSpec(t, "pgpu", "    mounts:\n    - hostPath: /dev/vfio\n      containerPath: /x\n")
		}},
		{rule: "CDI-002", about: "in a directory that containerd is told of", board: board.Server, plant: func(t *board.Tree) {
			t.Put("etc/containerd/config.toml", "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = [\"/etc/cdi\", '/opt/cdi']\n")
			t.Put("opt/cdi/x.json", `{"cdiVersion":"0.6.0","kind":"example.com/x","devices":[{"name":"0","containerEdits":{"deviceNodes":[{"path":"/dev/iommu"}]}}]}`)
		}},
		{rule: "CDI-002", about: "a claim's spec with another's node", board: board.Server, plant: func(t *board.Tree) {
			n, _ := t.Node(nodeOf(t, "gpu0"))
			m, _ := t.Node(nodeOf(t, "nic0/vf0"))
			changeSpec(t, "t2", "serve", fmt.Sprintf(`"minor": %d`, m.Minor), fmt.Sprintf(`"minor": %d`, n.Minor))
		}},
		{rule: "CDI-002", about: "a spec that can't be read", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put("etc/cdi/x.yaml", "kind: [\n")
		}},
		{rule: "CDI-003", about: "one node in two specs", board: board.Server, plant: func(t *board.Tree) {
			foreignSpec(t, "pgpu", "    deviceNodes:\n    - path: "+nodeOf(t, "gpu0")+"\n")
		}},
		{rule: "CDI-003", about: "one name in two specs", board: board.Server, plant: func(t *board.Tree) {
			foreignSpec(t, "a", "    env: [A=1]\n")
			foreignSpec(t, "b", "    env: [A=2]\n")
		}},
		{rule: "CDI-004", about: "its claim is gone", board: board.Server, plant: func(t *board.Tree) {
			t.Delete("var/lib/kata-vfio/journal/" + record(t, "t1", "train").ID() + ".json")
		}},
		{rule: "CDI-004", about: "its claim is quarantined", board: board.Server, plant: func(t *board.Tree) {
			rec := record(t, "t1", "train")
			rec.State = journal.Quarantined
			t.Save(rec)
		}},
		{rule: "CDI-004", about: "its claim's record is damaged", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put("var/lib/kata-vfio/journal/"+record(t, "t1", "train").ID()+".json", "{}")
		}},
	}
}

// TestMountsOfSpecs: what specs of vendors mount is in order, and all else of the node is not.
func TestMountsOfSpecs(t *testing.T) {
	tree := board.Server(t)
	refused := []string{
		"/", "/usr", "/usr/lib", "/opt", "/opt/kata", "/opt/kata/bin", "/root", "/home/me", "/boot", "/srv", "/tmp", "/proc/1/root", "/sys",
		"/etc", "/etc/shadow", "/etc/containerd", "/etc/cdi", "/etc/kubernetes/pki", "/dev", "/dev/mem", "/dev/sda", "/dev/shm",
		"/var/lib/kata-vfio", "/var/lib/etcd", "/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins/gpu.nvidia.com", "/var/lib/kubelet/plugins/kata-vfio.dev/dra-device-metadata",
		"/run", "/run/containerd", "/run/crio", "/var/run/docker.sock",
		"/run/nvidia", "/run/nvidia/driver", "/run/nvidia/driver/proc", "/run/nvidia/driver/../../containerd",
	}
	for i, host := range refused {
		foreignSpec(tree, fmt.Sprintf("bad%d", i), "    mounts:\n    - hostPath: "+host+"\n      containerPath: /x\n")
	}
	edits := "    mounts:\n"
	for _, host := range []string{
		"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/bin/nvidia-smi", "/usr/share/nvidia/nvoptix.bin", "/opt/rocm/lib/libhsa-runtime64.so.1",
		"/lib/firmware/nvidia/570.133.20/gsp_ga10x.bin", "/run/nvidia/driver/usr/lib64/libcuda.so.1", "/etc/vulkan/icd.d/nvidia_icd.json",
		"/etc/glvnd/egl_vendor.d/10_nvidia.json", "/etc/cufile.json", "/run/udev", "/var/run/nvidia-persistenced/socket",
		"/run/nvidia-fabricmanager/socket", "/tmp/nvidia-mps", "/dev/dri/by-path", "/dev/nvidia-caps",
		"/var/lib/kubelet/plugins/gpu.nvidia.com/mps/claim/shm", "/var/lib/kubelet/plugins/compute-domain.nvidia.com/domains/u",
		"/var/lib/kubelet/plugins/kata-vfio.dev/dra-device-metadata/team-a_gpu/gpu/metadata.json",
	} {
		edits += "    - {hostPath: " + host + ", containerPath: /x}\n"
	}
	foreignSpec(tree, "good", edits)
	var said []string
	for _, f := range of(audit(t, tree), "CDI-005") {
		if strings.Contains(f.Object, "good") {
			t.Errorf("%s: %s", f.State, f.Text)
		}
		_, host, _ := strings.Cut(f.Text, "a mount of ")
		said = append(said, host)
	}
	slices.Sort(said)
	slices.Sort(refused)
	if diff := cmp.Diff(refused, said); diff != "" {
		t.Errorf("mounts that fail (-want +got):\n%s", diff)
	}
}

func editFaults() []fault {
	return []fault{
		{rule: "CDI-005", about: "a hook of nobody's", board: board.Server, plant: func(t *board.Tree) {
			foreignSpec(t, "x", "    hooks:\n    - hookName: createContainer\n      path: /opt/x/run\n")
		}},
		{rule: "CDI-005", about: "the runtime's socket", board: board.Server, plant: func(t *board.Tree) {
			foreignSpec(t, "x", "    mounts:\n    - hostPath: /run/containerd/containerd.sock\n      containerPath: /c.sock\n")
		}},
		{rule: "CDI-005", about: "a library that is loaded first", board: board.Server, plant: func(t *board.Tree) {
			foreignSpec(t, "x", "    env: [LD_PRELOAD=/x.so]\n")
		}},
		{rule: "CDI-006", about: "a control node that nobody asked for", board: board.Server, plant: func(t *board.Tree) {
			changeSpec(t, "t1", "train", `"deviceNodes": [`, `"deviceNodes": [ {"path": "/dev/vfio/vfio"},`)
		}},
		{rule: "CDI-007", about: "a name that everybody knows", board: board.Server, plant: func(t *board.Tree) {
			foreignSpec(t, "pgpu", "    deviceNodes:\n    - path: "+nodeOf(t, "gpu0")+"\n")
		}},
	}
}

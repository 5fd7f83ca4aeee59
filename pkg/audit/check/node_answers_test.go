package check_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

func romFaults() []fault {
	// give runs a VMM that has the GPU, with or without an option ROM, and the options behind it.
	give := func(about, option string, rom bool, state finding.State) fault {
		return fault{rule: "RST-012", about: about, board: freeGPU, state: state, device: deviceIf(state, "gpu0"), plant: func(t *board.Tree) {
			a := t.Devices["gpu0"].String()
			if rom {
				name := "sys/bus/pci/devices/" + a + "/resource"
				lines := strings.Split(t.Text(name), "\n")
				lines[6] = "0x00000000f7000000 0x00000000f707ffff 0x0000000000046200"
				t.Put(name, strings.Join(lines, "\n"))
			}
			t.Start(board.Process{Comm: "qemu-system-x86", Arguments: []string{"/opt/kata/bin/qemu-system-x86_64", "-device", "vfio-pci,host=" + a + option}})
		}}
	}
	return []fault{
		give("a ROM that the VM sees", "", true, ""),
		give("a ROM file", ",romfile=/x.rom", true, ""),
		give("a ROM that is kept away", ",rombar=0", true, finding.Pass),
		give("no ROM file", ",id=x,romfile=", true, finding.Pass),
		give("no ROM", "", false, finding.Pass),
		{rule: "RST-012", about: "a function that is not there", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: "qemu-system-x86", Arguments: []string{"/opt/kata/bin/qemu-system-x86_64", "-device", "vfio-pci,host=0000:99:00.0"}})
		}},
	}
}

// freeGPU is a node with one GPU, that nobody has.
func freeGPU(tb testing.TB) *board.Tree {
	tb.Helper()
	t := board.New(tb)
	t.Devices["gpu0"] = t.AddGPU(0x3b)
	return t
}

// deviceIf names the device where the rule fails.
func deviceIf(state finding.State, name string) string {
	if state == "" {
		return name
	}
	return ""
}

func bmcFaults() []fault {
	with := func(about string, state finding.State, plant func(*board.Tree)) fault {
		return fault{rule: "HOST-019", about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
			t.Put("sys/class/ipmi/ipmi0/dev", "240:0\n")
			t.Own("dev/ipmi0", "20600", 0, 0)
			plant(t)
		}}
	}
	return []fault{
		with("a tenant's container has the node", "", func(t *board.Tree) { runWith(t, "t1", "/dev/ipmi0") }),
		with("a tenant's container has all of /dev", "", func(t *board.Tree) { t.Run("t1", "/dev") }),
		with("everybody may open it", "", func(t *board.Tree) { t.Own("dev/ipmi0", "20666", 0, 0) }),
		with("root alone has it", finding.Pass, func(t *board.Tree) { runWith(t, "t1", "/dev/null") }),
		with("a pod of the node's has it", finding.Pass, func(t *board.Tree) { runWith(t, "monitoring", "/dev/ipmi0") }),
		with("no containers to be seen", finding.Unknown, func(t *board.Tree) { t.Delete("run/containerd") }),
		{rule: "HOST-019", about: "no BMC", board: board.Server, state: finding.NotApplicable, plant: func(*board.Tree) {}},
	}
}

// runWith has containerd run a container of a tenant's with a device node.
func runWith(t *board.Tree, tenant, device string) {
	t.TB.Helper()
	spec := specs.Spec{
		Annotations: map[string]string{"io.kubernetes.cri.sandbox-namespace": tenant, "io.kubernetes.cri.sandbox-name": "nosy"},
		Linux:       &specs.Linux{Devices: []specs.LinuxDevice{{Path: device}}},
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.TB.Fatal(err)
	}
	t.Put("run/containerd/io.containerd.runtime.v2.task/k8s.io/nosy/config.json", string(text))
}

func numaFaults() []fault {
	// mems rewrites what VMMs may have memory of, on a node where the GPU of t1 is at NUMA
	// node 1.
	mems := func(about, line string, state finding.State) fault {
		return fault{rule: "HOST-017", about: about, board: board.Server, state: state, device: deviceIf(state, "gpu0"), plant: func(t *board.Tree) {
			t.Put("sys/devices/system/node/online", "0-1\n")
			t.Put("sys/bus/pci/devices/"+t.Devices["gpu0"].String()+"/numa_node", "1\n")
			for pid := range 100 {
				name := fmt.Sprintf("proc/%d/status", 4700+pid)
				if text, ok := statusOf(t, name); ok {
					t.Put(name, strings.Replace(text, "Mems_allowed_list:\t0-1\n", line, 1))
				}
			}
		}}
	}
	return []fault{
		mems("the other socket's", "Mems_allowed_list:\t0\n", ""),
		mems("a list without it", "Mems_allowed_list:\t0,3-5\n", ""),
		mems("its own, among others", "Mems_allowed_list:\t0,1\n", finding.Pass),
		mems("not said", "", finding.Unknown),
	}
}

func statusOf(t *board.Tree, name string) (string, bool) {
	fsys, _ := t.Read()
	defer func() { _ = fsys.Close() }()
	text, err := fsys.ReadAtMost(name, 1<<16)
	return string(text), err == nil
}

func gpuNodeFaults() []fault {
	daemon := func(about, comm string, state finding.State) fault {
		return fault{rule: "GPU-013", about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: comm})
		}}
	}
	return []fault{
		daemon("persistenced", "nvidia-persiste", ""),
		daemon("the host engine", "nv-hostengine", ""),
		daemon("another daemon", "sshd", finding.Pass),
		{rule: "GPU-013", about: "a node with GPUs of its own", board: board.HGX, state: finding.Pass, plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: "nvidia-persiste"})
		}},
		{rule: "GPU-012", about: "one that was resized", board: board.Server, device: "gpu1", plant: func(t *board.Tree) {
			name := "sys/bus/pci/devices/" + t.Devices["gpu1"].String() + "/resource"
			lines := strings.Split(t.Text(name), "\n")
			for i, line := range lines[:6] {
				if !strings.HasPrefix(line, "0x0000000000000000 0x0000000000000000") {
					lines[i] = "0x0000200000000000 0x000020000fffffff 0x000000000014220c"
					break
				}
			}
			t.Put(name, strings.Join(lines, "\n"))
		}},
	}
}

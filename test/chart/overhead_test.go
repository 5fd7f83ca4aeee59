package chart

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

const runtimeClassDir = "../../runtimeclass/"

type quantities map[string]resource.Quantity

// The VM boots on the pod's limits: its RAM, which VFIO pins, and its CPU time come out of the overhead.
func TestOverheadCoversTheVMsBoot(t *testing.T) {
	byChart := chartOverheads(t)
	for _, class := range []struct {
		file, handler string
		overhead      quantities
		forTheHost    int64 // MiB for the VMM and the rest of what runs beside the guest
		dropIns       []string
	}{
		{"runtimeclass.yaml", "kata-gpu", byChart.Overhead, 2048, []string{"50-kata-gpu.toml", "50-kata-gpu-runtime-rs.toml", "50-kata-gpu-hotplug.toml"}},
		{"runtimeclass-nic.yaml", "kata-vfio", byChart.NIC.Overhead, 512, []string{"50-kata-vfio.toml", "50-kata-vfio-runtime-rs.toml"}},
	} {
		handler, byFile := classOf(t, class.file)
		if diff := cmp.Diff(byFile, class.overhead); diff != "" || handler != class.handler {
			t.Errorf("the chart's overhead is not that of %s, whose handler is %s (-runtimeclass +chart):\n%s", class.file, handler, diff)
		}
		// One CPU is what Kata's default_vcpus gives a VM: with less, a small CPU limit of a pod's containers starves the boot.
		if cpu := byFile["cpu"]; cpu.Cmp(resource.MustParse("1")) < 0 {
			t.Errorf("%s has a CPU of %s; want 1 at least", class.file, cpu.String())
		}
		for _, file := range class.dropIns {
			checkMemory(t, file, byFile["memory"], class.forTheHost)
		}
	}
}

func checkMemory(t *testing.T, file string, overhead resource.Quantity, forTheHost int64) {
	t.Helper()
	guest := memoryOf(t, file)
	if want := (guest.DefaultMemory + forTheHost) << 20; overhead.Value() != want {
		t.Errorf("%s has default_memory %d MiB, and the overhead is %s; want %d MiB", file, guest.DefaultMemory, overhead.String(), want>>20)
	}
	if rust := strings.Contains(file, "runtime-rs"); rust && guest.OverheadMemory != guest.DefaultMemory {
		t.Errorf("%s has overhead_memory %d MiB, want its default_memory, %d MiB: a pod with limits would have a smaller VM than one without", file, guest.OverheadMemory, guest.DefaultMemory)
	}
}

// A handler's settings beside the guest's RAM are those of kata-gpu, for which tests run VMs.
func TestHandlerForNICsDiffersInItsMemoryOnly(t *testing.T) {
	for _, suffix := range []string{"", "-runtime-rs"} {
		gpu, nic := map[string]any{}, map[string]any{}
		for file, into := range map[string]*map[string]any{"50-kata-gpu": &gpu, "50-kata-vfio": &nic} {
			if err := toml.Unmarshal(fileOf(t, "kata/"+file+suffix+".toml"), into); err != nil {
				t.Fatal(err)
			}
			qemu, _ := (*into)["hypervisor"].(map[string]any)["qemu"].(map[string]any)
			delete(qemu, "default_memory")
			delete(qemu, "overhead_memory")
			// A handler for NICs shares directories with its VMs. With the Rust runtime, kata-gpu may have a base that does not.
			if blocks := qemu["disable_block_device_use"]; blocks != true && (file == "50-kata-vfio" || suffix == "") {
				t.Errorf("%s%s has disable_block_device_use = %v, want true", file, suffix, blocks)
			}
			delete(qemu, "disable_block_device_use")
		}
		if diff := cmp.Diff(gpu, nic); diff != "" {
			t.Errorf("Kata's drop-ins%s differ (-kata-gpu +kata-vfio):\n%s", suffix, diff)
		}
		for dir, name := range map[string][2]string{
			"containerd/": {"kata-gpu" + suffix + ".toml", "kata-vfio" + suffix + ".toml"},
			"crio/":       {"50-kata-vfio" + suffix + ".conf", "51-kata-vfio-nic" + suffix + ".conf"},
		} {
			gpu, nic := handlersOf(t, dir+name[0]), handlersOf(t, dir+name[1])
			if diff := cmp.Diff(strings.ReplaceAll(gpu, "kata-gpu", "kata-vfio"), nic); diff != "" || nic == "" {
				t.Errorf("%s%s has another handler (-kata-gpu +kata-vfio):\n%s", dir, name[1], diff)
			}
		}
	}
}

// handlersOf is the part of a container runtime's drop-in that names handlers, as JSON.
func handlersOf(t *testing.T, file string) string {
	t.Helper()
	all := map[string]any{}
	if err := toml.Unmarshal(fileOf(t, file), &all); err != nil {
		t.Fatal(err)
	}
	at := any(all)
	path := []string{"plugins", "io.containerd.cri.v1.runtime", "containerd", "runtimes"}
	if strings.HasPrefix(file, "crio/") {
		path = []string{"crio", "runtime", "runtimes"}
	}
	for _, key := range path {
		at = at.(map[string]any)[key]
	}
	text, err := json.Marshal(at)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// runtimeClasses are the chart's values for RuntimeClasses.
type runtimeClasses struct {
	Overhead quantities
	NIC      struct{ Overhead quantities } `json:"nic"`
}

func chartOverheads(t *testing.T) runtimeClasses {
	t.Helper()
	var values struct{ RuntimeClass runtimeClasses }
	if err := yaml.Unmarshal([]byte(read(t, "values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	return values.RuntimeClass
}

// classOf are the handler and the overhead of a RuntimeClass beside Kata's drop-ins.
func classOf(t *testing.T, file string) (handler string, overhead quantities) {
	t.Helper()
	var class struct {
		Handler  string
		Overhead struct{ PodFixed quantities }
	}
	if err := yaml.Unmarshal(fileOf(t, file), &class); err != nil {
		t.Fatal(err)
	}
	return class.Handler, class.Overhead.PodFixed
}

// guestMemory is the guest's RAM in MiB: where a pod has no limits, and with the Rust runtime what is added to limits.
type guestMemory struct {
	DefaultMemory  int64 `toml:"default_memory"`
	OverheadMemory int64 `toml:"overhead_memory"`
}

// memoryOf is the guest's RAM by a drop-in of Kata's.
func memoryOf(t *testing.T, file string) guestMemory {
	t.Helper()
	var dropIn struct {
		Hypervisor struct {
			QEMU guestMemory `toml:"qemu"`
		} `toml:"hypervisor"`
	}
	if err := toml.Unmarshal(fileOf(t, "kata/"+file), &dropIn); err != nil {
		t.Fatal(err)
	}
	return dropIn.Hypervisor.QEMU
}

func fileOf(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(runtimeClassDir + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

package chart

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

const runtimeClassDir = "../../runtimeclass/"

type quantities map[string]resource.Quantity

// The VM boots on the pod's limits: its RAM, which VFIO pins, and its CPU time come out of the overhead.
func TestTheOverheadCoversTheVMsBoot(t *testing.T) {
	byChart, byFile := overheads(t)
	if diff := cmp.Diff(byFile, byChart); diff != "" {
		t.Errorf("the chart's overhead is not that of runtimeclass.yaml (-runtimeclass +chart):\n%s", diff)
	}
	// One CPU is what Kata's default_vcpus gives a VM: with less, a small CPU limit of a pod's containers starves the boot.
	if cpu := byChart["cpu"]; cpu.Cmp(resource.MustParse("1")) < 0 {
		t.Errorf("the overhead has a CPU of %s; want 1 at least", cpu.String())
	}
	const forTheHost = 2048
	rust := memoryOf(t, "50-kata-gpu-runtime-rs.toml")
	if rust.OverheadMemory != rust.DefaultMemory {
		t.Errorf("the Rust runtime's overhead_memory is %d MiB, want its default_memory, %d MiB: a pod with limits would have a smaller VM than one without", rust.OverheadMemory, rust.DefaultMemory)
	}
	for _, file := range []string{"50-kata-gpu.toml", "50-kata-gpu-runtime-rs.toml", "50-kata-gpu-hotplug.toml"} {
		memory, guest := byChart["memory"], memoryOf(t, file).DefaultMemory
		if want := (guest + forTheHost) << 20; memory.Value() != want {
			t.Errorf("%s has default_memory %d MiB, and the overhead is %s; want %d MiB", file, guest, memory.String(), want>>20)
		}
	}
}

// overheads are those of the chart's values and of the RuntimeClass beside Kata's drop-ins.
func overheads(t *testing.T) (byChart, byFile quantities) {
	t.Helper()
	var values struct {
		RuntimeClass struct{ Overhead quantities }
	}
	var class struct {
		Overhead struct{ PodFixed quantities }
	}
	if err := yaml.Unmarshal([]byte(read(t, "values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(fileOf(t, "runtimeclass.yaml"), &class); err != nil {
		t.Fatal(err)
	}
	return values.RuntimeClass.Overhead, class.Overhead.PodFixed
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

package dropins_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// kataConfig has every key of the Kata drop-ins. A pointer tells a key that is left out from one that is zero.
type kataConfig struct {
	Hypervisor map[string]struct {
		ColdPlugVFIO      string    `toml:"cold_plug_vfio"`
		HotPlugVFIO       *string   `toml:"hot_plug_vfio"`
		PCIeRootPort      int       `toml:"pcie_root_port"`
		DefaultMemory     int64     `toml:"default_memory"`
		OverheadMemory    int64     `toml:"overhead_memory"`
		EnableAnnotations *[]string `toml:"enable_annotations"`
		DisableBlock      bool      `toml:"disable_block_device_use"`
		DisableNVDIMM     *bool     `toml:"disable_image_nvdimm"`
		RootfsDriver      string    `toml:"vm_rootfs_driver"`
		VirtioFSArgs      []string  `toml:"virtio_fs_extra_args"`
		EnableNUMA        *bool     `toml:"enable_numa"`
		NUMAMapping       *[]string `toml:"numa_mapping"`
	} `toml:"hypervisor"`
	Runtime struct {
		VFIOMode           string  `toml:"vfio_mode"`
		StaticSandbox      bool    `toml:"static_sandbox_resource_mgmt"`
		SandboxCgroupOnly  bool    `toml:"sandbox_cgroup_only"`
		PodResourceAPISock *string `toml:"pod_resource_api_sock"`
		PinVCPUs           *bool   `toml:"enable_vcpus_pinning"`
	} `toml:"runtime"`
}

func TestKataDropInsSayWhatTheyMust(t *testing.T) {
	for file, want := range map[string]struct {
		cold   string
		hot    *string // nil: the runtime has no such key
		socket string
	}{
		"50-kata-gpu.toml":             {cold: "root-port", hot: new("no-port"), socket: "/run/kata-vfio/pod-resources.sock"},
		"50-kata-gpu-runtime-rs.toml":  {cold: "root-port", socket: "/run/kata-vfio/pod-resources.sock"},
		"50-kata-vfio.toml":            {cold: "root-port", hot: new("no-port"), socket: "/run/kata-vfio/pod-resources.sock"},
		"50-kata-vfio-runtime-rs.toml": {cold: "root-port", socket: "/run/kata-vfio/pod-resources.sock"},
		"50-kata-gpu-hotplug.toml":     {cold: "no-port", hot: new("root-port")},
	} {
		t.Run(file, func(t *testing.T) {
			got := kata(t, file)
			if len(got.Hypervisor) != 1 {
				t.Errorf("it configures %d hypervisors, want qemu only", len(got.Hypervisor))
			}
			qemu := got.Hypervisor["qemu"]
			if qemu.ColdPlugVFIO != want.cold || !cmp.Equal(qemu.HotPlugVFIO, want.hot) {
				t.Errorf("cold and hot plug are %+v", qemu)
			}
			if qemu.PCIeRootPort < 1 || qemu.PCIeRootPort > 16 {
				t.Errorf("it has %d root ports; Kata's limit is 16", qemu.PCIeRootPort)
			}
			// A list that is left out would be the base's.
			if a := qemu.EnableAnnotations; a == nil || len(*a) > 0 {
				t.Errorf("the annotations that count are %v, want an empty list that is written out", a)
			}
			// One drop-in is for a base with shared directories and for one without, and leaves the setting to who installs it.
			if !qemu.DisableBlock && file != "50-kata-gpu-runtime-rs.toml" || !slices.Contains(qemu.VirtioFSArgs, "--modcaps=-mknod") {
				t.Errorf("block devices are disabled: %t, and virtiofsd has the arguments %q", qemu.DisableBlock, qemu.VirtioFSArgs)
			}
			// No kernel maps an NVDIMM for iommufd. Each runtime has a setting of its own for that.
			disk := qemu.RootfsDriver == "" && cmp.Equal(qemu.DisableNVDIMM, new(true))
			if strings.HasSuffix(file, "-runtime-rs.toml") {
				disk = qemu.RootfsDriver == "virtio-blk-pci" && qemu.DisableNVDIMM == nil
			}
			if !disk {
				t.Errorf("the guest's image is no disk: vm_rootfs_driver %q, disable_image_nvdimm %v", qemu.RootfsDriver, qemu.DisableNVDIMM)
			}
			r := got.Runtime
			if r.VFIOMode != "guest-kernel" || !r.StaticSandbox || !r.SandboxCgroupOnly ||
				r.PodResourceAPISock == nil || *r.PodResourceAPISock != want.socket {
				t.Errorf("the runtime is %+v, its socket %v", r, r.PodResourceAPISock)
			}
		})
	}
}

// The topology is the Go runtime's alone, and one that the drop-in itself maps would be that of each VM, whatever its devices.
func TestNUMADropInLetsKataChoose(t *testing.T) {
	got := kata(t, "60-numa.toml")
	qemu := got.Hypervisor["qemu"]
	if len(got.Hypervisor) != 1 || !cmp.Equal(qemu.EnableNUMA, new(true)) || !cmp.Equal(qemu.NUMAMapping, &[]string{}) {
		t.Errorf("the topology is %+v, want it enabled with an empty mapping that is written out", got.Hypervisor)
	}
	if !got.Runtime.StaticSandbox || !cmp.Equal(got.Runtime.PinVCPUs, new(true)) {
		t.Errorf("the runtime is %+v, want a size that is fixed at boot, and pinned CPUs", got.Runtime)
	}
	for _, file := range []string{"50-kata-gpu-runtime-rs.toml", "50-kata-vfio-runtime-rs.toml"} {
		if q := kata(t, file).Hypervisor["qemu"]; q.EnableNUMA != nil || q.NUMAMapping != nil {
			t.Errorf("%s configures a topology that the Rust runtime does not have", file)
		}
	}
}

// VFIO pins the guest's RAM, which is charged to the pod: with a smaller overhead the kernel kills the VM at its boot.
func TestOverheadCoversTheGuestsMemory(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(source, "runtimeclass.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var class struct {
		Overhead struct{ PodFixed map[string]resource.Quantity }
	}
	if err := yaml.Unmarshal(text, &class); err != nil {
		t.Fatal(err)
	}
	overhead := class.Overhead.PodFixed["memory"]
	const mib, forTheHost = 1 << 20, 2048
	for _, file := range []string{"50-kata-gpu.toml", "50-kata-gpu-runtime-rs.toml", "50-kata-gpu-hotplug.toml"} {
		guest := kata(t, file).Hypervisor["qemu"].DefaultMemory
		if want := (guest + forTheHost) * mib; overhead.Value() != want {
			t.Errorf("%s has default_memory %d MiB, and the RuntimeClass an overhead of %s; want %d MiB",
				file, guest, overhead.String(), want/mib)
		}
	}
}

// kata reads a drop-in; a key that kataConfig lacks is an error.
func kata(t *testing.T, file string) kataConfig {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(source, "kata", file))
	if err != nil {
		t.Fatal(err)
	}
	var got kataConfig
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

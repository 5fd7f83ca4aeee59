package check_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// kataHandler is the only handler of a board.
func kataHandler(t *testing.T, tree *board.Tree) finding.KataHandler {
	t.Helper()
	fsys, s := tree.Read()
	defer func() { _ = fsys.Close() }()
	handlers := check.KataOf(facts.New(fsys, s)).Handlers
	if len(handlers) != 1 {
		t.Fatalf("there are the handlers %+v", handlers)
	}
	return handlers[0]
}

// TestSettingsAreThoseThatKataReads: by what Kata itself has said of the same drop-ins.
func TestSettingsAreThoseThatKataReads(t *testing.T) {
	text, err := os.ReadFile("testdata/kata-env.json")
	if err != nil {
		t.Fatal(err)
	}
	var kata struct {
		Hypervisor struct {
			ColdPlugVFIO, HotPlugVFIO string
			PCIeRootPort              int64
			SecurityInfo              struct{ EnableAnnotations []string }
		}
		Runtime struct {
			Config            struct{ Path string }
			SandboxCgroupOnly bool
		}
	}
	if err := json.Unmarshal(text, &kata); err != nil {
		t.Fatal(err)
	}
	tree := board.Server(t)
	tree.AddToKata("[hypervisor.qemu]\npcie_root_port = 3\nenable_annotations = [\"kernel_params\"]\n[runtime]\nsandbox_cgroup_only = false\n")
	h := kataHandler(t, tree)
	want := h
	want.ColdPlug, want.HotPlug, want.RootPorts = kata.Hypervisor.ColdPlugVFIO, kata.Hypervisor.HotPlugVFIO, kata.Hypervisor.PCIeRootPort
	want.Annotations, want.InPodsCgroup = kata.Hypervisor.SecurityInfo.EnableAnnotations, kata.Runtime.SandboxCgroupOnly
	want.Config = kata.Runtime.Config.Path
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("the settings are others than Kata's (-Kata +audit):\n%s", diff)
	}
}

func TestSettingsThatNoFileSaysAreKatasDefaults(t *testing.T) {
	tree := board.Server(t)
	tree.Delete(board.KataDropIns)
	tree.Put(board.KataConfig, "[hypervisor.qemu]\npath = '/opt/kata/bin/qemu-system-x86_64'\n")
	h := kataHandler(t, tree)
	want := finding.KataHandler{
		Name: "kata-gpu", Engine: "containerd", Runtime: "go", Config: "/" + board.KataConfig, Files: []string{"/" + board.KataConfig}, VMM: "qemu",
		MemoryMiB: 2048, LimitedMiB: 2048, ColdPlug: "no-port", HotPlug: "no-port", Annotations: []string{},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("the Go runtime's (-want +got):\n%s", diff)
	}
	tree.Put(board.ContainerdDropIn, tree.Fragment("containerd/kata-gpu-runtime-rs.toml"))
	rust := "/opt/kata/share/defaults/kata-containers/runtime-rs/kata-gpu/configuration.toml"
	tree.Put(rust[1:], "[hypervisor.qemu]\n[hypervisor.other]\n[runtime]\nhypervisor_name = 'qemu'\n")
	if h = kataHandler(t, tree); h.Runtime != "rust" || h.MemoryMiB != 128 || h.LimitedMiB != 0 || h.Config != rust || h.VMM != "qemu" {
		t.Errorf("the Rust runtime's are %+v", h)
	}
	tree.Put(rust[1:], "[")
	if h = kataHandler(t, tree); h.Damaged == "" {
		t.Errorf("settings that are not understood are %+v", h)
	}
}

func TestMoreRootPortsThanKataMakesAreItsMost(t *testing.T) {
	tree := board.Server(t)
	tree.AddToKata("[hypervisor.qemu]\npcie_root_port = 99\n")
	if h := kataHandler(t, tree); h.RootPorts != 16 {
		t.Errorf("it has %d root ports", h.RootPorts)
	}
}

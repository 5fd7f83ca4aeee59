package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// A node that has nothing but what Kata ships for GPUs and what runtimeclass/ puts
// over it fails where Kata's own defaults are weak, and nowhere else.
func TestOurFragmentsOverKatasDefaults(t *testing.T) {
	for name, plant := range map[string]func(*board.Tree){
		"Go": func(*board.Tree) {},
		"Rust": func(t *board.Tree) {
			const dir = "opt/kata/share/defaults/kata-containers/runtime-rs/kata-gpu/"
			t.Put(board.ContainerdDropIn, t.Fragment("containerd/kata-gpu-runtime-rs.toml"))
			base := strings.NewReplacer("seccompsandbox", "seccomp_sandbox", `"virtio-fs"`, `"none"`, `hot_plug_vfio = "no-port"`, "").Replace(board.KataBase)
			t.Put(dir+"configuration.toml", base+"hypervisor_name = 'qemu'\n")
			t.Put(dir+"config.d/50-kata-gpu.toml", t.Fragment("kata/50-kata-gpu-runtime-rs.toml"))
			for _, file := range []string{dir + "configuration.toml", dir + "config.d/50-kata-gpu.toml", "opt/kata/runtime-rs/bin/containerd-shim-kata-v2"} {
				t.Own(file, "100644", 0, 0)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.New(t)
			tree.Delete(board.KataDropIns + "/60-site.toml")
			plant(tree)
			var failed []string
			for _, f := range audit(t, tree).Findings {
				if strings.HasPrefix(f.ID, "RT-") && f.State != finding.Pass && f.State != finding.NotApplicable {
					failed = append(failed, f.ID+" "+string(f.State))
				}
			}
			slices.Sort(failed)
			want := []string{"RT-010 fail", "RT-013 fail", "RT-022 fail"}
			if diff := cmp.Diff(want, failed); diff != "" {
				t.Errorf("what does not pass differs (-want +got):\n%s", diff)
			}
		})
	}
}

// The fragment for hot plug is a choice that the audit says what it costs of.
func TestTheHotPlugFragmentFailsOneRuleMore(t *testing.T) {
	tree := board.New(t)
	tree.Delete(board.KataDropIns + "/50-kata-gpu.toml")
	tree.Put(board.KataDropIns+"/50-kata-gpu-hotplug.toml", tree.Fragment("kata/50-kata-gpu-hotplug.toml"))
	tree.Own(board.KataDropIns+"/50-kata-gpu-hotplug.toml", "100644", 0, 0)
	for _, f := range audit(t, tree).Findings {
		if strings.HasPrefix(f.ID, "RT-") && f.State == finding.Fail && f.ID != "RT-017" {
			t.Errorf("%s fails: %s", f.ID, f.Text)
		}
	}
}

// What a file of the node says stands in findings as it is quoted: no byte of it
// moves a terminal's cursor.
func TestEvidenceFromFilesHasNoControlCharacters(t *testing.T) {
	tree := board.New(t)
	tree.AddToKata("[runtime]\nvfio_mode = \"\\u001b[2J\"\n[hypervisor.qemu]\nguest_memory_dump_path = \"a\\u001b]0;x\\u0007\"\n")
	for _, f := range audit(t, tree).Findings {
		if (f.ID == "RT-015" || f.ID == "RT-018") && strings.ContainsAny(f.Evidence[0].Value, "\x1b\x07") {
			t.Errorf("%s has the evidence %q", f.ID, f.Evidence[0].Value)
		}
	}
}

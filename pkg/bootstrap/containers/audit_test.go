package containers_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/check/board"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// What bootstrap lays down is what the audit's rules on runtimes want: on a node whose
// containerd had NRI off and no handler, none of them fails any more.
func TestAuditHasNothingAgainstWhatIsApplied(t *testing.T) {
	for name, text := range map[string]string{
		"version 2": "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\nenable_cdi = false\n[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n",
		"version 3": "version = 3\n[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = false\n",
		"version 4": "version = 4\nimports = []\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = false\n",
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.New(t)
			tree.Delete(board.ContainerdDropIn)
			tree.Delete(board.KataConfig)
			tree.Delete(board.KataDropIns + "/50-kata-gpu.toml")
			tree.Put(board.ContainerdConfig, text)
			tree.Put(opt+"configuration-qemu-nvidia-gpu.toml", board.KataBase)
			fsys, err := sysfs.Open(tree.Root())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = fsys.Close() })
			tree.Put("opt/kata/bin/containerd-shim-kata-v2", "ELF")
			tree.Put("opt/kata/libexec/virtiofsd", "ELF")
			if before := rules(t, tree); before["RT-005"] == finding.Pass {
				t.Error("before, RT-005 passes already")
			}
			w := wanted(t, fsys, containers.Options{PodResourcesSocket: new(false)})
			if len(fatal(w)) > 0 || len(w.Files) != 4 {
				t.Fatalf("the problems are %+v, wanted %+v", w.Problems, paths(w))
			}
			apply(t, fsys, w)
			for _, f := range w.Files {
				tree.Own(f.Path, "100644", 0, 0)
			}
			after := rules(t, tree)
			for _, id := range slices.Sorted(maps.Keys(after)) {
				if state := after[id]; state != finding.Pass && state != finding.NotApplicable {
					t.Errorf("%s is %s", id, state)
				}
			}
			for _, id := range []string{"RT-001", "RT-002", "RT-003", "RT-004", "RT-005", "RT-016", "RT-017", "RT-025", "RT-026", "RT-029"} {
				if after[id] != finding.Pass {
					t.Errorf("%s is %s", id, after[id])
				}
			}
		})
	}
}

// rules returns the states of the rules on runtimes, the worst of each.
func rules(t *testing.T, tree *board.Tree) map[string]finding.State {
	t.Helper()
	fsys, snapshot := tree.Read()
	t.Cleanup(func() { _ = fsys.Close() })
	profile, _ := finding.ProfileNamed(finding.MultiTenant)
	states := map[string]finding.State{}
	for _, f := range check.Run(facts.New(fsys, snapshot), check.Catalogue(), check.Options{Profile: profile, Today: "2026-11-22"}).Findings {
		if was, ok := states[f.ID]; strings.HasPrefix(f.ID, "RT-") && (!ok || f.State.Compare(was) < 0) {
			states[f.ID] = f.State
		}
	}
	return states
}

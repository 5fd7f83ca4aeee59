package containers_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/board"
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
			tree, fsys := bare(t, text)
			if before := rules(t, tree); before["RT-005"] == finding.Pass {
				t.Error("before, RT-005 passes already")
			}
			install(t, tree, fsys, blueprint.Containers{}, 4)
			after := rules(t, tree)
			allPass(t, after)
			for _, id := range []string{"RT-001", "RT-002", "RT-003", "RT-004", "RT-005", "RT-016", "RT-017", "RT-025", "RT-026", "RT-029"} {
				if after[id] != finding.Pass {
					t.Errorf("%s is %s", id, after[id])
				}
			}
		})
	}
}

// Each of two handlers is judged: what is weak in one of them fails, and says which it is.
func TestAuditJudgesTheHandlerForNICsToo(t *testing.T) {
	tree, fsys := bare(t, "version = 3\n")
	install(t, tree, fsys, blueprint.Containers{NICHandler: true}, 6)
	for _, id := range []string{"RT-010", "RT-013", "RT-022", "RT-031"} { // the site's file is beside kata-gpu's, and containerd was not restarted
		if after := rules(t, tree); after[id] != finding.Fail {
			t.Errorf("without the site's settings for kata-vfio, %s is %s", id, after[id])
		}
	}
	tree.Put(nicDir+"config.d/60-site.toml", siteSettings(t, fsys))
	tree.Own(nicDir+"config.d/60-site.toml", "100644", 0, 0)
	tree.AskedContainerd(func(r *facts.RunningContainerd) {
		nic := r.CRI.Handlers["kata-gpu"]
		nic.Type, nic.Config = "io.containerd.kata-vfio.v2", "/"+nicDir+"configuration.toml"
		r.CRI.Handlers["kata-vfio"] = nic
	})
	allPass(t, rules(t, tree))
	tree.Put(nicDir+"config.d/70-weak.toml", "[hypervisor.qemu]\nhot_plug_vfio = \"root-port\"\n[runtime]\nsandbox_cgroup_only = false\n")
	tree.Own(nicDir+"config.d/70-weak.toml", "100644", 0, 0)
	for _, id := range []string{"RT-016", "RT-017"} {
		if weak := rules(t, tree); weak[id] != finding.Fail {
			t.Errorf("with weaker settings for kata-vfio, %s is %s", id, weak[id])
		}
	}
}

// bare is a node whose containerd has the configuration and no handler of ours yet.
func bare(t *testing.T, text string) (*board.Tree, *sysfs.FS) {
	t.Helper()
	tree := board.New(t)
	tree.Delete(board.ContainerdDropIn)
	tree.Delete(board.KataConfig)
	tree.Delete(board.KataDropIns + "/50-kata-gpu.toml")
	tree.Put(board.ContainerdConfig, text)
	for name, content := range containerdPackage("2.2.0-1") {
		tree.Put(name, content)
	}
	tree.Put(opt+"configuration-qemu-nvidia-gpu.toml", board.KataBase)
	tree.Put(opt+"configuration-qemu.toml", board.KataBase)
	tree.Put("opt/kata/bin/containerd-shim-kata-v2", "ELF")
	tree.Put("opt/kata/libexec/virtiofsd", "ELF")
	fsys, err := sysfs.Open(tree.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fsys.Close() })
	return tree, fsys
}

// install lays down the files that are wanted, as root's.
func install(t *testing.T, tree *board.Tree, fsys *sysfs.FS, o blueprint.Containers, files int) {
	t.Helper()
	o.PodResourcesSocket = new(false)
	w := wanted(t, fsys, o)
	if len(fatal(w)) > 0 || len(w.Files) != files {
		t.Fatalf("the problems are %+v, wanted %+v", w.Problems, paths(w))
	}
	apply(t, fsys, w)
	for _, f := range w.Files {
		tree.Own(f.Path, "100644", 0, 0)
	}
}

// siteSettings are those of the board's own file for kata-gpu.
func siteSettings(t *testing.T, fsys *sysfs.FS) string {
	t.Helper()
	text, err := fsys.ReadFile(board.KataDropIns + "/60-site.toml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func allPass(t *testing.T, states map[string]finding.State) {
	t.Helper()
	for _, id := range slices.Sorted(maps.Keys(states)) {
		if state := states[id]; state != finding.Pass && state != finding.NotApplicable {
			t.Errorf("%s is %s", id, state)
		}
	}
}

// rules returns the states of the rules on runtimes, the worst of each.
func rules(t *testing.T, tree *board.Tree) map[string]finding.State {
	t.Helper()
	fsys, snapshot := tree.Read()
	t.Cleanup(func() { _ = fsys.Close() })
	profile, _ := finding.ProfileNamed(finding.MultiTenant)
	states := map[string]finding.State{}
	for _, f := range check.Run(facts.New(fsys, snapshot), checks(t), check.Options{Profile: profile, Today: "2026-11-22"}).Findings {
		if was, ok := states[f.ID]; strings.HasPrefix(f.ID, "RT-") && (!ok || f.State.Compare(was) < 0) {
			states[f.ID] = f.State
		}
	}
	return states
}

// checks returns all checks of a node.
func checks(tb testing.TB) []check.Check {
	tb.Helper()
	all, err := check.Catalogue()
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

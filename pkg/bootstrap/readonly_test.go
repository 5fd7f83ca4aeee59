package bootstrap_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

func (n *node) readOnly() *bootstrap.Engine {
	n.t.Helper()
	tree, err := sysfs.Open(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = tree.Close() })
	return bootstrap.ReadOnly(tree)
}

// TestReadOnlyPlansAsApplyDoes: before apply, after it, and after an edit.
func TestReadOnlyPlansAsApplyDoes(t *testing.T) {
	for _, d := range distributions() {
		name, n := d.name, newNode(t, d.files)
		for _, then := range []func(){
			func() {}, func() { n.apply(blueprint.Default()) }, func() { n.put("etc/modprobe.d/50-kata-vfio.conf", "# edited\n") },
		} {
			then()
			want := n.plan(blueprint.Default())
			got, err := n.readOnly().Plan(t.Context(), blueprint.Default())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.Files, got.Files); diff != "" {
				t.Errorf("%s: files (-want +got):\n%s", name, diff)
			}
			if diff := cmp.Diff(want.Settings, got.Settings); diff != "" {
				t.Errorf("%s: settings (-want +got):\n%s", name, diff)
			}
			if diff := cmp.Diff(want.Problems, got.Problems); diff != "" {
				t.Errorf("%s: problems (-want +got):\n%s", name, diff)
			}
		}
	}
}

func TestReadOnlyChangesNothing(t *testing.T) {
	n := newNode(t, files("Fedora"))
	before := n.snapshot()
	if _, err := n.readOnly().Apply(t.Context(), blueprint.Default(), ""); !errors.Is(err, bootstrap.ErrReadOnly) {
		t.Errorf("apply: %v", err)
	}
	n.same(before, "after a refused apply")
}

// TestOutlookIsWhatApplyLeaves compares each file with the one on the node after apply and a boot.
func TestOutlookIsWhatApplyLeaves(t *testing.T) {
	for _, d := range distributions() {
		name, n := d.name, newNode(t, d.files)
		o := n.plan(blueprint.Default()).Outlook()
		if len(o.Files) == 0 || !o.Reboot {
			t.Errorf("%s: the outlook is %+v", name, o)
		}
		n.apply(blueprint.Default())
		for _, f := range o.Files {
			if filepath.Dir(f.Path) == "proc" {
				continue // the boot shows it, with words of its own
			}
			info, err := os.Lstat(filepath.Join(n.root, f.Path))
			switch {
			case err != nil:
				t.Errorf("%s: %v", name, err)
			case f.Kind == state.RegularFile && (n.read(f.Path) != string(f.Content) || info.Mode().Perm() != f.Mode.Perm() && !strings.HasPrefix(f.Path, "sys/")):
				t.Errorf("%s: %s has %q and mode %v", name, f.Path, n.read(f.Path), info.Mode())
			}
		}
	}
}

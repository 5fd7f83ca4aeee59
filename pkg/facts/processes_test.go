package facts_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/board"
)

func read(t *testing.T, tree *board.Tree) *facts.Node {
	t.Helper()
	fsys, err := sysfs.Open(tree.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fsys.Close() })
	return facts.New(fsys, tree.Scan())
}

func TestHoldings(t *testing.T) {
	tree := board.Server(t)
	holdings, seen := read(t, tree).Holdings()
	if !seen.OK() || len(holdings) != 6 {
		t.Fatalf("holdings: %+v, seen %+v; want those of two VMMs, of six groups", holdings, seen)
	}
	for _, h := range holdings {
		if len(h.Claims) != 1 || len(h.Devices) != 1 || !h.Process.VM {
			t.Errorf("holding of %s: %+v", h.Node, h)
		}
	}
}

// A claim that comes between the journal and the processes is not a stray, nor is one
// that goes.
func TestHoldingsOfClaimsThatComeAndGo(t *testing.T) {
	tree := board.Server(t)
	journal := "var/lib/kata-vfio/journal"
	kept := tree.Path("kept")
	if err := os.Rename(tree.Path(journal), kept); err != nil {
		t.Fatal(err)
	}
	early := read(t, tree)
	if err := os.Rename(kept, tree.Path(journal)); err != nil {
		t.Fatal(err)
	}
	late := read(t, tree)
	if holdings, _ := early.Holdings(); len(holdings) != 6 || len(holdings[0].Claims) != 1 {
		t.Errorf("a claim that came: %+v", holdings)
	}
	tree.Delete(journal)
	if holdings, _ := late.Holdings(); len(holdings) != 6 || len(holdings[0].Claims) != 1 {
		t.Errorf("a claim that went: %+v", holdings)
	}
}

// What can't be seen is told from what is not there.
func TestUsersOfWhatIsNotSeen(t *testing.T) {
	tree := board.Server(t)
	tree.Delete("proc/1/ns/pid")
	if users, seen := read(t, tree).Users(); seen.Status != facts.Denied || len(users) > 0 {
		t.Errorf("without a view of the node: %+v, %+v", users, seen)
	}
	tree = board.Server(t)
	tree.Put("proc/"+strconv.Itoa(4711)+"/stat", "4711 (x) S\n")
	if users, seen := read(t, tree).Users(); seen.Status != facts.Broken || len(users) != 1 {
		t.Errorf("with one process hidden: %+v, %+v", users, seen)
	}
}

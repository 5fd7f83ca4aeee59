package journal_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// TestReserve: it has its blocks while there is room, no claim begins when there is
// hardly any, and it is given up for claims that end.
func TestReserve(t *testing.T) {
	dir := t.TempDir()
	d := &disks{free: map[string]int64{dir: 1 << 30}}
	r := journal.Reserve{Dir: dir, Disks: d}
	blocks := func() int64 {
		info, err := os.Stat(filepath.Join(r.Dir, "reserve"))
		if err != nil {
			return 0
		}
		return info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	for range 2 {
		if err := r.Fill(); err != nil || blocks() < 16<<20 {
			t.Fatalf("Fill: %v, %d bytes", err, blocks())
		}
	}
	if err := r.Spend(); err != nil || blocks() == 0 {
		t.Errorf("Spend with room left: %v, %d bytes; want the reserve kept", err, blocks())
	}
	d.free[dir] = 1 << 20
	err := r.Fill()
	if full, ok := errors.AsType[*journal.FullError](err); !ok || full.Free != 1<<20 {
		t.Errorf("Fill on a full disk: %v; want a FullError", err)
	}
	for range 2 {
		if err := r.Spend(); err != nil || blocks() != 0 {
			t.Errorf("Spend: %v, %d bytes; want it gone", err, blocks())
		}
	}
	d.free[dir] = 1 << 30
	if err := r.Fill(); err != nil || blocks() == 0 {
		t.Errorf("Fill when there is room again: %v, %d bytes", err, blocks())
	}
}

// disks are scripted: which directory is on which, and what is free there.
type disks struct {
	state, ledger string
	number        map[string]uint64
	free          map[string]int64
}

func newDisks(t *testing.T, ledgerDisk uint64) (*disks, journal.Reserves) {
	t.Helper()
	d := &disks{state: t.TempDir(), ledger: t.TempDir()}
	d.number = map[string]uint64{d.state: 1, d.ledger: ledgerDisk}
	d.free = map[string]int64{d.state: 1 << 30, d.ledger: 1 << 30}
	return d, journal.Reserves{Dirs: []string{d.state, d.ledger}, On: d}
}

func (d *disks) Free(dir string) (int64, error) { return d.free[dir], nil }

func (d *disks) Number(dir string) (uint64, error) {
	if n, ok := d.number[dir]; ok {
		return n, nil
	}
	return 0, fs.ErrNotExist
}

// reserved returns which directories have a reserve: the state's, the ledger's.
func (d *disks) reserved() (all [2]bool) {
	for i, dir := range []string{d.state, d.ledger} {
		_, err := os.Stat(filepath.Join(dir, "reserve"))
		all[i] = err == nil
	}
	return all
}

// TestLedgerOnAnotherDiskHasItsReserve: a full disk refuses claims by the name of its
// directory, and spends its own reserve only.
func TestLedgerOnAnotherDiskHasItsReserve(t *testing.T) {
	d, r := newDisks(t, 2)
	if err := r.Fill(); err != nil || d.reserved() != [2]bool{true, true} {
		t.Fatalf("Fill: %v, reserves %v", err, d.reserved())
	}
	d.free[d.ledger] = 1 << 20
	err := r.Fill()
	if full, ok := errors.AsType[*journal.FullError](err); !ok || full.Dir != d.ledger || strings.Contains(err.Error(), d.state) {
		t.Errorf("Fill with the ledger's disk full: %v", err)
	}
	if err := r.Spend(); err != nil || d.reserved() != [2]bool{true, false} {
		t.Errorf("Spend: %v, reserves %v; want the ledger's gone", err, d.reserved())
	}
	d.free[d.ledger] = 1 << 30
	if err := r.Fill(); err != nil || d.reserved() != [2]bool{true, true} {
		t.Errorf("Fill when there is room again: %v, reserves %v", err, d.reserved())
	}
}

// TestOneReserveForOneDisk, however many directories are on it.
func TestOneReserveForOneDisk(t *testing.T) {
	d, r := newDisks(t, 1)
	if err := r.Fill(); err != nil || d.reserved() != [2]bool{true, false} {
		t.Errorf("Fill: %v, reserves %v; want one", err, d.reserved())
	}
}

func TestDirectoryThatIsNotThereHasNoReserve(t *testing.T) {
	d, r := newDisks(t, 2)
	delete(d.number, d.ledger)
	if err := r.Fill(); err != nil || d.reserved() != [2]bool{true, false} {
		t.Errorf("Fill: %v, reserves %v; want the state's", err, d.reserved())
	}
}

// TestKernelTellsDisksApart: /proc is on no disk that a directory of files is on.
func TestKernelTellsDisksApart(t *testing.T) {
	one := t.TempDir()
	sub := filepath.Join(one, "sub")
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	r := journal.Reserves{Dirs: []string{one, sub, filepath.Join(one, "none"), "/proc"}}
	dirs, err := r.Disks()
	if diff := cmp.Diff([]string{one, "/proc"}, dirs); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

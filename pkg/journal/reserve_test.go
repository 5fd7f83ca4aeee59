package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// TestReserve: it has its blocks while there is room, no claim begins when there is
// hardly any, and it is given up for claims that end.
func TestReserve(t *testing.T) {
	free := int64(1 << 30)
	r := journal.Reserve{Dir: t.TempDir(), Free: func(string) (int64, error) { return free, nil }}
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
	free = 1 << 20
	err := r.Fill()
	if full, ok := errors.AsType[*journal.FullError](err); !ok || full.Free != free {
		t.Errorf("Fill on a full disk: %v; want a FullError", err)
	}
	for range 2 {
		if err := r.Spend(); err != nil || blocks() != 0 {
			t.Errorf("Spend: %v, %d bytes; want it gone", err, blocks())
		}
	}
	free = 1 << 30
	if err := r.Fill(); err != nil || blocks() == 0 {
		t.Errorf("Fill when there is room again: %v, %d bytes", err, blocks())
	}
}

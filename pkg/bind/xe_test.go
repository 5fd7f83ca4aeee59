package bind

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// unclean has the kernel's answer EUCLEAN for reads of one file.
type unclean struct{ path string }

func (u unclean) Answer(op sysfs.Op, path string) error {
	if op == sysfs.OpRead && path == u.path {
		return unix.EUCLEAN
	}
	return nil
}

func (unclean) Names(string) ([]string, error) { return nil, nil }

// TestXeTilesThatDiffer: a GPU whose tiles have different values has none that could be restored, and the error says what to do.
func TestXeTilesThatDiffer(t *testing.T) {
	k := sysfstest.New(t)
	pf, vfs := k.AddXeHost(0x3b, 2)
	fs, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	file := sysfs.FunctionPath(pf) + "/" + sysfstest.XeValue(1, plan.XeExecQuantum)
	xe := &Xe{fs: fs.WithCopy(unclean{file})}
	fn := &plan.Function{Address: vfs[0], PF: &pf}
	s := &plan.Setting{Name: plan.XeExecQuantum, Want: "20"}
	err = xe.Resolve(t.Context(), fn, s)
	if !errors.Is(err, unix.EUCLEAN) || !strings.Contains(err.Error(), "the tiles of the GPU have different values: write one value to the file") {
		t.Errorf("Resolve = %v; want EUCLEAN, and what to do", err)
	}
	s.Name = plan.XePreemptTimeout
	if err := xe.Resolve(t.Context(), fn, s); err != nil || s.Found != "0" {
		t.Errorf("another value: Resolve = %v, found %q; want 0", err, s.Found)
	}
}

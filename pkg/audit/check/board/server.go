package board

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Server is a small server of Intel make with two tenants.
func Server(tb testing.TB) *Tree {
	tb.Helper()
	t := New(tb)
	t.Devices["gpu0"] = t.AddGPU(0x3b)
	gpu, companions := t.AddGPUWithCompanions(0x41)
	t.Devices["gpu1"] = gpu
	for i, a := range companions {
		t.Devices[fmt.Sprintf("gpu1/companion%d", i)] = a
	}
	nic, vfs := t.AddNIC(0x5e, 4)
	t.Devices["nic0"] = nic
	for i, a := range vfs {
		t.Devices[fmt.Sprintf("nic0/vf%d", i)] = a
	}
	t.ShowPF(nic, "ens1f0")
	t.Give("t1", "train", t.Devices["gpu0"])
	t.ConfigureVFs(t.Give("t2", "serve", slices.Concat([]pci.Address{gpu}, companions, vfs[:1])...))
	t.KeepBaseline()
	return t
}

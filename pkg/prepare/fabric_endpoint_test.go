package prepare_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// TestPartitionAfterAResetBesideAnEndpoint: the links train only after a reset, and the claim has a physical endpoint, too. The endpoint is
// reset on VFIO, waits on its kernel driver again with its address, and the partition is active. The same happens between two sandboxes.
func TestPartitionAfterAResetBesideAnEndpoint(t *testing.T) {
	fault := fabrictest.Fault{Call: fabric.CallActivate, Code: fabric.NVLinkError, Times: 1}
	w := newWorld(t)
	w.corner()
	_, vfs := w.k.AddNIC(0x21, 1)
	req := w.request(uid, w.partition("gpu-x2-0000-86-87")...)
	w.pair, w.vf = "", endpoint()
	nic := w.request(uid, vfs[0]).Devices[0]
	nic.Request = "nic"
	req.Devices = append(req.Devices, nic)
	check := func(where string, resets int) {
		t.Helper()
		w.wantPartitionsOfRecords(where)
		if now := w.bindings()[vfs[0]]; now != (plan.Binding{Driver: "igbvf", Override: "igbvf"}) || len(w.changedVFs()) != 1 {
			t.Errorf("%s: the endpoint is bound %+v, changed VFs %v; want igbvf, one", where, now, w.changedVFs())
		}
		if n := len(w.k.Resets()); n != resets {
			t.Errorf("%s: %d resets, want %d", where, n, resets)
		}
	}
	w.fm.Add(fault)
	w.mustPrepare(req)
	check("prepared", 3)
	w.mustHandOver("first")
	w.kataTakes([]pci.Address{vfs[0]})
	w.fm.Repair()
	w.fm.Add(fault)
	w.mustHandOver("second")
	check("handed over again", 9)
	w.mustUnprepare(uid)
}

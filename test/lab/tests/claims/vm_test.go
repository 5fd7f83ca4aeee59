//go:build lab

package claims_test

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/test/lab/nested"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

const (
	vfMAC     = "02:00:00:00:00:10"
	pfAddress = "10.9.0.20"
	vmAddress = "10.9.0.30/24"
)

func ip(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// TestClaimReachesTheVM is the main job: a claim for a GPU and a VF, a VM that gets them by the claim's CDI spec, and
// the way back, which waits for the VM.
func TestClaimReachesTheVM(t *testing.T) {
	pf := kernel.Interface(t, topology.PF0)
	ip(t, "address", "replace", pfAddress+"/24", "dev", pf)
	t.Cleanup(func() { ip(t, "address", "flush", "dev", pf) })
	ip(t, "link", "set", pf, "up")
	kernel.VFs(t, topology.PF0, "1")
	kernel.LinkUp(t, topology.PF0)
	n := open(t, nil)
	before := stage.Bindings(t)
	req := stage.Request(t, "vm", topology.GPU0, topology.VF(topology.PF0, 0))
	req.Devices[1].VF = &v1alpha1.VFConfig{MAC: vfMAC}
	rec := mustPrepare(t, n, req)

	vm, err := nested.Start(t.Context(), nested.Config{Nodes: stage.Nodes(t, "vm")})
	if err != nil {
		t.Fatal(err)
	}
	checkVM(t, vm)
	again, err := n.Preparer.Prepare(t.Context(), req)
	if err != nil {
		t.Errorf("Prepare while the VM runs: %v; want the same answer", err)
	}
	if diff := cmp.Diff(rec.Plan, again.Plan); diff != "" {
		t.Errorf("Prepare while the VM runs (-first +again):\n%s", diff)
	}
	checkInUse(t, n.Preparer, vm.PID())
	if _, err := vm.Ping(t.Context(), pfAddress, 2); err != nil {
		t.Errorf("after the refused unprepare: %v", err)
	}
	if err := vm.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	mustUnprepare(t, n, "vm")
	if diff := cmp.Diff(before, stage.Bindings(t)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// checkVM asks the VM what it sees and lets it talk through the VF.
func checkVM(t *testing.T, vm *nested.VM) {
	t.Helper()
	report, err := vm.Report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(report.Functions, func(f protocol.Function) bool { return f.Class == "038000" && f.Driver == "bochs-drm" }) {
		t.Errorf("the VM has no display with a driver: %+v", report.Functions)
	}
	if len(report.Interfaces) != 1 || report.Interfaces[0].MAC != vfMAC {
		t.Errorf("the VM's interfaces are %+v, want one with MAC %s", report.Interfaces, vfMAC)
	}
	if err := vm.Configure(t.Context(), vfMAC, vmAddress); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{topology.Gateway, pfAddress} {
		got, err := vm.Ping(t.Context(), to, 5)
		if err != nil || got.Received == 0 {
			t.Errorf("ping %s through the VF: %+v, %v", to, got, err)
		}
	}
}

// checkInUse checks that Unprepare refuses while the VM runs, names it, and changes nothing.
func checkInUse(t *testing.T, p *prepare.Preparer, pid int) {
	t.Helper()
	before := stage.Bindings(t)
	_, err := p.Unprepare(t.Context(), "vm")
	var used *effects.InUseError
	if !errors.As(err, &used) || used.Holders[0].PID != pid || !strings.HasPrefix(used.Holders[0].Comm, "qemu-system") {
		t.Fatalf("Unprepare while the VM runs: %v; want an InUseError that names qemu with pid %d", err, pid)
	}
	t.Log(err)
	if diff := cmp.Diff(before, stage.Bindings(t)); diff != "" {
		t.Errorf("the refused unprepare moved something (-before +after):\n%s", diff)
	}
}

// TestUnprepareWaitsForTheVM lets the VM end while Unprepare waits: it goes on by itself, without polling.
func TestUnprepareWaitsForTheVM(t *testing.T) {
	before := stage.Bindings(t)
	c := stage.Config()
	c.HolderWait = time.Minute
	n := stage.Open(t, c)
	mustPrepare(t, n, stage.Request(t, "wait", topology.GPU0))
	vm, err := nested.Start(t.Context(), nested.Config{Nodes: stage.Nodes(t, "wait")})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := n.Preparer.Unprepare(context.WithoutCancel(t.Context()), "wait")
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("Unprepare came back while the VM runs: %v", err)
	case <-time.After(2 * time.Second):
	}
	if err := vm.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Unprepare after the VM's end: %v", err)
	}
	if diff := cmp.Diff(before, stage.Bindings(t)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

package prepare_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// nobody is a process id that no machine has (the kernel's PID_MAX_LIMIT is
// 2^22), so that only the scripted /proc can show it.
const nobody = 1<<22 + 1

var container = strings.Repeat("0123456789abcdef", 4)

// groupNode returns the VFIO node of a function's group.
func (w *world) groupNode(a pci.Address) string {
	w.t.Helper()
	group, ok := w.k.Group(a)
	if !ok {
		w.t.Fatalf("%s has no group, want one", a)
	}
	return vfio.GroupNode(group)
}

// hold has a VM's process in a container open the function's group.
func (w *world) hold(a pci.Address) *sysfstest.Holder {
	w.t.Helper()
	return w.k.Hold(w.groupNode(a), nobody, "qemu-system-x86", container)
}

// TestHostHolderRefusesPrepare: a process of the host works with the GPU
// through its driver. The claim has to wait, and its error names the holder.
func TestHostHolderRefusesPrepare(t *testing.T) {
	w := newWorld(t)
	disk := w.k.AddNVMe(0x41)
	w.node = nodeConfig(matchAddress(disk))
	req := w.request(uid, disk)
	before, writes := w.state(), len(w.k.Writes())
	h := w.k.Hold("/dev/nvme0n1", nobody, "fio", container)
	_, err := w.plugin(nil).Prepare(t.Context(), req)
	used := as[*effects.InUseError](t, err)
	if used.Address != disk || len(used.Holders) != 1 || used.Holders[0].PID != nobody {
		t.Errorf("in use: %+v, want %s with holder %d", used, disk, nobody)
	}
	says(t, err, "0000:41:00.0 is in use by fio", "pid 4194305", container, "/dev/nvme0n1")
	w.unchanged(before)
	if now := lastWrites(w, writes); len(now) > 0 {
		t.Errorf("wrote %v, want nothing", now)
	}
	h.Release()
	w.mustPrepare(req)
}

// TestHolderRefusesUnprepare: while the VM runs, nothing of its claim changes,
// how often Unprepare may come; once it is gone, the claim goes too.
func TestHolderRefusesUnprepare(t *testing.T) {
	for name, hold := range map[string]func(*world, pci.Address) string{
		"the group":         func(w *world, gpu pci.Address) string { return w.groupNode(gpu) },
		"the function only": func(*world, pci.Address) string { return "/dev/vfio/devices/vfio0" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.k.WithIOMMUFD()
			gpu := w.k.AddGPU(0x3b)
			original := w.state()
			w.mustPrepare(w.request(uid, gpu))
			before, record, writes := w.state(), w.record(uid), len(w.k.Writes())
			node := hold(w, gpu)
			h := w.k.Hold(node, nobody, "qemu-system-x86", container)
			for range 2 {
				_, err := w.plugin(nil).Unprepare(t.Context(), uid)
				as[*effects.InUseError](t, err)
				says(t, err, uid, "0000:3b:00.0", "qemu-system-x86", "pid 4194305", "container "+container, node)
			}
			w.unchanged(before)
			if diff := cmp.Diff(record, w.record(uid)); diff != "" {
				t.Errorf("record (-want as before +got):\n%s", diff)
			}
			if now := lastWrites(w, writes); len(now) > 0 {
				t.Errorf("wrote %v, want nothing", now)
			}
			h.Release()
			if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err != nil {
				t.Fatal(err)
			}
			w.unchanged(original)
		})
	}
}

// A patient finds holders in the scripted node and waits as told.
type patient struct {
	*vfio.Processes
	wait func(context.Context, []vfio.Holder) error
}

func (p patient) Wait(ctx context.Context, holders []vfio.Holder) error { return p.wait(ctx, holders) }

// waiter returns a plugin that waits for holders by the function.
func (w *world) waiter(wait func(context.Context, []vfio.Holder) error) *plugin {
	return w.plugin(nil, func(c *prepare.Config) {
		c.HolderWait = time.Hour
		c.Parts.Holders = patient{vfio.NewProcesses(w.fs), wait}
	})
}

// TestUnprepareWaitsForTheHolder: the VM ends a little later than the kubelet
// says, and Unprepare waits for it rather than for the kubelet's next try.
func TestUnprepareWaitsForTheHolder(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	before := w.state()
	w.mustPrepare(w.request(uid, gpu))
	h := w.hold(gpu)
	waits := 0
	p := w.waiter(func(context.Context, []vfio.Holder) error {
		waits++
		h.Release()
		return nil
	})
	if _, err := p.Unprepare(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	if waits != 1 {
		t.Errorf("waited %d times, want once", waits)
	}
	w.unchanged(before)
}

// TestHolderThatCantBeWaitedFor: a plugin in a PID namespace of its own reads
// the node's /proc, where processes have other numbers than those it could wait
// for. It must neither wait for a stranger nor spin.
func TestHolderThatCantBeWaitedFor(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	w.hold(gpu)
	w.wait = time.Hour
	_, err := w.plugin(nil).Unprepare(t.Context(), uid) // pidfd_open(2) has no such process
	as[*effects.InUseError](t, err)
	if n := w.count(effects.PhaseWait); n > 10 {
		t.Errorf("%d waits, want at most 10", n)
	}
}

// TestWaitEndsWithTheContext: the kubelet's deadline ends the wait, and the
// error still names the holder.
func TestWaitEndsWithTheContext(t *testing.T) {
	w := newWorld(t)
	gpu := w.k.AddGPU(0x3b)
	w.mustPrepare(w.request(uid, gpu))
	w.hold(gpu)
	ctx, cancel := context.WithCancel(t.Context())
	p := w.waiter(func(ctx context.Context, _ []vfio.Holder) error {
		cancel()
		<-ctx.Done()
		return context.Cause(ctx)
	})
	_, err := p.Unprepare(ctx, uid)
	as[*effects.InUseError](t, err)
	if rec := w.record(uid); rec == nil {
		t.Error("the record is gone")
	}
}

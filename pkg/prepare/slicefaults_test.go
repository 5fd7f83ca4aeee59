package prepare_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// TestXeThatRefusesAValue: the claim fails with what the error means, and nothing is left of the try. A value that can't be taken back is
// tried again.
func TestXeThatRefusesAValue(t *testing.T) {
	for name, c := range map[string]struct {
		attribute string
		err       error
		says      []string
	}{
		"EPERM of the first":           {plan.XeExecQuantum, unix.EPERM, []string{"exec_quantum_ms", "operation not permitted", "this GPU does not let driver xe change the value"}},
		"EIO of the firmware, for one": {plan.XePreemptTimeout, unix.EIO, []string{"preempt_timeout_us", "input/output error", "the GPU's firmware refuses the value"}},
		"EINVAL of the last":           {plan.XeMemory, unix.EINVAL, []string{"vram_quota", "invalid argument", "does not take this value"}},
	} {
		t.Run(name, func(t *testing.T) {
			w, pf, vfs := withXe(t, &v1alpha1.IntelSlices{MemoryMiB: new(1024)})
			var failing atomic.Bool
			failing.Store(true)
			w.k.OnWrite(func(path, _ string) error {
				if failing.Load() && strings.HasSuffix(path, sysfstest.XeValue(1, c.attribute)) {
					return c.err
				}
				return nil
			})
			before := w.bindings()
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, vfs[0]))
			if !errors.Is(err, c.err) {
				t.Errorf("Prepare = %v, want %v", err, c.err)
			}
			says(t, err, c.says...)
			w.wantNoSettings("failed")
			if now := w.bindings(); w.record(uid) != nil || now[vfs[0]] != before[vfs[0]] {
				t.Errorf("record %+v, binding %+v; want none, and %+v", w.record(uid), now[vfs[0]], before[vfs[0]])
			}
			w.mustPrepare(w.request(other, vfs[1])) // its neighbor
			failing.Store(false)
			w.mustPrepare(w.request(uid, vfs[0]))
			failing.Store(true)
			if _, err := w.plugin(nil).Unprepare(t.Context(), uid); err == nil {
				t.Error("Unprepare left a setting, and reported none")
			}
			failing.Store(false)
			w.mustUnprepare(uid)
			w.mustUnprepare(other)
			if got := w.xe(pf, 1, c.attribute); got != "0" {
				t.Errorf("after Unprepare %s is %s, want 0", c.attribute, got)
			}
		})
	}
}

// TestWedgedVGPU is quarantined with what helps, its neighbors work on, and the VF is free when the VFs were made again.
func TestWedgedVGPU(t *testing.T) {
	w, vfs := withVGPUs(t)
	w.mustPrepare(w.request(uid, vfs[0]))
	w.k.WedgeVGPU(vfs[0])
	_, err := w.plugin(nil).Unprepare(t.Context(), uid)
	if _, quarantined := errors.AsType[*prepare.QuarantinedError](err); !quarantined {
		t.Fatalf("Unprepare = %v, want a quarantine", err)
	}
	says(t, err, "device or resource busy", "wedged", "killed in its first seconds", "drain the other VFs of GPU 0000:3b:00.0", "sriov-manage")
	if rec := w.record(uid); rec == nil || !strings.Contains(rec.Reason, "wedged") {
		t.Errorf("record %+v, want the reason of the quarantine", rec)
	}
	w.mustPrepare(w.request(other, vfs[1]))
	w.mustUnprepare(other)
	if _, err := w.plugin(nil).Prepare(t.Context(), w.request(other, vfs[0])); err == nil {
		t.Error("another claim got the wedged VF")
	}
	for _, n := range []string{"0", "4"} {
		if err := w.k.Write("sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs", []byte(n)); err != nil {
			t.Fatal(err)
		}
	}
	w.mustUnprepare(uid)
	w.wantNoSettings("after the VFs were made again")
	w.mustPrepare(w.request(other, vfs[0]))
}

// TestTwoVGPUsOfAGPUAtOnce: two instances of the plugin make vGPUs of one GPU at the same time. Types are written one at a time, and the one
// that does not fit any more is not written.
func TestTwoVGPUsOfAGPUAtOnce(t *testing.T) {
	w := newWorld(t)
	w.k.WithIOMMUFD()
	_, vfs := w.k.AddVGPUHost(0x3b, 2, sysfstest.VGPUType{ID: 1430, Name: "NVIDIA H200X-141C", GiB: 141, Max: 1})
	w.slices(v1alpha1.GPUSliceRule{NVIDIA: &v1alpha1.NVIDIASlices{VGPUType: "NVIDIA H200X-141C", Instances: 2}})
	var writing, most, written atomic.Int32
	w.k.OnWrite(func(path, value string) error {
		if !strings.HasSuffix(path, vgpuFile) {
			return nil
		}
		most.Store(max(most.Load(), writing.Add(1)))
		if value != "0" {
			written.Add(1)
		}
		time.Sleep(20 * time.Millisecond)
		writing.Add(-1)
		return nil
	})
	errs := make([]error, 2)
	var wait sync.WaitGroup
	for i, vf := range vfs {
		p, req := w.plugin(nil), w.request(fmt.Sprintf("claim-%d", i), vf)
		wait.Go(func() { _, errs[i] = p.Prepare(t.Context(), req) })
	}
	wait.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Fatalf("got %v and %v, want one vGPU", errs[0], errs[1])
	}
	says(t, errors.Join(errs...), "can't be a vGPU of the type")
	if most.Load() != 1 || written.Load() != 1 {
		t.Errorf("%d types were written, %d at a time; want one", written.Load(), most.Load())
	}
}

// TestSiblingOfAVGPUWhoseWriteHangs waits: what the kernel has not answered may yet take the types from the list. No other instance of the
// plugin, such as the one after a restart, reads the list before, and none waits longer than its call may last.
func TestSiblingOfAVGPUWhoseWriteHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.k.WithIOMMUFD()
		w.limit = 50 * time.Millisecond
		_, vfs := w.k.AddVGPUHost(0x3b, 2, sysfstest.VGPUType{ID: 1430, Name: "NVIDIA H200X-141C", GiB: 141, Max: 1})
		w.slices(v1alpha1.GPUSliceRule{NVIDIA: &v1alpha1.NVIDIASlices{VGPUType: "NVIDIA H200X-141C", Instances: 2}})
		answer := make(chan struct{})
		var writing, most atomic.Int32
		w.k.OnWrite(func(path, value string) error {
			if strings.HasSuffix(path, vgpuFile) {
				most.Store(max(most.Load(), writing.Add(1)))
				defer writing.Add(-1)
				if value != "0" {
					<-answer
				}
			}
			return nil
		})
		undoSoon := func(c *prepare.Config) { c.UndoLimit = 100 * time.Millisecond }
		_, err := w.plugin(nil, undoSoon).Prepare(t.Context(), w.request(uid, vfs[0]))
		says(t, err, "the kernel has not answered")
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			begun := time.Now()
			_, err := w.plugin(nil, undoSoon).Prepare(ctx, w.request(other, vfs[1]))
			cancel()
			if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
				t.Errorf("the sibling's Prepare = %v after %s, want an end at its deadline", err, took)
			}
		}
		close(answer)
		synctest.Wait()
		if got := w.k.ReadFile(vfs[0], vgpuFile); got != "1430" || most.Load() != 1 {
			t.Errorf("type %q, %d writes at a time; want 1430 of the first claim, and one", got, most.Load())
		}
		w.mustUnprepare(uid)
		w.mustPrepare(w.request(other, vfs[1]))
		w.mustUnprepare(other)
		w.wantNoSettings("at the end")
	})
}

// TestSiblingsOfAVGPUThatDoesNotEnd work on: what is only read, and what ends, waits for no other VF of the GPU.
func TestSiblingsOfAVGPUThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, vfs := withVGPUs(t)
		w.limit = 50 * time.Millisecond
		w.mustPrepare(w.request(uid, vfs[0]))
		w.mustPrepare(w.request(other, vfs[1]))
		answer := make(chan struct{})
		w.k.OnWrite(func(path, _ string) error {
			if strings.Contains(path, vfs[0].String()) && strings.HasSuffix(path, vgpuFile) {
				<-answer
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := w.plugin(nil)
		if _, err := p.Unprepare(ctx, uid); err == nil {
			t.Fatal("Unprepare ended a vGPU whose write hangs")
		}
		begun := time.Now()
		if _, err := p.Prepare(t.Context(), w.request(other, vfs[1])); err != nil {
			t.Errorf("the sibling's repeated Prepare = %v", err)
		}
		if err := p.HandOver(t.Context(), other, journal.Sandbox{ID: "sandbox"}); err != nil {
			t.Errorf("the sibling's HandOver = %v", err)
		}
		if _, err := p.Unprepare(t.Context(), other); err != nil {
			t.Errorf("the sibling's Unprepare = %v", err)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("the sibling took %s, want no wait for another VF", took)
		}
		close(answer)
		synctest.Wait()
	})
}

// TestMIGBackedVGPU needs a GPU instance, which the operator makes: without a free one, the claim fails with what the driver says.
func TestMIGBackedVGPU(t *testing.T) {
	for instances := range 3 {
		t.Run(fmt.Sprintf("%d GPU instances", instances), func(t *testing.T) {
			w := newWorld(t)
			w.k.WithIOMMUFD()
			_, vfs := w.k.AddVGPUHost(0x3b, 4, sysfstest.VGPUType{ID: 1500, Name: "NVIDIA H200X-1-18C", GiB: 18, Max: 7, MIG: true, Instances: instances})
			w.slices(v1alpha1.GPUSliceRule{NVIDIA: &v1alpha1.NVIDIASlices{VGPUType: "NVIDIA H200X-1-18C", Instances: 4}})
			uids := []string{"first", "second", "third"}
			for i, uid := range uids {
				_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, vfs[i]))
				if i < instances {
					if got := w.k.ReadFile(vfs[i], vgpuFile); err != nil || got != "1500" {
						t.Errorf("VF %d: type %q, %v; want 1500", i, got, err)
					}
					continue
				}
				if !errors.Is(err, unix.EIO) || w.record(uid) != nil {
					t.Errorf("VF %d: got %v with record %+v, want EIO and none", i, err, w.record(uid))
				}
				says(t, err, "needs a GPU instance")
			}
			for _, uid := range uids[:instances] {
				w.mustUnprepare(uid)
			}
			w.wantNoSettings("at the end")
			if instances > 0 {
				w.mustPrepare(w.request("next", vfs[3])) // the instance is free again
			}
		})
	}
}

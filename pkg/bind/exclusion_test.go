package bind_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// isOpen reports whether somebody has the GPU open.
func isOpen(k *sysfstest.Kernel) bool {
	_, end, err := k.Exclude(context.Background(), []pci.Address{gpu})
	if err == nil {
		end()
	}
	return errors.Is(err, unix.EBUSY)
}

// TestNoResetBelowAHostDriver: not of one function of a set either.
func TestNoResetBelowAHostDriver(t *testing.T) {
	k, _, e := newNode(t)
	baseline, err := e.Fingerprints([]pci.Address{gpu})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Reset(t.Context(), flr, baseline, "")
	_, unfinished := errors.AsType[*bind.UnfinishedError](err)
	if on, ok := errors.AsType[*bind.HostDriverError](err); !ok || !unfinished || on.Driver != "nvidia" || len(k.Resets()) > 0 {
		t.Errorf("%v, %d resets; want a refusal that is not a verdict on the device", err, len(k.Resets()))
	}
	do(t, e, unbindStep)
	if _, err := e.Reset(t.Context(), flr, baseline, ""); err != nil {
		t.Errorf("on no driver: Reset = %v, want nil", err)
	}
}

// TestNobodyOpensBetweenResetAndProof, and a device that somebody has open is not reset.
func TestNobodyOpensBetweenResetAndProof(t *testing.T) {
	k, e, baseline := handedOver(t)
	during := false
	k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) {
		during = isOpen(k)
		return sysfstest.ResetWorks, nil
	})
	if _, err := e.Reset(t.Context(), flr, baseline, ""); err != nil || !during || isOpen(k) {
		t.Errorf("Reset = %v, open during it: %t, after it: %t; want nil, true, false", err, during, isOpen(k))
	}
	n, _ := k.Group(gpu)
	h := k.HoldUnseen("/dev/vfio/" + strconv.Itoa(n))
	before := len(k.Resets())
	_, err := e.Reset(t.Context(), flr, baseline, "")
	if unfinished, ok := errors.AsType[*bind.UnfinishedError](err); !ok || unfinished.InKernel() || len(k.Resets()) != before {
		t.Errorf("with a holder that proc does not show: %v, %d resets; want none", err, len(k.Resets())-before)
	}
	h.Release()
}

// TestResetThatWasCutOffStaysExclusive until a call takes its result, or none does for a while.
func TestResetThatWasCutOffStaysExclusive(t *testing.T) {
	for name, after := range map[string]struct {
		wait time.Duration
		open bool
		more int
	}{
		"the next call comes soon":  {time.Minute, true, 0},
		"the next call comes late":  {time.Hour, false, 1},
		"the reset still continues": {0, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, e, baseline := handedOver(t)
				k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) {
					time.Sleep(30 * time.Second)
					return sysfstest.ResetWorks, nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				reset := isolation.Reset{Method: isolation.FLR, Set: []pci.Address{gpu}}
				_, err := e.Reset(ctx, reset, baseline, "tenant")
				if _, stuck := errors.AsType[*control.StuckError](err); !stuck || !isOpen(k) {
					t.Fatalf("%v, open: %t; want a reset in the kernel that nobody joins", err, isOpen(k))
				}
				time.Sleep(after.wait)
				if isOpen(k) != after.open || e.Excludes(gpu) != after.open {
					t.Errorf("after %s open: %t, by the executor: %t; want %t", after.wait, isOpen(k), e.Excludes(gpu), after.open)
				}
				_, err = e.Reset(t.Context(), reset, baseline, "tenant")
				if again := err != nil; again != (after.more > 0) {
					t.Errorf("the next call: Reset = %v, want an error: %t", err, after.more > 0)
				}
				if _, err := e.Reset(t.Context(), reset, baseline, "tenant"); err != nil || isOpen(k) {
					t.Errorf("the call after it: Reset = %v, open: %t; want nil, false", err, isOpen(k))
				}
			})
		})
	}
}

package dra_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestAttempts: what Prepare alone sees counts when it was seen twice, until a claim is
// prepared or time has passed; a device that another claim has, at once and until its record ends.
func TestAttempts(t *testing.T) {
	gpu := pci.Address{Bus: 0x3b}
	inUse := fmt.Errorf("prepare: %w", &effects.InUseError{Address: gpu})
	disk := &rule.RefusedError{Verdicts: []rule.Verdict{{Code: rule.DiskInUse, Address: gpu}}}
	audio := pci.Address{Bus: 0x3b, Function: 1}
	ofAnother := &rule.RefusedError{Verdicts: []rule.Verdict{{Code: rule.Held, Address: gpu}}}
	withMate := &rule.RefusedError{Verdicts: []rule.Verdict{{Code: rule.Held, Address: gpu, Culprit: &audio}}}
	joined := map[pci.Address]rule.Code{{Bus: 0x86}: rule.PartitionNotActivated, {Bus: 0x87}: rule.PartitionNotActivated}
	links := fmt.Errorf("prepare: %w", &bind.NotActivatedError{Reason: rule.PartitionNotActivated, Device: "gpu-x2-0000-86-87", Err: errors.New("FM_ST_NVLINK_ERROR")})
	foreign := &rule.RefusedError{Verdicts: []rule.Verdict{{Code: rule.PartitionNotActivated, Device: "gpu-x2-0000-86-87"}}}
	lost := map[pci.Address]rule.Code{gpu: rule.HeldByLostClaim}
	none, held := map[pci.Address]rule.Code{}, map[pci.Address]rule.Code{gpu: rule.InUse}
	for name, tt := range map[string]struct {
		do   func(*dra.Attempts)
		want map[pci.Address]rule.Code
	}{
		"once":                 {func(a *dra.Attempts) { a.Failed(inUse) }, none},
		"twice":                {func(a *dra.Attempts) { a.Failed(inUse); a.Failed(inUse) }, held},
		"by different reasons": {func(a *dra.Attempts) { a.Failed(inUse); a.Failed(disk) }, none},
		"a disk":               {func(a *dra.Attempts) { a.Failed(disk); a.Failed(disk) }, map[pci.Address]rule.Code{gpu: rule.DiskInUse}},
		"prepared since":       {func(a *dra.Attempts) { a.Failed(inUse); a.Failed(inUse); a.Succeeded([]pci.Address{gpu}) }, none},
		"a missing CNI plugin": {func(a *dra.Attempts) {
			missing := &rule.RefusedError{Verdicts: []rule.Verdict{{Code: rule.NoAddressPool, Address: gpu}}}
			a.Failed(missing)
			a.Failed(missing)
		}, none},
		"not the device's":                {func(a *dra.Attempts) { a.Failed(errors.New("no space left")); a.Failed(errors.New("no space left")) }, none},
		"long ago":                        {func(a *dra.Attempts) { a.Failed(inUse); a.Failed(inUse); time.Sleep(11 * time.Minute) }, none},
		"another claim's":                 {func(a *dra.Attempts) { a.Failed(ofAnother) }, lost},
		"another claim's still":           {func(a *dra.Attempts) { a.Failed(ofAnother); time.Sleep(24 * time.Hour) }, lost},
		"another claim's before":          {func(a *dra.Attempts) { a.Failed(ofAnother); a.Succeeded([]pci.Address{gpu}) }, none},
		"another claim's companion":       {func(a *dra.Attempts) { a.Failed(withMate) }, map[pci.Address]rule.Code{audio: rule.HeldByLostClaim}},
		"a partition's links":             {func(a *dra.Attempts) { a.Failed(links) }, joined},
		"a partition's links, long ago":   {func(a *dra.Attempts) { a.Failed(links); time.Sleep(11 * time.Minute) }, none},
		"a partition another program has": {func(a *dra.Attempts) { a.Failed(foreign) }, joined},
		"a partition, active since": {func(a *dra.Attempts) {
			a.Failed(links)
			a.Succeeded([]pci.Address{{Bus: 0x86}, {Bus: 0x87}})
		}, none},
		"a single GPU's partition": {func(a *dra.Attempts) {
			a.Failed(&bind.NotActivatedError{Reason: rule.PartitionNotActivated, Device: "gpu-0000-3b-00-0-vf-0000-5e-10-0", Err: errors.New("FM_ST_TIMEOUT")})
		}, map[pci.Address]rule.Code{gpu: rule.PartitionNotActivated}},
		"in use still": {func(a *dra.Attempts) {
			a.Holders = blocking(func() bool { return true })
			a.Failed(inUse)
			a.Failed(inUse)
			time.Sleep(24 * time.Hour)
		}, held},
		"in use for an hour": {func(a *dra.Attempts) {
			begin := time.Now()
			a.Holders = blocking(func() bool { return time.Since(begin) < time.Hour })
			a.Failed(inUse)
			a.Failed(inUse)
			time.Sleep(2 * time.Hour)
		}, none},
		"once, and in use still": {func(a *dra.Attempts) {
			a.Holders = blocking(func() bool { return true })
			a.Failed(inUse)
			time.Sleep(time.Hour)
		}, none},
		"far apart": {func(a *dra.Attempts) { a.Failed(inUse); time.Sleep(11 * time.Minute); a.Failed(inUse) }, none},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &dra.Attempts{Kept: dra.AttemptsKept, Changes: plugintest.NewWakes()}
				tt.do(a)
				synctest.Wait()
				if diff := cmp.Diff(tt.want, a.Failing()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				a.Succeeded([]pci.Address{gpu}) // ends the looks
				time.Sleep(time.Hour)
			})
		})
	}
}

// blocking says whether a process has each function.
type blocking func() bool

func (b blocking) Blocks(pci.Address) bool { return b() }
func (blocking) LookForLost()              {}

// TestManyAttemptsEndOnce: a pod that waits is retried every few seconds.
func TestManyAttemptsEndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends := plugintest.NewWakes()
		a := &dra.Attempts{Kept: dra.AttemptsKept, Changes: ends}
		for range 100 {
			a.Failed(&effects.InUseError{Address: pci.Address{Bus: 0x3b}})
			time.Sleep(5 * time.Second)
		}
		if time.Sleep(dra.AttemptsKept - 10*time.Second); len(ends) != 0 {
			t.Error("the taint ends before its time")
		}
		if time.Sleep(time.Hour); len(ends) != 1 {
			t.Errorf("the end is announced %d times, want once", len(ends))
		}
	})
}

// TestFailedAttemptIsATaint of the device and of those that would take it along.
func TestFailedAttemptIsATaint(t *testing.T) {
	n := plugintest.New(t)
	_, audio := n.Kernel.AddGPUWithAudio(0x62, 15)
	n.Kernel.AddGPU(0x3b)
	for range 2 {
		n.Attempts.Failed(&effects.InUseError{Address: audio})
	}
	var r plugintest.Recorder
	n.Publish(&r)
	want := map[string][]string{"gpu-0000-62-00-0": {"not-preparable"}, "gpu-0000-3b-00-0": {}}
	if diff := cmp.Diff(want, r.Devices()); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
}

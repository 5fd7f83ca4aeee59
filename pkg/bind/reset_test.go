package bind_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

var flr = isolation.Reset{Method: isolation.FLR, Set: []pci.Address{gpu}}

// handedOver returns a node whose GPU is on vfio-pci, with its fingerprint.
func handedOver(t *testing.T) (*sysfstest.Kernel, *bind.Executor, []isolation.Fingerprint) {
	t.Helper()
	k, _, e := newNode(t)
	do(t, e, unbindStep, overrideStep, probeStep)
	baseline, err := e.Fingerprints([]pci.Address{gpu})
	if err != nil {
		t.Fatal(err)
	}
	return k, e, baseline
}

func TestResetProof(t *testing.T) {
	k, e, baseline := handedOver(t)
	k.SetConfig(gpu, 0x50, 0xde, 0xad) // what the tenant leaves behind the header
	proof, err := e.Reset(t.Context(), flr, baseline, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(flr, proof.Reset); diff != "" {
		t.Errorf("reset (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(baseline[0].Digest, proof.After[0].Digest); diff != "" || len(proof.Before) != 1 {
		t.Errorf("proof %+v, want the baseline after the reset:\n%s", proof, diff)
	}
	calls := k.Resets()
	if len(calls) != 1 || calls[0].Method != isolation.FLR || calls[0].Err != nil {
		t.Errorf("resets %+v, want one by flr", calls)
	}
}

// An unclean is a reset after which nothing is proven.
type unclean struct {
	node     func(*sysfstest.Kernel)
	baseline func([]isolation.Fingerprint) []isolation.Fingerprint
	is       error
	why      string
	after    bool // the proof says how the function was afterwards
}

func uncleans() map[string]unclean {
	effect := func(e sysfstest.ResetEffect) func(*sysfstest.Kernel) {
		return func(k *sysfstest.Kernel) {
			k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) { return e, nil })
		}
	}
	return map[string]unclean{
		"it fails": {
			node: func(k *sysfstest.Kernel) {
				k.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) { return 0, unix.ENOTTY })
			},
			is: unix.ENOTTY, why: "does not support the reset method",
		},
		"it is ignored": {
			node: func(k *sysfstest.Kernel) {
				k.SetConfig(gpu, 0x10, 0xde, 0xad)
				effect(sysfstest.ResetIgnored)(k)
			},
			why: "differs from before the tenant", after: true,
		},
		"bus mastering stays on": {
			node: func(k *sysfstest.Kernel) {
				k.SetConfig(gpu, 0x04, 0x06)
				effect(sysfstest.ResetIgnored)(k)
			},
			baseline: func(fps []isolation.Fingerprint) []isolation.Fingerprint {
				fps[0].BusMaster = false
				return fps
			},
			why: "still has bus mastering on", after: true,
		},
		"it kills the device": {node: effect(sysfstest.ResetKills), why: "reads all ones"},
		"it is dead already": {
			node: func(k *sysfstest.Kernel) { k.SetConfig(gpu, 0, []byte(strings.Repeat("\xff", 256))...) },
			why:  "reads all ones",
		},
		"it is gone": {node: func(k *sysfstest.Kernel) { k.Remove(gpu) }, is: sysfs.ErrNoFunction, why: "no such PCI function"},
		"nobody knows how it was": {
			baseline: func([]isolation.Fingerprint) []isolation.Fingerprint { return nil },
			why:      "has no fingerprint from before the tenant", after: true,
		},
	}
}

func TestUncleanResets(t *testing.T) {
	for name, tt := range uncleans() {
		t.Run(name, func(t *testing.T) {
			k, e, baseline := handedOver(t)
			if tt.node != nil {
				tt.node(k)
			}
			if tt.baseline != nil {
				baseline = tt.baseline(baseline)
			}
			proof, err := e.Reset(t.Context(), flr, baseline, "")
			var unclean *bind.NotCleanError
			if !errors.As(err, &unclean) || !strings.Contains(unclean.Why, tt.why) {
				t.Fatalf("got %v, want an UncleanError that says %q", err, tt.why)
			}
			if !strings.HasPrefix(err.Error(), "reset 0000:3b:00.0 by flr: ") {
				t.Errorf("error is %q, want \"reset 0000:3b:00.0 by flr\" at its beginning", err)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v, want %v", err, tt.is)
			}
			if got := len(proof.After) > 0; got != tt.after {
				t.Errorf("proof %+v; want it to say how it was after: %t", proof, tt.after)
			}
		})
	}
}

// TestResetThatIsInterruptedBeforeItBegins: the context ends while other processes are kept from the function, or before the fingerprint
// can be read. The device is not to blame for it, and nothing is reset.
func TestResetThatIsInterruptedBeforeItBegins(t *testing.T) {
	timeIsUp := errors.New("time is up")
	for name, excluded := range map[string]func(context.Context, *sysfstest.Kernel) error{
		"while others are kept away":     func(ctx context.Context, _ *sysfstest.Kernel) error { return ctx.Err() },
		"before its registers were read": func(_ context.Context, k *sysfstest.Kernel) error { k.Remove(gpu); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			k, _, baseline := handedOver(t)
			fs, err := sysfs.Open(k.Root())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = fs.Close() })
			ctx, end := context.WithCancelCause(t.Context())
			e := bind.New(fs, control.New(k, fs, time.Second), k, func(ctx context.Context, _ []pci.Address) (func() error, func(), error) {
				end(timeIsUp)
				return nil, func() {}, excluded(ctx, k)
			})
			_, err = e.Reset(ctx, flr, baseline, "")
			if unfinished, ok := errors.AsType[*bind.UnfinishedError](err); !ok || unfinished.InKernel() || !errors.Is(err, timeIsUp) {
				t.Errorf("got %v, want an UnfinishedError by %q that is not in the kernel", err, timeIsUp)
			}
			if calls := k.Resets(); len(calls) > 0 {
				t.Errorf("resets %+v, want none", calls)
			}
		})
	}
}

// TestHotResetCoversTheSet: it is asked for with the whole set, and each of
// them is compared.
func TestHotResetCoversTheSet(t *testing.T) {
	k := sysfstest.New(t)
	g, audio := k.AddGPUWithAudio(0x62, 15)
	fs, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	var asked []pci.Address
	e := bind.New(fs, control.New(k, fs, time.Second), k, func(_ context.Context, set []pci.Address) (func() error, func(), error) {
		return func() error { asked = set; return nil }, func() {}, nil
	})
	set := []pci.Address{g, audio}
	for _, a := range set {
		driver, err := fs.Driver(a)
		if err == nil && driver != "" {
			err = k.Write("sys/bus/pci/drivers/"+driver+"/unbind", []byte(a.String()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	baseline, err := e.Fingerprints(set)
	if err != nil {
		t.Fatal(err)
	}
	hot := isolation.Reset{Method: isolation.HotReset, Set: set}
	proof, err := e.Reset(t.Context(), hot, baseline, "")
	if err != nil || len(proof.After) != 2 {
		t.Errorf("Reset = %+v, %v; want a proof of both", proof, err)
	}
	if diff := cmp.Diff(set, asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	k.SetConfig(audio, 0x10, 0xde, 0xad)
	if _, err := e.Reset(t.Context(), hot, baseline, ""); err == nil || !strings.Contains(err.Error(), audio.String()) {
		t.Errorf("got %v, want that %s is not as it was", err, audio)
	}
}

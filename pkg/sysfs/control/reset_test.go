package control_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

const (
	limit  = 20 * time.Second
	method = "vfio_hot_reset"
)

// within calls a hot reset of both functions, whose work takes so long and ends
// with err, under a context that ends after the patience.
func within(t *testing.T, c *control.Control, patience time.Duration, tenancy string, takes time.Duration, err error) (control.ResetRun, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return c.ResetTogether(ctx, []pci.Address{gpu, nic}, method, tenancy, func() error {
		time.Sleep(takes)
		return err
	})
}

// A reset is waited for beyond the limit of other writes, as long as the caller
// has time: the kernel itself waits a minute for a function to come back.
func TestResetOutlastsTheWriteLimit(t *testing.T) {
	for _, takes := range []time.Duration{15 * time.Second, 30 * time.Second, 70 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newBlocker()
			run, err := within(t, control.New(b, b, limit), 2*time.Minute, "a", takes, nil)
			if err != nil || run.Took != takes || run.Joined {
				t.Errorf("%s: %+v, %v", takes, run, err)
			}
		})
	}
}

// Whoever is cut off learns no result, and both functions are fenced. The next
// call for the tenancy waits for that reset and takes its result; it starts none.
func TestNextCallTakesTheResult(t *testing.T) {
	for name, want := range map[string]error{"it works": nil, "it fails": unix.EIO} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBlocker()
				c := control.New(b, b, limit)
				begun := time.Now()
				_, err := within(t, c, 45*time.Second, "a", 70*time.Second, want)
				wantStuck(t, err, &control.StuckError{Address: gpu, Operation: "reset 0000:3b:00.0, 0000:5e:00.0 by vfio_hot_reset", Since: begun})
				if waited := time.Since(begun); waited != 45*time.Second {
					t.Errorf("cut off after %s", waited)
				}
				if err := c.Write(t.Context(), control.Probe(nic)); err == nil {
					t.Error("the second function is not fenced")
				}
				if n := len(c.Stuck()); n != 2 {
					t.Errorf("%d functions are fenced, want 2", n)
				}
				run, err := within(t, c, 45*time.Second, "a", time.Hour, errors.New("a second reset"))
				if !errors.Is(err, want) || !run.Joined || run.Took != 70*time.Second {
					t.Errorf("the next call: %+v, %v; want %v of the first reset", run, err, want)
				}
				if n := len(c.Stuck()); n != 0 {
					t.Errorf("%d functions are fenced after the reset", n)
				}
			})
		})
	}
}

// A result counts for one tenancy, once, and only while nothing was written for
// the function since.
func TestResultIsForOneTenancy(t *testing.T) {
	again := errors.New("a reset of its own")
	cases := map[string]func(*testing.T, *control.Control) string{
		"another tenancy": func(*testing.T, *control.Control) string { return "b" },
		"no tenancy":      func(*testing.T, *control.Control) string { return "" },
		"taken already": func(t *testing.T, c *control.Control) string {
			if run, err := within(t, c, limit, "a", 0, again); err != nil || !run.Joined {
				t.Errorf("the first taker: %+v, %v", run, err)
			}
			return "a"
		},
		"bound elsewhere since": func(t *testing.T, c *control.Control) string {
			if err := c.Write(t.Context(), control.Unbind(nic, "vfio-pci")); err != nil {
				t.Error(err)
			}
			return "a"
		},
	}
	for name, before := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBlocker()
				c := control.New(b, b, limit)
				if _, err := within(t, c, time.Second, "a", 2*time.Second, nil); err == nil {
					t.Fatal("it was not cut off")
				}
				time.Sleep(2 * time.Second)
				if run, err := within(t, c, limit, before(t, c), 0, again); !errors.Is(err, again) || run.Joined {
					t.Errorf("%+v, %v; want a reset of its own", run, err)
				}
			})
		})
	}
}

// While it is in the kernel, a reset for somebody else is not begun.
func TestResetInFlightKeepsOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlocker()
		c := control.New(b, b, limit)
		_, first := within(t, c, time.Second, "a", time.Minute, nil)
		for _, tenancy := range []string{"b", ""} {
			_, err := within(t, c, time.Second, tenancy, 0, errors.New("a second reset"))
			var stuck *control.StuckError
			if !errors.As(err, &stuck) || err.Error() != first.Error() {
				t.Errorf("tenancy %q: %v, want %v", tenancy, err, first)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.AwaitResets(ctx, []pci.Address{nic}); err == nil {
			t.Error("AwaitResets did not wait")
		}
		if err := c.AwaitResets(t.Context(), []pci.Address{{Bus: 1}}); err != nil {
			t.Errorf("another function: %v", err)
		}
		if err := c.AwaitResets(t.Context(), []pci.Address{nic}); err != nil || len(c.Stuck()) > 0 {
			t.Errorf("AwaitResets: %v, stuck: %v", err, c.Stuck())
		}
	})
}

// A caller whose time is over begins no reset.
func TestResetStartsBeforeDeadline(t *testing.T) {
	cause := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	r := &recorder{}
	if _, err := control.New(r, r, 0).Reset(ctx, gpu, "flr", "a"); !errors.Is(err, cause) || len(r.writes) > 0 {
		t.Errorf("%v, writes %v", err, r.writes)
	}
}

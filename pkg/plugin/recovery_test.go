package plugin_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// slowNode is a node whose recovery takes a while.
type slowNode struct {
	takes       time.Duration
	marked      bool
	markErr     error
	recoverErr  error
	unfinished  []error
	interrupted bool
	// deaf: it does not end with the plugin, as one whose device hangs in a reset.
	deaf bool
}

func (n *slowNode) MarkEarlier(context.Context) error {
	n.marked = true
	return n.markErr
}

func (n *slowNode) Recover(ctx context.Context) (*prepare.Recovery, error) {
	stop := ctx.Done()
	if n.deaf {
		stop = nil
	}
	select {
	case <-time.After(n.takes):
	case <-stop:
		n.interrupted = true
	}
	return &prepare.Recovery{Unfinished: n.unfinished}, n.recoverErr
}

// TestStartWaitsForASlowRecoveryForAWhile: the kubelet's sockets must come up although devices are slow to reset, and what
// depends on the recovery begins after it.
func TestStartWaitsForASlowRecoveryForAWhile(t *testing.T) {
	for name, tt := range map[string]struct{ takes, want time.Duration }{
		"quick": {time.Second, time.Second},
		"slow":  {8 * time.Minute, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var then []time.Duration
				node := &slowNode{takes: tt.takes}
				r := plugin.Recovery{
					Node: node, Patience: 15 * time.Second, Log: slog.New(slog.DiscardHandler),
					Then: func(context.Context) { then = append(then, time.Since(start)) },
				}
				g, ctx := errgroup.WithContext(t.Context())
				if err := r.Begin(ctx, g); err != nil || !node.marked {
					t.Fatalf("Begin = %v; devices of an earlier boot are marked: %t", err, node.marked)
				}
				if took := time.Since(start); took != tt.want {
					t.Errorf("it serves after %s, want after %s", took, tt.want)
				}
				if ended := r.Await(ctx); !ended || time.Since(start) != tt.takes || !slices.Equal(then, []time.Duration{tt.takes}) {
					t.Errorf("ended: %t after %s, and VFs are provisioned after %s; want both once, after %s", ended, time.Since(start), then, tt.takes)
				}
				if err := g.Wait(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestRecoveryEndsWithThePlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &slowNode{takes: time.Hour}
		r := plugin.Recovery{Node: node, Patience: time.Second, Log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithCancel(t.Context())
		g, ctx := errgroup.WithContext(ctx)
		if err := r.Begin(ctx, g); err != nil {
			t.Fatal(err)
		}
		stop()
		if err := g.Wait(); err != nil || !node.interrupted {
			t.Errorf("Wait = %v, recovery interrupted: %t", err, node.interrupted)
		}
	})
}

// A recovery that hangs delays neither the start nor the end of what waits for it, and does not count as ended.
func TestHungRecoveryIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, node := time.Now(), &slowNode{takes: time.Hour, deaf: true}
		r := plugin.Recovery{Node: node, Patience: time.Minute, Log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		g, ctx := errgroup.WithContext(ctx)
		if err := r.Begin(ctx, g); err != nil || time.Since(start) != time.Second {
			t.Errorf("Begin = %v after %s, want its end with the plugin", err, time.Since(start))
		}
		if r.Await(ctx) {
			t.Error("a recovery that goes on counts as ended")
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// What depends on the recovery does not begin after one that failed.
func TestFailedRecoveryNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := false
		r := plugin.Recovery{
			Node: &slowNode{recoverErr: errors.New("failed")}, Patience: time.Second, Log: slog.New(slog.DiscardHandler),
			Then: func(context.Context) { began = true },
		}
		g, ctx := errgroup.WithContext(t.Context())
		_ = r.Begin(ctx, g)
		_ = g.Wait() // it fails, as TestFailedRecoveryEndsThePlugin wants
		patient, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if r.Await(patient) || began {
			t.Errorf("a failed recovery counts as ended, and VFs are provisioned: %t", began)
		}
	})
}

// The log says why the plugin serves before all is recovered, and what was not.
func TestRecoveryIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		node := &slowNode{takes: time.Minute, unfinished: []error{errors.New("claim c1: its device does not answer")}}
		r := plugin.Recovery{Node: node, Patience: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))}
		g, ctx := errgroup.WithContext(t.Context())
		if err := errors.Join(r.Begin(ctx, g), g.Wait()); err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"the recovery goes on while the plugin serves", "msg=recovered", "not recovered", "claim c1: its device does not answer"} {
			if !strings.Contains(log.String(), word) {
				t.Errorf("the log lacks %q:\n%s", word, log.String())
			}
		}
	})
}

func TestFailedRecoveryEndsThePlugin(t *testing.T) {
	failed := errors.New("failed")
	for name, node := range map[string]*slowNode{"mark": {markErr: failed}, "recover": {recoverErr: failed}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := plugin.Recovery{Node: node, Patience: time.Second, Log: slog.New(slog.DiscardHandler)}
				g, ctx := errgroup.WithContext(t.Context())
				if err := errors.Join(r.Begin(ctx, g), g.Wait()); !errors.Is(err, failed) {
					t.Errorf("Begin and Wait = %v, want the failure", err)
				}
			})
		})
	}
}

package plugin_test

import (
	"context"
	"errors"
	"log/slog"
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
	interrupted bool
}

func (n *slowNode) MarkEarlier(context.Context) error {
	n.marked = true
	return n.markErr
}

func (n *slowNode) Recover(ctx context.Context) (*prepare.Recovery, error) {
	select {
	case <-time.After(n.takes):
	case <-ctx.Done():
		n.interrupted = true
	}
	return &prepare.Recovery{}, n.recoverErr
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
				var then time.Duration
				node := &slowNode{takes: tt.takes}
				r := plugin.Recovery{
					Node: node, Patience: 15 * time.Second, Log: slog.New(slog.DiscardHandler),
					Then: func(context.Context) { then = time.Since(start) },
				}
				g, ctx := errgroup.WithContext(t.Context())
				if err := r.Begin(ctx, g); err != nil || !node.marked {
					t.Fatalf("Begin = %v; devices of an earlier boot are marked: %t", err, node.marked)
				}
				if took := time.Since(start); took != tt.want {
					t.Errorf("it serves after %s, want after %s", took, tt.want)
				}
				if ended := r.Await(ctx); !ended || time.Since(start) != tt.takes || then != tt.takes {
					t.Errorf("ended: %t after %s, and VFs are provisioned after %s; want both after %s", ended, time.Since(start), then, tt.takes)
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

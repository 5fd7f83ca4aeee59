package podres

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// keepPause is how often it is looked whether the socket is answered.
	keepPause = time.Second
	// knockLimit is for a connection to a socket of this node.
	knockLimit = time.Second
)

// Keep serves on a listener of [Listen] at path until ctx ends, and again at
// path whenever nobody answers there any more. Another instance that took the
// socket over may have died, or have been rolled back: without this one the
// node would start no VM, though this one is well. An instance that answers is
// left alone, so that any number may run Keep.
func (s *Server) Keep(ctx context.Context, l net.Listener, path string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.Serve(ctx, l) })
	g.Go(func() error {
		tick := time.NewTicker(keepPause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			if again := s.takeBack(ctx, path); again != nil {
				g.Go(func() error { return s.Serve(ctx, again) })
			}
		}
	})
	return g.Wait()
}

// takeBack takes the socket over if nobody answers there, and returns its
// listener. What is in the way is logged, and tried again a moment later.
func (s *Server) takeBack(ctx context.Context, path string) net.Listener {
	if answered(ctx, path) {
		return nil
	}
	l, err := Listen(ctx, path)
	if err != nil {
		s.cfg.Log.ErrorContext(ctx, "nobody answers Kata", slog.String("socket", path), slog.Any("err", err))
		return nil
	}
	s.cfg.Log.WarnContext(ctx, "nobody answered Kata: the socket is taken back", slog.String("socket", path))
	return l
}

// answered reports whether a server listens at path. One that is too busy to
// take a connection does.
func answered(ctx context.Context, path string) bool {
	d := net.Dialer{Timeout: knockLimit}
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close() // that it came about is all
		return true
	}
	return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
}

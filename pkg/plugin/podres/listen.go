package podres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// Listen takes over the socket at path from an earlier instance, which may still serve, so that there always is a server. The file stays
// when the listener is closed, so that later calls are refused: Kata fails for a refused call, but if the file is missing it plugs what
// annotations name.
//
// Listen creates a missing directory for our user only. A directory that others can write to, or a file at path that is not our socket, is
// an error: the owner of the socket decides which devices VMs get. A crash leaves at most one temporary socket, which the next Listen
// removes.
func Listen(ctx context.Context, path string) (*net.UnixListener, error) {
	l, err := listen(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("listen for Kata on %s: %w", path, err)
	}
	return l, nil
}

func listen(ctx context.Context, path string) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	locks, err := journal.NewLocks(dir)
	if err != nil {
		return nil, err
	}
	if err := guardDir(dir); err != nil {
		return nil, err
	}
	// While this instance holds the lock, an existing temporary socket belongs to a dead instance.
	release, err := locks.Acquire(ctx, journal.Lock{Name: filepath.Base(path)})
	if err != nil {
		return nil, err
	}
	defer release()
	if err := guardSocket(path); err != nil {
		return nil, err
	}
	return takeOver(ctx, path)
}

// takeOver binds another name and renames it over path.
func takeOver(ctx context.Context, path string) (*net.UnixListener, error) {
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("sweep a dead instance's socket: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", temp)
	if err != nil {
		return nil, err
	}
	unix, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listener is a %T", l), l.Close())
	}
	// On close, Go would remove the name that it bound, which another instance may be using by then.
	unix.SetUnlinkOnClose(false)
	// The mode is right before the name is. The rename replaces the earlier socket atomically, so callers always find a
	// server.
	err = os.Chmod(temp, 0o600)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(), os.Remove(temp))
	}
	return unix, nil
}

// guardDir refuses a directory in which another user can create a socket.
func guardDir(dir string) error {
	// Lstat, since the owner of a link could change where it leads after this look.
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory (%s)", dir, info.Mode())
	case !isOurs(info):
		return fmt.Errorf("directory %s is not owned by user %d: its owner could serve Kata; remove it", dir, os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("directory %s is writable by others (%s), who could serve Kata: chmod go-w it", dir, info.Mode())
	}
	return nil
}

// guardSocket refuses to replace a file that no instance of the plugin created.
func guardSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("the file is not a socket (%s): remove it", info.Mode())
	case !isOurs(info):
		return fmt.Errorf("the existing socket is not owned by user %d: find out which program created it, and remove it", os.Geteuid())
	}
	return nil
}

// isOurs reports whether a file belongs to our user.
func isOurs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == uint32(os.Geteuid())
}

const (
	// keepPause is the pause between two tests of the socket.
	keepPause = time.Second
	// knockLimit bounds a connection to the socket.
	knockLimit = time.Second
)

// Keep serves on a listener of [Listen] until ctx ends. If path no longer answers, Keep takes the socket back: another instance took it
// over, and has died or was rolled back. Keep leaves the socket to an instance that answers, so any number of instances can run it.
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

// takeBack takes the socket over if nothing answers there, and returns its listener. It logs an error,
// and the caller tries again.
func (s *Server) takeBack(ctx context.Context, path string) net.Listener {
	if answered(ctx, path) {
		return nil
	}
	l, err := Listen(ctx, path)
	if err != nil {
		s.cfg.Log.ErrorContext(ctx, "no server answers Kata", slog.String("socket", path), slog.Any("err", err))
		return nil
	}
	s.cfg.Log.WarnContext(ctx, "no server answered Kata: took the socket back", slog.String("socket", path))
	return l
}

// Socket is the path of a socket on which Kata asks for devices.
type Socket string

// Served returns an error if no server answers Kata on the socket.
func (s Socket) Served(ctx context.Context) error {
	if !answered(ctx, string(s)) {
		return fmt.Errorf("no server answers Kata on %s, so a VM would not get its devices: see the plugin's log", s)
	}
	return nil
}

// answered reports whether a server listens at path, even if it is too busy for a connection.
func answered(ctx context.Context, path string) bool {
	d := net.Dialer{Timeout: knockLimit}
	conn, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close() // it only had to connect
		return true
	}
	// Any other error counts as an answer: connect(2) returns EAGAIN for a server whose backlog is full.
	return !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist)
}

// Serve answers on a listener of [Listen], which it closes, until ctx ends. It returns when the calls in
// progress have ended or StopLimit has passed. Later callers are refused, or served by the instance that
// took the socket over.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	options := []grpc.ServerOption{grpc.Creds(peerCredentials{})}
	if s.cfg.Intercept != nil {
		options = append(options, grpc.UnaryInterceptor(s.cfg.Intercept))
	}
	server := grpc.NewServer(options...)
	podresourcesv1.RegisterPodResourcesListerServer(server, s)
	defer server.Stop()
	release := context.AfterFunc(ctx, func() {
		// GracefulStop waits for the calls in progress without a limit. Stop ends them.
		force := time.AfterFunc(s.cfg.StopLimit, server.Stop)
		defer force.Stop()
		server.GracefulStop()
	})
	defer release()
	if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve Kata's pod resources: %w", err)
	}
	return nil
}

// Peer is the process that opened a connection. The kernel identifies it (SO_PEERCRED, unix(7)), so that
// a process can't pretend to be another.
type Peer struct {
	credentials.CommonAuthInfo

	// PID is in our PID namespace; 0 for a process that is not visible there.
	PID int
	UID uint32
}

// AuthType names the authentication for gRPC.
func (Peer) AuthType() string { return "peercred" }

// caller returns the calling process if it may ask. The shim runs as root.
func (s *Server) caller(ctx context.Context) (Peer, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Peer{}, refused(codes.PermissionDenied, "the caller is unknown")
	}
	caller, ok := p.AuthInfo.(Peer)
	switch {
	case !ok:
		return Peer{}, refused(codes.PermissionDenied, "the caller is unknown: the connection has no peer credentials of a unix socket")
	case caller.UID != 0 && caller.UID != s.cfg.Owner:
		return Peer{}, refused(codes.PermissionDenied, "process %d runs as user %d: only root may ask for a pod's devices",
			caller.PID, caller.UID)
	// SO_PEERCRED translates the PID into our namespace. 0 is a process that is not in it (cred_to_ucred in net/core/sock.c).
	case caller.PID == 0:
		return Peer{}, refused(codes.PermissionDenied,
			"the calling process is not visible: run the plugin in the node's PID namespace (hostPID)")
	}
	return caller, nil
}

// peerCredentials are transport credentials for unix sockets: nothing is
// encrypted, and the peer is a [Peer].
type peerCredentials struct{}

func (peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, fmt.Errorf("peer of a %s connection: want a unix socket", conn.LocalAddr().Network())
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return nil, nil, fmt.Errorf("peer of a connection: %w", err)
	}
	var cred *syscall.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		// These are the credentials at the time of connect(2) (unix(7)): a process that gets the connection later does
		// not change them.
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return nil, nil, fmt.Errorf("peer of a connection: %w", err)
	}
	// The kernel protects the traffic of a unix socket from other processes.
	level := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
	return conn, Peer{CommonAuthInfo: level, PID: int(cred.Pid), UID: cred.Uid}, nil
}

func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("peer credentials are a server's")
}

func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peercred"}
}

func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

func (peerCredentials) OverrideServerName(string) error { return nil }

package podres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Peer is the process that opened a connection, as the kernel names it
// (SO_PEERCRED, unix(7)): a process can't claim to be another.
type Peer struct {
	credentials.CommonAuthInfo

	// PID is in our PID namespace; 0 for a process that is not seen from there.
	PID int
	UID uint32
}

// AuthType names the authentication for gRPC.
func (Peer) AuthType() string { return "peercred" }

// caller returns who asks, if they may: the shim runs as root.
func (s *Server) caller(ctx context.Context) (Peer, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return Peer{}, refused(codes.PermissionDenied, "the caller is not known")
	}
	caller, ok := p.AuthInfo.(Peer)
	switch {
	case !ok:
		return Peer{}, refused(codes.PermissionDenied, "the caller is not known by its unix socket")
	case caller.UID != 0 && caller.UID != s.cfg.Owner:
		return Peer{}, refused(codes.PermissionDenied, "process %d is user %d's: only root may ask for a pod's devices",
			caller.PID, caller.UID)
	case caller.PID == 0:
		return Peer{}, refused(codes.PermissionDenied,
			"the calling process can't be seen: run the plugin in the node's PID namespace (hostPID)")
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
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return nil, nil, fmt.Errorf("peer of a connection: %w", err)
	}
	// The kernel keeps what passes a unix socket from others' eyes and hands.
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

package podres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Serve answers on a listener of [Listen], which it closes, until ctx ends. It
// returns when the calls in progress have ended or StopLimit has passed.
// Callers who come later are refused, or served by the instance that has taken
// the socket over.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := grpc.NewServer(grpc.Creds(peerCredentials{}))
	podresourcesv1.RegisterPodResourcesListerServer(server, s)
	defer server.Stop()
	release := context.AfterFunc(ctx, func() {
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

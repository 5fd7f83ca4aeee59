package podres

import (
	"context"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const (
	// maxAnswer is the limit of the kubelet's own client: List grows with the pods.
	maxAnswer = 16 << 20
	// callPolicy waits for a kubelet that is starting, and asks again when its
	// rate limit (100 calls a second, bursts of 10, for all callers together)
	// says no; the caller's deadline ends both.
	callPolicy = `{"methodConfig": [{
		"name": [{"service": "v1.PodResourcesLister"}],
		"waitForReady": true,
		"retryPolicy": {
			"maxAttempts": 5, "initialBackoff": "0.02s", "maxBackoff": "0.2s", "backoffMultiplier": 2,
			"retryableStatusCodes": ["RESOURCE_EXHAUSTED"]
		}
	}]}`
)

// DialKubelet returns a client of the kubelet's socket and what closes it. It
// connects at the first call and again after the kubelet was away, several
// times within what a Get waits for it.
func DialKubelet(socket string) (podresourcesv1.PodResourcesListerClient, io.Closer, error) {
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(callPolicy),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 2, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, nil, fmt.Errorf("client of the kubelet's pod resources: %w", err)
	}
	return podresourcesv1.NewPodResourcesListerClient(conn), conn, nil
}

// askKubelet returns what the kubelet says of a pod, never nil without an
// error. It fails for a kubelet that is away, slow, or does not know the pod.
func (s *Server) askKubelet(ctx context.Context, pod podName) (*podresourcesv1.PodResources, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.KubeletLimit)
	defer cancel()
	req := &podresourcesv1.GetPodResourcesRequest{PodName: pod.name, PodNamespace: pod.namespace}
	answer, err := s.cfg.Kubelet.Get(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet: %w", err)
	}
	if answer.GetPodResources() == nil {
		return &podresourcesv1.PodResources{}, nil
	}
	return answer.GetPodResources(), nil
}

package main

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
)

// newClient returns the client for the API server, whose requests are counted. The library's
// own limits are five requests a second: a node that starts a hundred pods would wait for
// itself. These are the kubelet's.
func newClient(kubeconfig string, m *metrics.Metrics) (kubernetes.Interface, error) {
	return newLimitedClient(kubeconfig, m, 50, 100)
}

// newReviewClient returns a client for reviews of scrapers' tokens. Its rate limit is its own,
// so that clients that send tokens can't delay the requests that claims need.
func newReviewClient(kubeconfig string, m *metrics.Metrics) (kubernetes.Interface, error) {
	return newLimitedClient(kubeconfig, m, 5, 10)
}

func newLimitedClient(kubeconfig string, m *metrics.Metrics, qps float32, burst int) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API server (outside of a pod, name it with --kubeconfig): %w", err)
	}
	config.QPS, config.Burst = qps, burst
	config.Wrap(m.CountRequests)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the API server: %w", err)
	}
	return client, nil
}

// newRecorder returns a recorder of Events, which works until ctx ends.
func newRecorder(ctx context.Context, client kubernetes.Interface) (dra.Recorder, error) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("start recording Events: %w", err)
	}
	context.AfterFunc(ctx, broadcaster.Shutdown)
	return dra.EventRecorder{Recorder: broadcaster.NewRecorder(scheme.Scheme, v1alpha1.DriverName)}, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

const (
	// askLimit is how long Kata's Rust runtime waits for the devices; the Go one has no limit of its own.
	askLimit = 10 * time.Second
	// cdiAnnotations begin the annotations by which CDI devices were asked for before Kubernetes knew of them.
	cdiAnnotations = "cdi.k8s.io/"
)

// deviceNames are the CDI names of what the sandbox is to have. Where the socket is not there, Kata goes by the
// sandbox's annotations, which a tenant may have written.
func (n node) deviceNames(ctx context.Context, annotations map[string]string) ([]string, error) {
	info, err := os.Stat(n.podResources)
	if errors.Is(err, fs.ErrNotExist) {
		return annotated(annotations), nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the pod resources socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return nil, fmt.Errorf("pod resources: %s is not a socket (%s)", n.podResources, info.Mode())
	}
	return n.ask(ctx, annotations[sandboxNamespace], annotations[sandboxName])
}

func annotated(annotations map[string]string) []string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(key, cdiAnnotations) {
			names = append(names, strings.Split(annotations[key], ",")...)
		}
	}
	return names
}

// ask asks the API for a pod's devices. Those of DRA are in another field, which Kata does not read.
func (n node) ask(ctx context.Context, namespace, name string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+n.podResources, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("pod resources: %w", err)
	}
	defer conn.Close() // what was asked for has come
	answer, err := podresourcesv1.NewPodResourcesListerClient(conn).Get(ctx,
		&podresourcesv1.GetPodResourcesRequest{PodName: name, PodNamespace: namespace})
	if err != nil {
		return nil, fmt.Errorf("ask for the devices of pod %s/%s: %w", namespace, name, err)
	}
	var names []string
	for _, container := range answer.GetPodResources().GetContainers() {
		for _, d := range container.GetDevices() {
			for _, id := range d.GetDeviceIds() {
				names = append(names, d.GetResourceName()+"="+id)
			}
		}
	}
	return names, nil
}

// resolve returns the VFIO nodes behind CDI names, each once: Kata too tells them apart by number. A name that is no
// device fails them all.
func (n node) resolve(names []string) ([]device, error) {
	if len(names) == 0 {
		return nil, nil
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(n.cdi...), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("read the CDI specs: %w", err)
	}
	var spec specs.Spec
	if missing, err := cache.InjectDevices(&spec, names...); err != nil {
		return nil, fmt.Errorf("resolve CDI devices %q (not resolved: %q): %w", names, missing, err)
	}
	var devices []device
	for _, d := range devicesOf(&spec) {
		if isVFIO(d.Path) && !has(devices, d.Major, d.Minor) {
			devices = append(devices, device{Path: d.Path, Major: d.Major, Minor: d.Minor})
		}
	}
	return devices, nil
}

func devicesOf(spec *specs.Spec) []specs.LinuxDevice {
	if spec.Linux == nil {
		return nil
	}
	return spec.Linux.Devices
}

// isVFIO tells as Kata does what is plugged in: nodes below /dev/vfio, except for the one that controls containers.
func isVFIO(path string) bool {
	return strings.HasPrefix(path, "/dev/vfio/") && !strings.HasPrefix(path, "/dev/vfio/vfio")
}

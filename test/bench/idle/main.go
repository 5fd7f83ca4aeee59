// Command idle is a DRA plugin that does nothing: the same helper on the same sockets as the plugin, the same clients and
// informers, and no device. The benchmarks compare the plugin's memory with it. On SIGUSR1 it frees the memory that it can
// free.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// name is the driver's.
const name = "idle.bench.kata-vfio.dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	node := flag.String("node-name", "", "the node's name")
	dir := flag.String("dir", "", "directory of the sockets, which exists")
	flag.Parse()
	if err := run(ctx, *kubeconfig, *node, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1) //nolint:gocritic // the process ends, and the signals' handler with it
	}
}

// run starts all that a plugin has, and idles until ctx ends.
func run(ctx context.Context, kubeconfig, node, dir string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return err
	}
	defer broadcaster.Shutdown()
	helper, err := kubeletplugin.Start(ctx, plugin{}, kubeletplugin.DriverName(name), kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(node), kubeletplugin.PluginDataDirectoryPath(dir), kubeletplugin.RegistrarDirectoryPath(dir))
	if err != nil {
		return err
	}
	defer helper.Stop()
	// It has no slices, and the informer of them runs.
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{}); err != nil {
		return err
	}
	idle(ctx)
	return nil
}

// idle says "ready", and frees memory when it is told to, until ctx ends.
func idle(ctx context.Context) {
	free := make(chan os.Signal, 1)
	signal.Notify(free, syscall.SIGUSR1)
	fmt.Println("ready")
	for {
		select {
		case <-ctx.Done():
			return
		case <-free:
			debug.FreeOSMemory()
		}
	}
}

// plugin has no device.
type plugin struct{}

var errNoDevice = errors.New("there is no device")

func (plugin) PrepareResourceClaims(context.Context, []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	return nil, errNoDevice
}

func (plugin) UnprepareResourceClaims(context.Context, []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	return nil, errNoDevice
}

func (plugin) HandleError(_ context.Context, err error, what string) {
	fmt.Fprintln(os.Stderr, "idle:", what, err)
}

func (plugin) WatchHealthStatus(ctx context.Context, _ chan<- kubeletplugin.DeviceHealthReport) error {
	<-ctx.Done()
	return nil
}

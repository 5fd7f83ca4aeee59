package dra

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// Kubelet says how the plugin meets the kubelet of its node and the API server.
type Kubelet struct {
	Client   kubernetes.Interface
	NodeName string
	// PodUID tells the instances of a rolling update apart; empty for the only
	// instance, which then has the plain socket names.
	PodUID string
	// PluginDir holds our socket and the files of device metadata; it is made if
	// it is missing. RegistryDir is where the kubelet looks for plugins. Both
	// have the same path for the kubelet.
	PluginDir, RegistryDir string
	// MetadataCDIDir is where the CDI specs of device metadata go, as the
	// runtimes know it.
	MetadataCDIDir string
	// GRPCVerbosity is the klog verbosity at which calls are logged; -1 for never.
	GRPCVerbosity int
}

// Register serves the driver on its sockets and offers it to the kubelet, which
// calls from then on until the returned helper is stopped. Calls run side by
// side: package prepare has finer locks than the helper's one for all.
func (k Kubelet) Register(ctx context.Context, driver *Plugin) (*kubeletplugin.Helper, error) {
	if err := os.MkdirAll(k.PluginDir, 0o750); err != nil {
		return nil, fmt.Errorf("make the plugin's data directory: %w", err)
	}
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(v1alpha1.DriverName), kubeletplugin.KubeClient(k.Client), kubeletplugin.NodeName(k.NodeName),
		kubeletplugin.PluginDataDirectoryPath(k.PluginDir), kubeletplugin.RegistrarDirectoryPath(k.RegistryDir),
		kubeletplugin.Serialize(false), kubeletplugin.GRPCVerbosity(k.verbosity()), kubeletplugin.CDIDirectory(k.MetadataCDIDir),
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion}),
	}
	if k.PodUID != "" {
		options = append(options, kubeletplugin.RollingUpdate(types.UID(k.PodUID)))
	}
	helper, err := kubeletplugin.Start(ctx, driver, options...)
	if err != nil {
		return nil, fmt.Errorf("register with the kubelet: %w", err)
	}
	return helper, nil
}

// neverLogged is a verbosity that no logger is set to. The helper takes a
// negative one for zero, which is always logged.
const neverLogged = 127

func (k Kubelet) verbosity() int {
	if k.GRPCVerbosity < 0 {
		return neverLogged
	}
	return k.GRPCVerbosity
}

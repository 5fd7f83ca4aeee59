package dra

import (
	"context"
	"fmt"
	"os"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	metadatav1alpha1 "k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// Kubelet says how the plugin reaches the node's kubelet and the API server.
type Kubelet struct {
	Client   kubernetes.Interface
	NodeName string
	// PodUID distinguishes the instances of a rolling update. It is empty for the only instance, whose sockets then have plain
	// names.
	PodUID string
	// PluginDir holds our socket and the files of device metadata; Register creates it. RegistryDir is the kubelet's directory
	// for plugins. Both have the same path for the kubelet.
	PluginDir, RegistryDir string
	// MetadataCDIDir is the runtimes' directory for the CDI specs of device metadata.
	MetadataCDIDir string
	// GRPCVerbosity is the klog verbosity at which calls are logged; -1 for never.
	GRPCVerbosity int
	// Intercept, which may be nil, wraps each call.
	Intercept grpc.UnaryServerInterceptor
}

// Register serves the plugin on its sockets and registers it with the kubelet, which calls it until the returned helper is
// stopped. Calls run in parallel: package prepare's locks are finer than the helper's.
func (k Kubelet) Register(ctx context.Context, p *Plugin) (*kubeletplugin.Helper, error) {
	if err := os.MkdirAll(k.PluginDir, 0o750); err != nil {
		return nil, fmt.Errorf("make the plugin's data directory: %w", err)
	}
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(v1alpha1.DriverName), kubeletplugin.KubeClient(k.Client), kubeletplugin.NodeName(k.NodeName),
		kubeletplugin.PluginDataDirectoryPath(k.PluginDir), kubeletplugin.RegistrarDirectoryPath(k.RegistryDir),
		kubeletplugin.Serialize(false), kubeletplugin.GRPCVerbosity(k.verbosity()), kubeletplugin.CDIDirectory(k.MetadataCDIDir),
		kubeletplugin.EnableDeviceMetadata(true, metadataVersions()),
	}
	if k.PodUID != "" {
		options = append(options, kubeletplugin.RollingUpdate(types.UID(k.PodUID)))
	}
	if k.Intercept != nil {
		options = append(options, kubeletplugin.GRPCInterceptor(k.Intercept))
	}
	helper, err := kubeletplugin.Start(ctx, p, options...)
	if err != nil {
		return nil, fmt.Errorf("register with the kubelet: %w", err)
	}
	return helper, nil
}

// metadataVersions are those of the files of device metadata, which have the same data in each. Programs that were built with
// the libraries of Kubernetes 1.36 know v1alpha1 only.
func metadataVersions() []schema.GroupVersion {
	return []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion, metadatav1alpha1.SchemeGroupVersion}
}

// neverLogged is a verbosity that no logger has. The helper treats a negative one as 0, which is always logged.
const neverLogged = 127

func (k Kubelet) verbosity() int {
	if k.GRPCVerbosity < 0 {
		return neverLogged
	}
	return k.GRPCVerbosity
}

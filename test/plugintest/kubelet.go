package plugintest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
)

// Kubelet is the kubelet's end of the sockets.
type Kubelet struct {
	T       *testing.T
	Dir     string
	Plugin  *dra.Plugin
	Helper  *kubeletplugin.Helper
	Client  *fake.Clientset
	Events  *EventLog
	Changed Wakes
	Fatal   chan error
}

// Serve registers a driver with the claims behind it, as `run` does.
func Serve(t *testing.T, n *Node, claims dra.Claims, podUID string, objects ...runtime.Object) *Kubelet {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra") //nolint:usetesting // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	k := &Kubelet{T: t, Dir: dir, Client: Cluster(objects...), Events: &EventLog{}, Changed: NewWakes(), Fatal: make(chan error, 1)}
	if err := os.Mkdir(filepath.Join(dir, "registry"), 0o755); err != nil {
		t.Fatal(err)
	}
	reporter := dra.NewReporter(dra.ReporterConfig{Client: k.Client, Recorder: k.Events, Log: Quiet(), Uplink: n.Policy.Uplink})
	go func() { _ = reporter.Run(t.Context()) }() // it has no error to return
	var twins dra.Exclusion
	if n.Twins != nil {
		twins = n.Twins(k.Client)
	}
	k.Plugin = dra.NewPlugin(dra.PluginConfig{
		Twins:  twins,
		Client: k.Client, Claims: claims, Gate: Gate(k.Client), Publisher: n.Publisher, Health: n.Health, Reporter: reporter, Metrics: n.Metrics, Log: Quiet(),
		Changes: k.Changed, Fatal: func(err error) { k.Fatal <- err },
	})
	k.Helper, err = dra.Kubelet{
		Client: k.Client, NodeName: "worker-1", PodUID: podUID, PluginDir: filepath.Join(dir, "plugin"),
		RegistryDir: filepath.Join(dir, "registry"), MetadataCDIDir: filepath.Join(dir, "cdi"), GRPCVerbosity: -1, Intercept: n.Intercept,
	}.Register(t.Context(), k.Plugin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Helper.Stop)
	return k
}

// Dial connects to one of the plugin's sockets.
func (k *Kubelet) Dial(socket string) *grpc.ClientConn {
	k.T.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		k.T.Fatal(err)
	}
	k.T.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Service is the DRA service, on the socket that registration names.
func (k *Kubelet) Service() drapb.DRAPluginClient {
	return drapb.NewDRAPluginClient(k.Dial(filepath.Join(k.Dir, "plugin/dra.sock")))
}

// Prepare asks the plugin to prepare claims.
func (k *Kubelet) Prepare(claims ...*resourceapi.ResourceClaim) map[string]*drapb.NodePrepareResourceResponse {
	k.T.Helper()
	resp, err := k.Service().NodePrepareResources(k.T.Context(), &drapb.NodePrepareResourcesRequest{Claims: Refs(claims)})
	if err != nil {
		k.T.Fatal(err)
	}
	return resp.Claims
}

// Unprepare asks the plugin to unprepare claims.
func (k *Kubelet) Unprepare(claims ...*resourceapi.ResourceClaim) map[string]*drapb.NodeUnprepareResourceResponse {
	k.T.Helper()
	resp, err := k.Service().NodeUnprepareResources(k.T.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: Refs(claims)})
	if err != nil {
		k.T.Fatal(err)
	}
	return resp.Claims
}

// Refs names claims for the plugin.
func Refs(claims []*resourceapi.ResourceClaim) []*drapb.Claim {
	var all []*drapb.Claim
	for _, c := range claims {
		all = append(all, &drapb.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)})
	}
	return all
}

// Files lists all files below the kubelet's directory, without sockets' names
// of temporary files.
func (k *Kubelet) Files() []string {
	k.T.Helper()
	var names []string
	err := filepath.WalkDir(k.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, k.Dir+"/"))
		}
		return err
	})
	if err != nil {
		k.T.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// Status waits until the claim's status has entries.
func (k *Kubelet) Status(c *resourceapi.ResourceClaim) []resourceapi.AllocatedDeviceStatus {
	k.T.Helper()
	for range 500 {
		got, err := k.Client.ResourceV1().ResourceClaims(c.Namespace).Get(k.T.Context(), c.Name, metav1.GetOptions{})
		if err != nil {
			k.T.Fatal(err)
		}
		if len(got.Status.Devices) > 0 {
			return got.Status.Devices
		}
		select {
		case <-k.T.Context().Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	k.T.Fatal("the claim's status has no devices")
	return nil
}

//go:build e2e

package e2e

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	binder "github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// scripted is a node of the control plane whose kernel is scripted, with the plugin's own code and
// the kubelet's end of its socket.
type scripted struct {
	t       *testing.T
	name    string
	kernel  *sysfstest.Kernel
	fs      *sysfs.FS
	records *journal.Store
	claims  *prepare.Preparer
	driver  *dra.Plugin
	client  *kubernetes.Clientset
	metrics *metrics.Metrics
	kubelet drapb.DRAPluginClient
	// withdrawn says why claims lost their devices, by UID, as a repair tells it.
	withdrawn lossesByUID
	publisher *dra.Publisher
	helper    *kubeletplugin.Helper
	// config is the node config, and tenants looks up the tenants of claims; nil without exclusive domains.
	config  *v1alpha1.NodeConfig
	tenants *dra.Tenants
}

// addScripted adds a node with GPUs on the buses, and publishes them.
func addScripted(t *testing.T, p *controlplane.ControlPlane, name string, buses ...uint8) *scripted {
	t.Helper()
	return addConfigured(t, p, &scripted{name: name, config: nodeconfig.Default()}, buses...)
}

// addConfigured adds a node that has its name and config.
func addConfigured(t *testing.T, p *controlplane.ControlPlane, n *scripted, buses ...uint8) *scripted {
	t.Helper()
	addNode(t, p, n.name)
	n.t, n.kernel, n.client, n.withdrawn = t, sysfstest.New(t), client(t, p, controlplane.Admin()), lossesByUID{}
	for _, bus := range buses {
		n.kernel.AddGPU(bus)
	}
	n.prepares()
	n.serves()
	return n
}

// prepares opens the node for claims.
func (n *scripted) prepares() {
	n.t.Helper()
	var err error
	if n.fs, err = sysfs.Open(n.kernel.Root()); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = n.fs.Close() })
	if n.records, err = journal.Open(filepath.Join(n.kernel.Root(), "var/lib/kata-vfio/journal")); err != nil {
		n.t.Fatal(err)
	}
	specs, err := cdi.Open(filepath.Join(n.kernel.Root(), "run/cdi"))
	if err != nil {
		n.t.Fatal(err)
	}
	locks, err := journal.NewLocks(filepath.Join(n.kernel.Root(), "run/locks"))
	if err != nil {
		n.t.Fatal(err)
	}
	n.metrics = metrics.New(n.records, nothingStuck)
	n.claims = prepare.New(prepare.Config{
		Parts: effects.Parts{
			FS: n.fs, Inventory: scanner{n.fs}, Locks: locks, Journal: n.records, Specs: specs, Holders: vfio.NewProcesses(n.fs),
			Executor: binder.New(n.fs, control.New(n.kernel, n.fs, 10*time.Second), n.kernel, n.kernel.Exclude),
		},
		Node: n.config, NodeName: n.name, UndoLimit: 10 * time.Second,
	})
}

// lossesByUID has why claims lost their devices.
type lossesByUID map[string]string

// Note implements [dra.Losses].
func (l lossesByUID) Note(uid, why string) { l[uid] = why }

// scriptedFacts decides over the devices of a scripted node. It implements [dra.PublishedNode].
type scriptedFacts struct{ node *scripted }

func (f scriptedFacts) PlanNode(ctx context.Context, snap *device.Snapshot) (plan.Node, error) {
	return f.node.claims.PlanNode(ctx, snap)
}
func (scriptedFacts) Failing(pci.Address) []rule.Failure          { return nil }
func (scriptedFacts) Drains(*device.Snapshot) []maintain.Draining { return nil }
func (f scriptedFacts) Lost() map[string]string                   { return f.node.withdrawn }
func (scriptedFacts) Versions() publish.Versions                  { return publish.Versions{} }

// serves registers the plugin, dials it as a kubelet, and publishes the node's devices.
func (n *scripted) serves() {
	n.t.Helper()
	dir, err := os.MkdirTemp("", "dra") // the path of a socket has at most 107 bytes
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, "registry"), 0o755); err != nil {
		n.t.Fatal(err)
	}
	health := dra.NewHealth()
	n.publisher = dra.NewPublisher(dra.PublisherConfig{
		NodeName: n.name, Node: scriptedFacts{n}, Records: n.records, Health: health, Metrics: n.metrics,
	})
	n.driver = dra.NewPlugin(dra.PluginConfig{
		Client: n.client, Claims: n.claims, Gate: &dra.Gate{Client: n.client, NodeName: n.name, Handlers: []string{"kata-gpu"}}, Tenants: n.tenants,
		Publisher: n.publisher, Health: health, Reporter: n.reporter(), Metrics: n.metrics, Log: slog.New(slog.DiscardHandler),
		Changes: plugintest.NewWakes(), Fatal: func(err error) { n.t.Error(err) },
	})
	n.helper, err = dra.Kubelet{
		Client: n.client, NodeName: n.name, PluginDir: filepath.Join(dir, "plugin"), RegistryDir: filepath.Join(dir, "registry"),
		MetadataCDIDir: filepath.Join(dir, "cdi"), GRPCVerbosity: -1,
	}.Register(n.t.Context(), n.driver)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(n.helper.Stop)
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "plugin/dra.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = conn.Close() })
	n.kubelet = drapb.NewDRAPluginClient(conn)
	n.publish()
}

// publish publishes the node's devices.
func (n *scripted) publish() {
	n.t.Helper()
	snap, err := inventory.Scan(n.t.Context(), n.fs)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.publisher.Publish(n.t.Context(), n.helper, snap); err != nil {
		n.t.Fatal(err)
	}
}

// reporter tells nobody: it does not run.
func (n *scripted) reporter() *dra.Reporter {
	return dra.NewReporter(dra.ReporterConfig{Client: n.client, Recorder: dra.EventRecorder{Recorder: events.NewFakeRecorder(1000)}, Log: slog.New(slog.DiscardHandler)})
}

// prepare asks for a claim as the node's kubelet does, and returns the devices' names or the error.
func (n *scripted) prepare(c *resourcev1.ResourceClaim) (devices []string, problem string) {
	n.t.Helper()
	resp, err := n.kubelet.NodePrepareResources(n.t.Context(), &drapb.NodePrepareResourcesRequest{
		Claims: []*drapb.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	answer := resp.Claims[string(c.UID)]
	for _, d := range answer.GetDevices() {
		devices = append(devices, d.PoolName+" "+d.DeviceName)
	}
	return devices, answer.GetError()
}

// boundTo returns the driver of the GPU on a bus.
func (n *scripted) boundTo(bus uint8) string {
	n.t.Helper()
	name, err := n.fs.Driver(pci.Address{Bus: bus})
	if err != nil {
		n.t.Fatal(err)
	}
	return name
}

// scanner reads the whole node each time.
type scanner struct{ fs *sysfs.FS }

func (s scanner) Snapshot(ctx context.Context) (*device.Snapshot, error) {
	return inventory.Scan(ctx, s.fs)
}

func (s scanner) Refresh(ctx context.Context, _ []pci.Address) (*device.Snapshot, error) {
	return inventory.Scan(ctx, s.fs)
}

func (s scanner) RefreshFunctions(ctx context.Context, addrs []pci.Address) (*device.Snapshot, error) {
	return s.Refresh(ctx, addrs)
}

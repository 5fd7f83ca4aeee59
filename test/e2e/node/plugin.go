package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/process"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

const (
	// PluginNamespace is where InstallPlugin installs.
	PluginNamespace = "kata-vfio-system"
	// PluginName is what the chart calls the DaemonSet.
	PluginName = "kata-vfio-plugin"
	// MetricsReader is a ServiceAccount in the namespace "trusted". The chart lets it read metrics.
	MetricsReader = "metrics-reader"
	// release is the chart's, as helm knows it.
	release = "kata-vfio"
	// pluginImage is the plugin's image, made from this tree.
	pluginImage = "localhost/" + PluginName + ":lab"
	// pluginLimit is for the plugin to start, and for one instance to follow another: half a minute, and several times that if the machine
	// below the emulated one is busy.
	pluginLimit = 5 * time.Minute
)

// pluginValues are the chart's for the lab: an image that is there, an API server without a Service, VMs that are small (the machine
// has one CPU to give, and pods that a test binds itself are refused if those that are ending have it still), an audit that
// asks of emulated hardware no more than it can give, probes that leave the emulated CPU time for something else (each takes two or three
// seconds of it), and a GPU that is left for a case to share. It would stay in its pool for half an hour after it was published.
const pluginValues = `
image: {repository: localhost/kata-vfio-plugin, tag: lab, pullPolicy: Never}
plugin: {apiServer: {host: %q, port: %s}, audit: {profile: lab, every: 10s}}
probes: {startupPeriodSeconds: 10, readinessPeriodSeconds: 15, livenessPeriodSeconds: 150}
deviceClasses: {vf: {vf: {allowUntagged: true}}, gpu-vf: {vf: {allowUntagged: true}}}
runtimeClass: {overhead: {memory: %s, cpu: 50m}}
metrics: {readers: [{kind: ServiceAccount, name: ` + MetricsReader + `, namespace: trusted}]}
nodeConfig:
  devices:
  - {name: shared, match: {types: [gpu], addresses: ["` + topology.GPU3 + `"]}, exclude: true}
  - {name: others, match: {types: [gpu, vf]}}
`

// InstallPlugin installs the plugin as an administrator would: the chart by helm, in PluginNamespace, and the label on
// the node. It waits until the plugin is ready. The chart is a directory; the image is the tree's, which every node has.
// Settings are the chart's, as helm --set takes them, on top of what the lab needs. It may be called again, with others.
func (n *Node) InstallPlugin(ctx context.Context, chart string, settings ...string) error {
	values, err := n.PluginValues()
	if err != nil {
		return err
	}
	if err := n.pluginNamespace(ctx); err != nil {
		return fmt.Errorf("install the plugin: %w", err)
	}
	args := []string{"upgrade", "--install", release, chart, "--values", "-"}
	for _, setting := range settings {
		args = append(args, "--set", setting)
	}
	err = n.helm(ctx, values, args...)
	if err != nil {
		return fmt.Errorf("install the plugin: %w", err)
	}
	if _, err := n.config.Plane.Kubectl(ctx, "label", "--overwrite", "node", n.config.Name, "kata-vfio.dev/node=true"); err != nil {
		return fmt.Errorf("install the plugin: %w", err)
	}
	return n.AwaitPlugin(ctx)
}

// PluginValues are the chart's values for the lab.
func (n *Node) PluginValues() (string, error) {
	server, err := url.Parse(n.config.Plane.Server(controlplane.LabHost))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(pluginValues, server.Hostname(), server.Port(), n.overhead()), nil
}

// overhead is the memory of a sandbox beside its containers' limits. Kata charges the pod for its VM's RAM, of which kata-lab.toml sets
// the base, for QEMU, virtiofsd and the shim; the stand-in does not.
func (n *Node) overhead() string {
	if n.config.Kata != nil {
		return "1Gi"
	}
	return "350Mi"
}

// RollbackPlugin has helm take back the last InstallPlugin, and waits until the plugin is ready.
func (n *Node) RollbackPlugin(ctx context.Context) error {
	if err := n.helm(ctx, "", "rollback", release); err != nil {
		return fmt.Errorf("roll the plugin back: %w", err)
	}
	return n.AwaitPlugin(ctx)
}

// UninstallPlugin has helm uninstall the chart, and waits until the plugin has ended. Its namespace stays, and the node's
// label.
func (n *Node) UninstallPlugin(ctx context.Context) error {
	if err := n.helm(ctx, "", "uninstall", release); err != nil {
		return fmt.Errorf("uninstall the plugin: %w", err)
	}
	limited, cancel := context.WithTimeoutCause(ctx, pluginLimit, fmt.Errorf("it is there after %s", pluginLimit))
	defer cancel()
	return n.until(limited, "the plugin has ended", func(ctx context.Context) error {
		pods, err := n.client.CoreV1().Pods(PluginNamespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%s is there", pods.Items[0].Name)
		}
		return err
	})
}

// pluginNamespace makes the namespace that the chart's README asks for.
func (n *Node) pluginNamespace(ctx context.Context) error {
	_, err := n.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: PluginNamespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// helm runs helm on the plugin's namespace, with values as its input, and without what a person's helm has configured.
func (n *Node) helm(ctx context.Context, values string, args ...string) error {
	set, err := binaries.Ensure(ctx, binaries.Config{Modules: []binaries.Module{binaries.Helm}, Progress: n.config.Progress})
	if err != nil {
		return err
	}
	access, err := n.config.Plane.KubeconfigFile(controlplane.Admin(), "")
	if err != nil {
		return err
	}
	args = append(args, "--namespace", PluginNamespace, "--kubeconfig", access)
	home := filepath.Join(n.dir, "helm")
	cmd := exec.CommandContext(ctx, set.Path("helm"), args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(values), &said, &said
	if err := process.Run(cmd); err != nil {
		return fmt.Errorf("run helm %q: %w: %s", args, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// AwaitPlugin waits until the DaemonSet is as it should be: one pod, of its present template, that is ready. After the
// deadline the error has the events of its namespace.
func (n *Node) AwaitPlugin(ctx context.Context) error {
	begin := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, pluginLimit, fmt.Errorf("it is not ready after %s", pluginLimit))
	defer cancel()
	if err := n.until(limited, "the plugin is ready", n.pluginReady); err != nil {
		events, eventsErr := n.config.Plane.Kubectl(ctx, "get", "events", "--namespace", PluginNamespace)
		return errors.Join(err, errors.New(string(events)), eventsErr)
	}
	n.report("plugin ready after %.1fs", time.Since(begin).Seconds())
	return nil
}

func (n *Node) pluginReady(ctx context.Context) error {
	got, err := n.client.AppsV1().DaemonSets(PluginNamespace).Get(ctx, PluginName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	at := got.Status
	if at.ObservedGeneration != got.Generation || at.DesiredNumberScheduled != 1 || at.UpdatedNumberScheduled != 1 || at.NumberReady != 1 {
		return fmt.Errorf("the DaemonSet is %+v", at)
	}
	pods, err := n.client.CoreV1().Pods(PluginNamespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(got.Spec.Selector)})
	if err == nil && len(pods.Items) != 1 {
		err = fmt.Errorf("there are %d pods of it", len(pods.Items))
	}
	return err
}

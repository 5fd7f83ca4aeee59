package main

import (
	"errors"
	"net/url"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
)

// holderWait is how long Unprepare waits for a VM to end. The kubelet waits 45 seconds, and the rest is for reset and restore.
const holderWait = 30 * time.Second

// runOptions are the flags of `run`.
type runOptions struct {
	plugin   plugin.Config
	plugging plugging
	audit    auditing
	ledger   retention
	log      command.Logging
}

// runCommand serves the kubelet until a signal ends it.
func runCommand(opts *options) *cobra.Command {
	var r runOptions
	var wait *time.Duration
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Serve the kubelet as the node's DRA plugin",
		Long: "run recovers the claims of an earlier plugin, publishes the node's devices as ResourceSlices, and prepares claims for\n" +
			"the kubelet until it gets SIGTERM. It answers Kata, which asks at sandbox creation for the devices to plug, and checks\n" +
			"sandboxes and containers through NRI. When the node changes, it runs the audit's inexpensive checks: a device that\n" +
			"fails one gets a taint, and no claim gets the device. A second instance can run beside it during a rolling update\n" +
			"(--pod-uid); locks coordinate both.\n\n" +
			"`probe` asks it at --probe-socket whether it works. /metrics is served over TLS. A client needs a bearer token, and its\n" +
			"user the verb get on the non-resource URL /metrics; --metrics-open serves it to every client.",
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Example: `  kata-vfio-plugin run --node-name worker-1 --kubeconfig /etc/kubernetes/kubelet.conf
  NODE_NAME=worker-1 POD_UID=5d6b6a3f kata-vfio-plugin run --log-format json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.validate(); err != nil {
				return err
			}
			opts.node.HolderWait, opts.node.HotPlug, opts.node.HotPlugWindow = *wait, r.plugging.hot, r.plugging.window()
			log := r.log.Logger(cmd.ErrOrStderr())
			opts.node.Log, opts.node.Name, opts.node.Ledger.Node = log, r.plugin.Node.Name, r.plugin.Node.Name
			r.ledger.limit(&opts.node.Ledger)
			if err := opts.resolveWork(); err != nil {
				return err
			}
			if opts.node.Node.HasExclusive() && r.plugin.TenantsNamespace == "" {
				return command.Usagef("--tenants-namespace is empty, and the node config has exclusive domains: name the namespace of kata-vfio-controller")
			}
			r.plugin.Node, r.plugin.Log, r.plugin.Checks, r.plugin.ChecksEvery = opts.node, log, r.audit.checks(), r.audit.every
			// An administrator's own GOGC wins.
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(garbagePercent)
			}
			return plugin.Run(cmd.Context(), r.plugin)
		},
	}
	r.register(cmd)
	r.audit.register(cmd)
	r.ledger.register(cmd)
	opts.registerWork(cmd)
	wait = waitFlag(cmd, holderWait)
	return cmd
}

func (r *runOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.plugin.Node.Name, "node-name", os.Getenv("NODE_NAME"), "the node's name in the cluster (default: $NODE_NAME)")
	f.StringVar(&r.plugin.PodUID, "pod-uid", os.Getenv("POD_UID"), "the plugin pod's UID, for rolling updates without a gap (default: $POD_UID)")
	f.StringVar(&r.plugin.Kubeconfig, "kubeconfig", "", "kubeconfig file; in a pod, leave empty")
	f.StringVar(&r.plugin.PluginDir, "plugin-dir", "/var/lib/kubelet/plugins/"+v1alpha1.DriverName, "the plugin's data directory, known to the kubelet by the same path")
	f.StringVar(&r.plugin.RegistryDir, "registry-dir", "/var/lib/kubelet/plugins_registry", "the kubelet's directory for plugin registration")
	f.StringVar(&r.plugin.MetadataCDIDir, "metadata-cdi-dir", cdi.DynamicDir, "where CDI specs of device metadata are written")
	f.StringVar(&r.plugin.PodResources, "pod-resources-socket", "/run/kata-vfio/pod-resources.sock", "socket that Kata asks for a sandbox's devices (its pod_resource_api_sock)")
	f.StringVar(&r.plugin.KubeletPodResources, "kubelet-pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock", "the kubelet's own pod-resources socket")
	f.StringVar(&r.plugin.NRI, "nri-socket", "/var/run/nri/nri.sock", "the container runtime's NRI socket")
	r.plugging.register(f)
	f.StringSliceVar(&r.plugin.ExemptNamespaces, "exempt-namespace", exemptNamespaces(), "namespaces whose pods may mount /dev and have VFIO nodes: the node's own (default: kube-system and $POD_NAMESPACE)")
	f.StringVar(&r.plugin.TenantsNamespace, "tenants-namespace", os.Getenv("POD_NAMESPACE"), "namespace of kata-vfio-controller, which keeps the IDs of tenants for exclusive domains in ConfigMap "+v1alpha1.TenantsConfigMap+"\n(default: $POD_NAMESPACE)")
	serving.AddProbeSocket(f, &r.plugin.Probes)
	registerMetrics(f, &r.plugin.Metrics)
	f.StringVar(&r.plugin.Pprof, "pprof", "", "loopback address at which to serve profiles below /debug/pprof/, such as 127.0.0.1:9457; empty: they are not served")
	f.StringVar(&r.plugin.OTLP, "otlp-endpoint", "", "URL of the OpenTelemetry collector that gets spans by OTLP over gRPC, such as http://collector:4317\n(default: $OTEL_EXPORTER_OTLP_ENDPOINT; no spans if both are empty)")
	r.log.AddFlags(cmd)
	f.IntVar(&r.plugin.GRPCVerbosity, "grpc-verbosity", -1, "klog verbosity at which gRPC calls are logged; -1: never")
}

// exemptNamespaces returns the namespaces of the node's own privileged pods, including the plugin, which mounts /dev.
func exemptNamespaces() []string {
	names := []string{"kube-system"}
	if own := os.Getenv("POD_NAMESPACE"); own != "" && own != names[0] {
		names = append(names, own)
	}
	return names
}

func (r *runOptions) validate() error {
	if r.plugin.Node.Name == "" {
		return command.Usagef("--node-name is empty: set it, or $NODE_NAME from the downward API (spec.nodeName)")
	}
	if err := device.CheckNodeName(r.plugin.Node.Name); err != nil {
		return command.Usagef("--node-name: %v", err)
	}
	if err := r.log.Validate(); err != nil {
		return err
	}
	if r.plugin.Pprof != "" && !serving.Loopback(r.plugin.Pprof) {
		return command.Usagef("--pprof %q: want a loopback address, such as 127.0.0.1:9457, because profiles need no credentials", r.plugin.Pprof)
	}
	if r.plugin.OTLP != "" && !isHTTP(r.plugin.OTLP) {
		return command.Usagef("--otlp-endpoint %q: want a URL, such as http://collector:4317, or https for TLS", r.plugin.OTLP)
	}
	if err := errors.Join(r.ledger.validate(), r.plugin.Metrics.Serving.Validate()); err != nil {
		return err
	}
	return r.audit.validate()
}

// isHTTP reports whether text is a URL of scheme http or https with a host.
func isHTTP(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// garbagePercent is lower than Go's default of 100, to use less memory: the plugin works in bursts, and the node's memory is for
// pods.
const garbagePercent = 50

// registerMetrics registers the flags that say how `run` serves metrics, and to which clients.
func registerMetrics(f *pflag.FlagSet, m *plugin.Scraping) {
	m.Serving.AddFlags(f, "the node's devices, its failing\nchecks and the traffic of each VF")
	f.BoolVar(&m.Tenants, "metrics-tenants", false, "name namespaces and claims in the metrics of VFs' traffic, for every client that may read the metrics")
}

package main

import (
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller"
	"github.com/kata-vfio/kata-vfio/pkg/controller/stage"
	"github.com/kata-vfio/kata-vfio/pkg/kube"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
)

const long = "kata-vfio-controller does what one node can't see. It has five tasks, and does those that it has flags for.\n\n" +
	"--shared-driver: it keeps each GPU that kata-vfio shares with another DRA driver from two consumers, one in a VM and one in\n" +
	"a container. While a claim has a device of one driver, a DeviceTaintRule keeps new claims from the device of the other. A\n" +
	"claim of kata-vfio's device waits until no claim has the other; the controller then sets its condition, and the scheduler\n" +
	"binds the pod. It needs Kubernetes 1.37.\n\n" +
	"--sanitizers: it runs the sanitizing stages. Each device that waits for its stage gets a claim and a pod in the stages'\n" +
	"namespace, and loses them when the plugin has decided on the result.\n\n" +
	"--tenants: it registers the tenants of exclusive domains. Each Namespace gets a random ID in the ConfigMap kata-vfio-tenants;\n" +
	"with --tenant-label, the Namespaces with one value of the label share one. With --reserve-domains, it also\n" +
	"answers claims whose pods wait for their exclusive domains (reserveDomains in node configs), before the scheduler binds them.\n\n" +
	"--classes: it publishes in the ConfigMap kata-vfio-classes which DeviceClasses tenants have, what each gives and how many devices\n" +
	"are free, for `kubectl kata-vfio classes`.\n\n" +
	"--count-gpus: it publishes for each node a ResourceSlice with as many placeholders as the node has GPUs without a taint. The scheduler\n" +
	"KAI counts them, and so schedules claims for GPUs, and limits them by its queues. No claim gets a placeholder.\n\n" +
	"Run two or three: one has the lease and acts, the others wait. While none runs, pods with shared GPUs or reserved\n" +
	"domains and devices that wait for their stage wait, claims of new Namespaces are refused, and no running pod is affected. It needs permissions that the chart grants.\n\n" +
	"Exit codes:\n" +
	"  0  a signal ended it\n" +
	"  1  something failed, or another controller has the lease; start it again\n" +
	"  2  the command line or the file of sanitizers is wrong"

// options are the command's flags.
type options struct {
	daemon     controller.Daemon
	sanitizers string
	cluster    kube.Flags
	log        command.Logging
}

// newCommand returns the command. The log goes to stderr.
func newCommand(stdout, stderr io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "kata-vfio-controller [--shared-driver NAME] [--sanitizers FILE] [--tenants] [--classes] [--count-gpus]",
		Short: "Keep shared GPUs from two consumers, run sanitizing stages, register tenants, publish DeviceClasses for tenants, and count GPUs for KAI",
		Long:  long,
		Example: `  kata-vfio-controller --shared-driver gpu.nvidia.com --namespace kata-vfio-system
  kata-vfio-controller --shared-driver gpu.nvidia.com --namespace kata-vfio-system --kubeconfig admin.conf --log-level debug
  kata-vfio-controller --sanitizers sanitizers.yaml --namespace kata-vfio-system
  kata-vfio-controller --tenants --tenant-label example.com/team --namespace kata-vfio-system`,
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	command.Setup(cmd, stdout, stderr)
	o.addFlags(cmd)
	cmd.AddCommand(serving.ProbeCommand(cmd.Name()))
	command.AddVersion(cmd, cmd.Name()+" "+command.Build())
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&o.daemon.Drivers, "shared-driver", nil, "name of the DRA driver that shares GPUs with kata-vfio, as in sharedWith of node configs; repeat it for several")
	f.StringVar(&o.sanitizers, "sanitizers", "", "the file of the cluster's sanitizing stages, kind Sanitizers")
	f.BoolVar(&o.daemon.Tenants, "tenants", false, "register the tenants of exclusive domains in the ConfigMap "+v1alpha1.TenantsConfigMap)
	f.StringVar(&o.daemon.TenantLabel, "tenant-label", "", "label of Namespaces: those with the same value are one tenant; others, and all without the flag, are tenants by themselves")
	f.BoolVar(&o.daemon.ReserveDomains, "reserve-domains", false, "reserve exclusive domains before pods are bound, where a rule of the node config has reserveDomains")
	f.BoolVar(&o.daemon.Classes, "classes", false, "publish what tenants may know of DeviceClasses in the ConfigMap "+cluster.ClassesConfigMap+", which must exist")
	f.BoolVar(&o.daemon.CountGPUs, "count-gpus", false, "publish for each node how many GPUs without a taint it has, as ResourceSlices of the driver "+controller.GPUCountDriver+", for KAI")
	f.StringVar(&o.daemon.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of the lease and of the ConfigMaps (default: $POD_NAMESPACE)")
	f.StringVar(&o.daemon.Identity, "identity", identity(), "name as the holder of the lease (default: $POD_NAME, or the host's name)")
	o.cluster.AddFile(cmd, "kubeconfig file; default: $KUBECONFIG, ~/.kube/config, or the pod's own account")
	serving.AddProbeSocket(f, &o.daemon.Probes)
	o.daemon.Metrics.AddFlags(f, "how many GPUs are shared\nand in use")
	o.log.AddFlags(cmd)
	// The only error is a flag that does not exist.
	_ = cmd.MarkFlagFilename("kubeconfig")
	_ = cmd.MarkFlagFilename("sanitizers", "yaml", "yml", "json")
}

// identity returns the default of --identity.
func identity() string {
	if name := os.Getenv("POD_NAME"); name != "" {
		return name
	}
	name, _ := os.Hostname() // without a name, the flag is refused as empty
	return name
}

func (o *options) run(cmd *cobra.Command) error {
	if err := o.validate(); err != nil {
		return err
	}
	var err error
	if o.daemon.Sanitizers, err = o.stages(); err != nil {
		return err
	}
	if o.daemon.Cluster, err = o.cluster.Config(cmd.Name()); err != nil {
		return err
	}
	o.daemon.Log = o.log.Logger(cmd.ErrOrStderr())
	if err := kube.LogLibraries(cmd.Context(), o.daemon.Log); err != nil {
		return err
	}
	return o.daemon.Run(cmd.Context())
}

// stages reads the file of sanitizing stages; nil if there is none.
func (o *options) stages() (*v1alpha1.Sanitizers, error) {
	if o.sanitizers == "" {
		return nil, nil
	}
	data, err := os.ReadFile(o.sanitizers)
	if err != nil {
		return nil, command.Usagef("read the sanitizing stages: %w", err)
	}
	s, err := v1alpha1.DecodeSanitizers(data)
	if err == nil {
		err = stage.Check(s)
	}
	if err != nil {
		return nil, command.Usagef("sanitizing stages %s: %w", o.sanitizers, err)
	}
	return s, nil
}

func (o *options) validate() error {
	if err := o.log.Validate(); err != nil {
		return err
	}
	switch {
	case len(o.daemon.Drivers) == 0 && o.sanitizers == "" && !o.daemon.Tenants && !o.daemon.Classes && !o.daemon.CountGPUs:
		return command.Usagef("--shared-driver, --sanitizers, --tenants, --classes and --count-gpus are missing: name the DRA driver that shares GPUs with kata-vfio, such as gpu.nvidia.com, or the file of the sanitizing stages, register tenants, publish DeviceClasses, or count GPUs")
	case o.daemon.TenantLabel != "" && !o.daemon.Tenants:
		return command.Usagef("--tenant-label says which Namespaces are one tenant, and --tenants is missing: set both or neither")
	case o.daemon.ReserveDomains && !o.daemon.Tenants:
		return command.Usagef("--reserve-domains reserves domains for tenants, and --tenants is missing: set both or neither")
	case o.daemon.Namespace == "":
		return command.Usagef("--namespace is empty: set it, or $POD_NAMESPACE from the downward API (metadata.namespace)")
	case o.daemon.Identity == "":
		return command.Usagef("--identity is empty: set it, or $POD_NAME from the downward API (metadata.name)")
	}
	for _, d := range o.daemon.Drivers {
		if d == "" || d == v1alpha1.DriverName {
			return command.Usagef("--shared-driver %q: want the name of another DRA driver, such as gpu.nvidia.com", d)
		}
	}
	if err := o.checkTenantLabel(); err != nil {
		return err
	}
	return o.daemon.Metrics.Validate()
}

func (o *options) checkTenantLabel() error {
	if o.daemon.TenantLabel == "" {
		return nil
	}
	if wrong := validation.IsQualifiedName(o.daemon.TenantLabel); len(wrong) > 0 {
		return command.Usagef("--tenant-label %q: want the key of a label, such as example.com/team: %s", o.daemon.TenantLabel, strings.Join(wrong, "; "))
	}
	return nil
}

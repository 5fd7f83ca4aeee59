// Package kube connects to the Kubernetes API for programs, by the flags, files and variables of kubectl, and writes entries of a
// ResourceClaim's status.devices.
package kube

import (
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// Flags name the cluster and the user. The zero value is kubectl's default: $KUBECONFIG, ~/.kube/config, or the
// pod's own account.
type Flags struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// Add gives a command --kubeconfig and --context.
func (f *Flags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; default: $KUBECONFIG, ~/.kube/config, or the pod's own account")
	cmd.Flags().StringVar(&f.overrides.CurrentContext, "context", "", "context of the kubeconfig")
}

// AddFile gives a command --kubeconfig alone. It is for a command that asks no cluster if no file is named
// ([Flags.Named]). About is the flag's help.
func (f *Flags) AddFile(cmd *cobra.Command, about string) {
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", about)
}

// Named reports whether a kubeconfig file was named.
func (f *Flags) Named() bool { return f.kubeconfig != "" }

// AddAll gives a command and its subcommands all flags that name a cluster for kubectl: --context, --namespace
// (-n), --server, --as, --token and the others.
func (f *Flags) AddAll(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file; default: $KUBECONFIG, ~/.kube/config, or the pod's own account")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	// As in kubectl: no password on a command line, which every user of the machine can read.
	names.AuthOverrideFlags.Username.LongName, names.AuthOverrideFlags.Password.LongName = "", ""
	clientcmd.BindOverrideFlags(&f.overrides, flags, names)
}

// Config returns the configuration of a client of the cluster. The API server's log shows the program by its
// name and version. A cluster that can't be found is a [command.UsageError].
func (f *Flags) Config(program string) (*rest.Config, error) {
	config, err := f.client().ClientConfig()
	if err != nil {
		return nil, command.Usagef("find the cluster: %w; --kubeconfig names a kubeconfig, and `kubectl config get-contexts` lists its contexts", err)
	}
	config.UserAgent = program + "/" + command.Build()
	return config, nil
}

// Namespace returns the namespace of the flag or of the context, or "default".
func (f *Flags) Namespace() (string, error) {
	namespace, _, err := f.client().Namespace()
	if err != nil {
		return "", command.Usagef("find the namespace: %w; name it by --namespace", err)
	}
	return namespace, nil
}

func (f *Flags) client() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	// Deferred loading falls back to the pod's service account if no kubeconfig is found. Interactive loading would ask
	// for a user name and a password at the terminal.
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &f.overrides)
}

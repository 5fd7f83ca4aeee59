package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// claimFlag adds the flag that names the claim's file.
func claimFlag(cmd *cobra.Command, file *string) {
	command.OnceVarP(cmd.Flags(), file, "file", "f", "the claim: ResourceClaim YAML with status.allocation, - for standard input")
	complete(cmd, "file", yamlFiles)
}

// nodeNameFlag adds the flag that names the node, for the claim's pools.
func (o *options) nodeNameFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.node.Name, "node-name", os.Getenv("NODE_NAME"),
		"the node's name in the cluster: refuse a claim that is allocated from another node's pool (default: $NODE_NAME;\nwithout a name, pools are not compared)")
}

// readClaim reads a claim's YAML and returns the request for our devices.
func readClaim(file string, stdin io.Reader) (*claim.Request, error) {
	if file == "" {
		return nil, command.Usagef("no claim: name its file with -f claim.yaml, or -f - for standard input; " +
			"`kubectl get resourceclaim NAME -o yaml` prints one")
	}
	data, err := readInput(file, stdin)
	if err != nil {
		return nil, command.Usagef("read the claim: %w", err)
	}
	parsed, err := claim.Parse(data)
	if err != nil {
		return nil, command.Usagef("claim file %s: %w", file, err)
	}
	req, err := claim.Decode(parsed, v1alpha1.DriverName)
	if err != nil {
		return nil, command.Usagef("claim file %s: %w", file, err)
	}
	return req, nil
}

func readInput(file string, stdin io.Reader) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(file)
}

// planCommand shows what prepare would do.
func planCommand(opts *options) *cobra.Command {
	var choice choosing
	var audit auditing
	var plugs plugging
	cmd := &cobra.Command{
		Use:   "plan {-f claim.yaml | --device ADDRESS | --all | --class NAME}",
		Short: "Show what run would do for a claim, step by step, and touch nothing",
		Long: "plan shows what `run` would do for a claim: its functions, the changes of their drivers, and each write. Like `run`,\n" +
			"it refuses a claim if a check of the audit fails: use the --audit-* flags of `run`, and --hot-plug if `run` has it.\n" +
			"With --audit-taint off, no check counts. plan also works on a captured tree (--root). The same claim and node give\n" +
			"the same plan, byte for byte. With --node-name it refuses a claim that is\n" +
			"allocated from another node's pool, or from a pool in which this node does not publish the device.\n\n" +
			"Without a claim, plan answers before there is one: --device for some devices, --all for each device by itself,\n" +
			"and --class for each device that a DeviceClass selects, with the parameters of the class.\n\n" + exitCodes,
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Example: `  kata-vfio-plugin plan --all
  kata-vfio-plugin plan --device 0000:3b:00.0
  kata-vfio-plugin plan --class gpu.kata-vfio.dev
  kata-vfio-plugin plan -f claim.yaml
  kubectl get resourceclaim -n team-a train -o yaml | kata-vfio-plugin plan -f -
  kata-vfio-plugin plan -f claim.yaml -o json | jq '.steps[].operation'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(choice.check(), audit.validateGate()); err != nil {
				return err
			}
			opts.node.HotPlug, opts.node.HotPlugWindow = plugs.hot, plugs.window()
			if choice.all || choice.class != "" || len(choice.devices) > 0 {
				return choice.preflight(cmd, opts, &audit)
			}
			req, err := readClaim(choice.file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			return showPlan(cmd, opts, req, &audit)
		},
	}
	choice.register(cmd)
	opts.nodeNameFlag(cmd)
	audit.registerGate(cmd)
	plugs.register(cmd.Flags())
	return cmd
}

// prepareCommand prepares a claim as for the kubelet.
func prepareCommand(opts *options) *cobra.Command {
	var file string
	var dryRun bool
	var audit auditing
	var plugs plugging
	cmd := &cobra.Command{
		Use:   "prepare -f claim.yaml",
		Short: "Bind a claim's functions to VFIO and write its CDI spec",
		Long: "prepare does what the plugin does when the kubelet calls it: it binds exactly the claim's functions, with their group\n" +
			"mates and companions, to their VFIO driver, verifies it, and writes the CDI spec. You can repeat it; an error leaves\n" +
			"nothing behind. Like `run`, it refuses a claim if a check of the audit fails: use the --audit-* flags of `run`, and\n" +
			"--hot-plug if `run` has it. With --node-name it refuses a claim that is allocated from another node's pool, or from a\n" +
			"pool in which this node does not publish the device.\n\n" + exitCodes,
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Example: `  kata-vfio-plugin prepare -f claim.yaml --dry-run
  kata-vfio-plugin prepare -f claim.yaml
  kata-vfio-plugin prepare -f claim.yaml -o json | jq -r '.records[].devices[].cdi'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := audit.validateGate(); err != nil {
				return err
			}
			opts.node.HotPlug, opts.node.HotPlugWindow = plugs.hot, plugs.window()
			req, err := readClaim(file, cmd.InOrStdin())
			if err != nil {
				return err
			}
			if dryRun {
				return showPlan(cmd, opts, req, &audit)
			}
			n, err := opts.openChecked(cmd.Context(), &audit, opts.progress(cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return errors.Join(prepareOne(cmd, opts, n, req), n.Close())
		},
	}
	claimFlag(cmd, &file)
	opts.nodeNameFlag(cmd)
	opts.registerWork(cmd)
	audit.registerGate(cmd)
	plugs.register(cmd.Flags())
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the plan and touch nothing")
	return cmd
}

// showPlan prints the plan for a claim, if the checks do not refuse it.
func showPlan(cmd *cobra.Command, opts *options, req *claim.Request, checks *auditing) error {
	n, err := opts.lookChecked(cmd.Context(), checks)
	if err != nil {
		return err
	}
	pl, err := planOne(cmd, n, req)
	if err == nil {
		err = printPlan(cmd.OutOrStdout(), opts.output, pl)
	}
	return errors.Join(err, n.Close())
}

// planOne makes the plan. It fails without the journal, which has the owners of devices.
func planOne(cmd *cobra.Command, n *node.Node, req *claim.Request) (*plan.Plan, error) {
	// A damaged record causes no error here: the plan refuses devices because of it, and says so.
	_, problems := n.Parts.Journal.List()
	for _, err := range problems {
		if errors.Is(err, fs.ErrPermission) {
			return nil, readable(err)
		}
	}
	if err := warn(cmd, n); err != nil {
		return nil, err
	}
	return n.Preparer.Plan(cmd.Context(), req)
}

func prepareOne(cmd *cobra.Command, opts *options, n *node.Node, req *claim.Request) error {
	if err := warn(cmd, n); err != nil {
		return err
	}
	rec, err := n.Preparer.Prepare(cmd.Context(), req)
	if err != nil {
		return err
	}
	v := newView(rec)
	if err := printStatus(cmd.OutOrStdout(), opts.output, &nodeStatus{views: []view{v}}); err != nil || opts.output != "table" {
		return err
	}
	return printCDI(cmd.OutOrStdout(), &v)
}

// warn writes to stderr if the node's config does not fit the node: a rule that matches nothing can be the reason for a refusal.
func warn(cmd *cobra.Command, n *node.Node) error {
	snap, err := n.Parts.Inventory.Snapshot(cmd.Context())
	if err != nil {
		return err
	}
	problems := nodeconfig.Select(n.Node, snap).Problems()
	for i := range problems {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: node config: %s\n", problems[i].Sentence())
	}
	return nil
}

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// templateCommand prints the ResourceSlices of a node for an autoscaler that has not created the node yet.
func templateCommand(opts *options) *cobra.Command {
	var name string
	var audit auditing
	var plugs plugging
	cmd := &cobra.Command{
		Use:   "template",
		Short: "Print the ResourceSlices of a new node like this one, for autoscalers",
		Long: "template prints the ResourceSlices that a new node with the same hardware and node config would have. An autoscaler needs\n" +
			"them to create the first node of a group. Devices have the attributes that all nodes of a kind have in common: type,\n" +
			"vendor, device, model, linkSpeed, numaNode, pcieRoot and sharedWith, and GPUs their memory. Create the VFs first.\n" +
			"A warning names each device that this node would publish with a taint for its isolation, its reset, its BARs or a failed\n" +
			"check of the audit: a new node like this one would have the same taint, and the template does not show it. Use the\n" +
			"--audit-* flags of `run`, and --hot-plug if `run` has it.\n" +
			"template also works on a captured tree (--root), and changes nothing.\n\n" + exitCodes,
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		Example: `  kata-vfio-plugin template
  kata-vfio-plugin template -o yaml --node-name hgx-template
  kata-vfio-plugin template --root captured --config node.yaml -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := audit.validateGate(); err != nil {
				return err
			}
			opts.node.HotPlug, opts.node.HotPlugWindow = plugs.hot, plugs.window()
			n, err := opts.lookChecked(cmd.Context(), &audit)
			if err != nil {
				return err
			}
			return errors.Join(printTemplate(cmd, opts, n, name), n.Close())
		},
	}
	cmd.Flags().StringVar(&name, "node-name", "template", "the new node's name, in spec.nodeName and in the names of pools and slices")
	audit.registerGate(cmd)
	plugs.register(cmd.Flags())
	return cmd
}

func printTemplate(cmd *cobra.Command, opts *options, n *node.Node, name string) error {
	snap, err := n.Parts.Inventory.Snapshot(cmd.Context())
	if err != nil {
		return err
	}
	known, err := n.Preparer.PlanNode(cmd.Context(), snap)
	if err != nil {
		return err
	}
	if err := warn(cmd, n); err != nil {
		return err
	}
	warnTainted(cmd.ErrOrStderr(), &known)
	pools := publish.Template(&publish.Node{Name: name, Snapshot: known.Snapshot, Selection: known.Selection})
	all := &resourceapi.ResourceSliceList{
		TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSliceList"},
		Items:    makeSlices(name, pools),
	}
	if done, err := document(cmd.OutOrStdout(), opts.output, all); done {
		return err
	}
	return printKinds(cmd.OutOrStdout(), all.Items)
}

// warnTainted names the devices that a new node like this one would publish with a taint, because of the hardware,
// the firmware and the kernel's settings.
func warnTainted(w io.Writer, known *plan.Node) {
	assessor := plan.NewAssessor(*known)
	var texts []string
	for _, f := range known.Selection.Ours() {
		assessment := assessor.Assess(f)
		for _, r := range assessment.Faults() {
			if plan.HoldsForItsKind(r.Code) {
				texts = append(texts, fmt.Sprintf("warning: %s would be published with a taint: %s\n    fix: %s", r.Device, r.Text, r.Fix))
				break
			}
		}
	}
	for _, text := range output.Fold(texts) {
		fmt.Fprintln(w, text)
	}
}

// makeSlices returns the pools of a node as the API has them, in the order of their names.
func makeSlices(nodeName string, pools map[string]publish.Pool) []resourceapi.ResourceSlice {
	var all []resourceapi.ResourceSlice
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		pool := resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(len(pools[name].Slices))}
		for _, s := range pools[name].Slices {
			all = append(all, resourceapi.ResourceSlice{
				TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s-%d", nodeName, v1alpha1.DriverName, len(all))},
				Spec: resourceapi.ResourceSliceSpec{
					Driver: v1alpha1.DriverName, NodeName: &nodeName, Pool: pool, Devices: s.Devices, SharedCounters: s.SharedCounters,
				},
			})
		}
	}
	return all
}

// printKinds prints the number of devices of each kind, in each pool.
func printKinds(w io.Writer, all []resourceapi.ResourceSlice) error {
	rows := [][]string{{"POOL", "DEVICES", "TYPE", "VENDOR", "DEVICE", "NUMA", "ROOT", "MODEL"}}
	for i := range all {
		for j := range all[i].Spec.Devices {
			row := describeKind(all[i].Spec.Pool.Name, &all[i].Spec.Devices[j])
			last := rows[len(rows)-1]
			if len(rows) > 1 && last[0] == row[0] && slices.Equal(last[2:], row[2:]) {
				count, _ := strconv.Atoi(last[1]) // it is from below
				last[1] = strconv.Itoa(count + 1)
				continue
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 1 {
		_, err := fmt.Fprintln(w, "No device: a node like this one publishes none. See `kata-vfio-audit devices`, and the node config's rules.")
		return err
	}
	return table(w, rows)
}

// describeKind is the table's row for one device.
func describeKind(pool string, d *resourceapi.Device) []string {
	row := []string{pool, "1"}
	for _, name := range []resourceapi.QualifiedName{
		publish.AttrType, publish.AttrVendor, publish.AttrDevice, publish.AttrNUMANode, publish.AttrPCIeRoot, publish.AttrModel,
	} {
		text := "-"
		switch a := d.Attributes[name]; {
		case a.StringValue != nil:
			text = *a.StringValue
		case a.IntValue != nil:
			text = strconv.FormatInt(*a.IntValue, 10)
		}
		row = append(row, text)
	}
	return row
}

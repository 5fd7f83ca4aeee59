package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/kube"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// choosing are the flags of plan that name devices in place of a claim.
type choosing struct {
	file    string
	devices []string
	all     bool
	class   string
	kube    kube.Flags
}

func (c *choosing) register(cmd *cobra.Command) {
	f := cmd.Flags()
	command.OnceVarP(f, &c.file, "file", "f", "ResourceClaim YAML with status.allocation, or with --class a file of DeviceClasses; - for standard input")
	f.StringSliceVar(&c.devices, "device", nil, "plan one claim for the devices with these addresses or names, without a claim file; may be repeated")
	f.BoolVar(&c.all, "all", false, "plan a claim of its own for each device that the node would publish")
	f.StringVar(&c.class, "class", "", "DeviceClass whose parameters apply; without --device, plan a claim for each device that it selects.\nIt is read from the file of -f, or from the cluster")
	c.kube.AddFile(cmd, "kubeconfig file of the cluster that has the --class; default: $KUBECONFIG, ~/.kube/config, or the pod's own account")
	complete(cmd, "file", yamlFiles)
}

// check refuses flags that contradict each other.
func (c *choosing) check() error {
	switch without := len(c.devices) > 0 || c.all || c.class != ""; {
	case c.file == "" && !without:
		return command.Usagef("no claim: name its file with -f claim.yaml, or -f - for standard input; " +
			"`kubectl get resourceclaim NAME -o yaml` prints one. Without a claim, use --device ADDRESS, --all or --class NAME")
	case c.file != "" && without && c.class == "":
		return command.Usagef("-f names a claim; use it without --device and --all")
	case c.all && (len(c.devices) > 0 || c.class != ""):
		return command.Usagef("--all plans every device; use it without --device and --class")
	}
	return nil
}

// preflight plans for devices in place of a claim.
func (c *choosing) preflight(cmd *cobra.Command, opts *options, checks *auditing) error {
	n, err := opts.lookChecked(cmd.Context(), checks)
	if err != nil {
		return err
	}
	return errors.Join(c.plan(cmd, opts, n), n.Close())
}

func (c *choosing) plan(cmd *cobra.Command, opts *options, n *node.Node) error {
	class, err := c.readClass(cmd)
	if err != nil {
		return err
	}
	snap, err := n.Parts.Inventory.Snapshot(cmd.Context())
	if err != nil {
		return err
	}
	known, err := n.Preparer.PlanNode(cmd.Context(), snap)
	if err != nil {
		return err
	}
	name := cmp.Or(opts.node.Name, nodeName()) // plan compares the pools with --node-name
	all := plugin.Candidates(name, &known)
	if len(c.devices) > 0 {
		var named []plugin.Candidate
		for _, wanted := range c.devices {
			found, err := plugin.FindCandidate(name, wanted, all, snap)
			if err != nil {
				return command.Usagef("--device: %w", err)
			}
			named = append(named, found)
		}
		return c.planNamed(cmd, opts, n, named, class)
	}
	none := noDevice(class, len(all))
	if class != nil {
		if all, err = plugin.SelectCandidates(cmd.Context(), class, all); err != nil {
			return err
		}
	}
	plans, err := planEach(&known, all, class)
	if err != nil {
		return err
	}
	if err := warn(cmd, n); err != nil {
		return err
	}
	return errors.Join(printPlans(cmd.OutOrStdout(), opts.output, plans, none), countRefused(plans))
}

// noDevice returns the reason why there is no device to plan for. published is how many devices the node publishes.
func noDevice(class *resourceapi.DeviceClass, published int) string {
	const see = "See `kata-vfio-audit devices`, and "
	switch {
	case class == nil || published == 0:
		return "No device: the node publishes none. " + see + "the node config's rules."
	case published == 1:
		return fmt.Sprintf("No device: DeviceClass %s does not select the device that the node publishes. "+see+"the class's selectors.", class.Name)
	}
	return fmt.Sprintf("No device: DeviceClass %s selects none of the %d devices that the node publishes. "+see+"the class's selectors.", class.Name, published)
}

// planNamed prints the plan of one claim for the devices.
func (c *choosing) planNamed(cmd *cobra.Command, opts *options, n *node.Node, named []plugin.Candidate, class *resourceapi.DeviceClass) error {
	if class != nil {
		selected, err := plugin.SelectCandidates(cmd.Context(), class, named)
		if err != nil {
			return err
		}
		if len(selected) < len(named) {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: DeviceClass %s selects %d of the %s: the scheduler would not allocate the others by it\n", class.Name, len(selected), output.Count(len(named), "device"))
		}
	}
	req, err := plugin.PreflightRequest(named, class)
	if err != nil {
		return command.Usagef("%w", err)
	}
	pl, err := planOne(cmd, n, req)
	if err != nil {
		return err
	}
	return printPlan(cmd.OutOrStdout(), opts.output, pl)
}

// devicePlan is the result of plan for a device that is planned by itself. The JSON form is stable for machines.
type devicePlan struct {
	Device string `json:"device"`
	Pool   string `json:"pool"`
	// Plan is nil if there are Refusals.
	Plan     *plan.Plan     `json:"plan,omitempty"`
	Refusals []rule.Verdict `json:"refusals,omitempty"`
}

// planEach plans a claim of its own for each device. The node is read once, because it may have a thousand functions.
func planEach(known *plan.Node, all []plugin.Candidate, class *resourceapi.DeviceClass) ([]devicePlan, error) {
	plans := []devicePlan{}
	for _, c := range all {
		req, err := plugin.PreflightRequest([]plugin.Candidate{c}, class)
		if err != nil {
			return nil, command.Usagef("%w", err)
		}
		one, err := planDevice(known, req, c)
		if err != nil {
			return nil, err
		}
		plans = append(plans, one)
	}
	return plans, nil
}

func planDevice(known *plan.Node, req *claim.Request, c plugin.Candidate) (devicePlan, error) {
	one := devicePlan{Device: c.Device.Name, Pool: c.Pool}
	pl, err := prepare.PlanIn(*known, req)
	var refused *rule.RefusedError
	switch {
	case errors.As(err, &refused):
		one.Refusals = refused.Verdicts
	case err != nil:
		return one, err
	}
	one.Plan = pl
	return one, nil
}

// printPlans prints a line for each device, and below the table the reasons of refusals. Without devices it prints the text none.
func printPlans(w io.Writer, format string, plans []devicePlan, none string) error {
	if done, err := document(w, format, map[string]any{"devices": plans}); done {
		return err
	}
	if len(plans) == 0 {
		_, err := fmt.Fprintln(w, none)
		return err
	}
	if _, err := fmt.Fprintln(w, strings.Join(planLines(plans, output.TableWidth(w)), "\n")); err != nil {
		return err
	}
	var refusals []string
	for i := range plans {
		for _, r := range plans[i].Refusals {
			refusals = append(refusals, fmt.Sprintf("%s: %s\n    fix: %s", plans[i].Device, r.Text, r.Fix))
		}
	}
	for _, text := range output.Fold(refusals) {
		fmt.Fprintf(w, "\n%s\n", wrapRefusal(text, output.TableWidth(w)))
	}
	return nil
}

// wrapRefusal breaks the lines of a refusal and its fix at the width of a terminal; 0 means no limit.
func wrapRefusal(text string, width int) string {
	if width == 0 {
		return text
	}
	var all []string
	for line := range strings.Lines(text) {
		bare := strings.TrimLeft(strings.TrimRight(line, "\n"), " ")
		first, rest := strings.Repeat(" ", len(strings.TrimRight(line, "\n"))-len(bare)), "    "
		if first != "" {
			rest = first + strings.Repeat(" ", len("fix: "))
		}
		for i, part := range output.Wrap(bare, width-len(rest)) {
			if i > 0 {
				first = rest
			}
			all = append(all, first+part)
		}
	}
	return strings.Join(all, "\n")
}

// planLines returns the table of plans, within the width of a terminal; 0 means no limit.
func planLines(plans []devicePlan, limit int) []string {
	rows := [][]string{{"DEVICE", "CLAIM", "STEPS", "BACKEND", "RESET", "TAKES"}}
	for i := range plans {
		p := &plans[i]
		if p.Plan == nil {
			rows = append(rows, []string{p.Device, "refused", "-", "-", "-", "-"})
			continue
		}
		answer := "accepted"
		if p.Plan.IsWarm() {
			answer = "accepted, warm"
		}
		resets := func(d *plan.Device) string { return resetWords(d.Resets) }
		taken := func(d *plan.Device) string { return takes(p.Plan, d) }
		rows = append(rows, []string{
			p.Device, answer, fmt.Sprint(len(p.Plan.Steps)), each(p.Plan, ", ", way), each(p.Plan, ", ", resets), each(p.Plan, "; ", taken),
		})
	}
	return output.Columns(rows, limit, "STEPS", "BACKEND", "RESET")
}

// each returns the words for the devices of a plan: several for a pair or a partition. It says each word once.
func each(pl *plan.Plan, between string, word func(*plan.Device) string) string {
	var words []string
	for i := range pl.Devices {
		if w := word(&pl.Devices[i]); !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	return strings.Join(words, between)
}

// someRefusedError counts the refused devices. They are printed already.
type someRefusedError struct{ refused, of int }

func (e *someRefusedError) Error() string {
	return fmt.Sprintf("%d of %s refused", e.refused, output.Count(e.of, "device"))
}

func countRefused(plans []devicePlan) error {
	refused := 0
	for i := range plans {
		if plans[i].Plan == nil {
			refused++
		}
	}
	if refused == 0 {
		return nil
	}
	return &someRefusedError{refused, len(plans)}
}

// classLimit bounds the request for a DeviceClass.
const classLimit = 30 * time.Second

// readClass returns the DeviceClass that --class names, nil without the flag.
func (c *choosing) readClass(cmd *cobra.Command) (*resourceapi.DeviceClass, error) {
	switch {
	case c.class == "":
		return nil, nil
	case c.file != "":
		return classInFile(c.file, c.class, cmd.InOrStdin())
	}
	config, err := c.kube.Config("kata-vfio-plugin")
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), classLimit)
	defer cancel()
	class, err := client.ResourceV1().DeviceClasses().Get(ctx, c.class, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, command.Usagef("--class: the cluster has no DeviceClass %q: `kubectl get deviceclasses` lists them", c.class)
	}
	if err != nil {
		return nil, fmt.Errorf("read DeviceClass %s: %w", c.class, err)
	}
	return class, nil
}

// classInFile returns the DeviceClass with the name from a file of objects, such as rendered manifests.
func classInFile(file, name string, stdin io.Reader) (*resourceapi.DeviceClass, error) {
	data, err := readInput(file, stdin)
	if err != nil {
		return nil, command.Usagef("read the DeviceClasses: %w", err)
	}
	// The size is how much of the text the decoder reads to tell JSON from YAML.
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(data)), 4096)
	for {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return nil, command.Usagef("file %s has no DeviceClass %q of resource.k8s.io/v1", file, name)
		} else if err != nil {
			return nil, command.Usagef("file %s: %w", file, err)
		}
		class, err := classIn(raw, name)
		if err != nil {
			return nil, command.Usagef("file %s: look for DeviceClass %s: %w", file, name, err)
		}
		if class != nil {
			return class, nil
		}
	}
}

// classIn returns the DeviceClass with the name from an object, or from the items of a list. It returns nil if the object is
// another one.
func classIn(raw json.RawMessage, name string) (*resourceapi.DeviceClass, error) {
	var object struct {
		metav1.PartialObjectMetadata
		Items []json.RawMessage `json:"items"`
	}
	// A document with only comments, as templates leave them, is empty or null.
	if text := bytes.TrimSpace(raw); len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, errors.New("a document is not a Kubernetes object; want manifests with apiVersion and kind")
	}
	for _, item := range object.Items {
		if class, err := classIn(item, name); class != nil || err != nil {
			return class, err
		}
	}
	if object.Kind != "DeviceClass" || object.APIVersion != "resource.k8s.io/v1" || object.Name != name {
		return nil, nil
	}
	var class resourceapi.DeviceClass
	return &class, json.Unmarshal(raw, &class)
}

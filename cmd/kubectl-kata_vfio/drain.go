package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// drainManager is the value of the label app.kubernetes.io/managed-by of the rules of drains.
const drainManager = "kubectl-kata-vfio-drain"

// drainValue is the value of the taint. The plugin's own drains have other values.
const drainValue = "ByRule"

// draining has the flags of drain.
type draining struct {
	reason           string
	evict, wait, dry bool
	limit, pause     time.Duration
}

func drainCommand(s *session) *cobra.Command {
	formats := command.Formats{"text", "json", "yaml"}
	var format string
	d := draining{pause: poll}
	cmd := &cobra.Command{
		Use:   "drain NODE | NODE/DEVICE",
		Short: "Keep new claims from a node's devices, or from one device",
		Long: "drain creates DeviceTaintRules, by which the scheduler gives the devices to no new claim. Pods that have them run on; with --evict the\n" +
			"cluster deletes those pods. A device is named by its name or its PCI address; a GPU's pairs are drained with it. undrain ends it.\n" +
			"It needs Kubernetes 1.37, and changes nothing on the node: `kata-vfio-plugin drain` there also makes the node refuse claims that\n" +
			"tolerate the taint.\n" +
			"\n" +
			exitCodeHelp("drain"),
		Example: "  kubectl kata-vfio drain worker-1 --reason 'new firmware' --wait\n  kubectl kata-vfio drain worker-1/gpu-0000-3b-00-0\n  kubectl kata-vfio drain worker-1/0000:3b:00.0 --dry-run",
		Args:    command.ExactArgs(1, "one NODE or NODE/DEVICE"), ValidArgsFunction: s.completeNode,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := s.drain(cmd, args[0], &d)
			if r == nil {
				return err
			}
			out := cmd.OutOrStdout()
			done, printed := output.Document(out, format, "drain", r)
			if !done {
				printed = writeLines(out, r.lines())
			}
			return errors.Join(printed, err)
		},
	}
	formats.Flag(cmd, &format)
	f := cmd.Flags()
	f.StringVar(&d.reason, "reason", "", "why, for those who look at the rules")
	f.BoolVar(&d.evict, "evict", false, "also delete the pods that have the devices (taint effect NoExecute)")
	f.BoolVar(&d.wait, "wait", false, "wait until no claim has the devices")
	f.DurationVar(&d.limit, "timeout", 10*time.Minute, "how long --wait waits, and how long drain waits for a pool that the plugin is writing")
	f.BoolVar(&d.dry, "dry-run", false, "show which devices would be drained, and which claims have them")
	return cmd
}

// drainReport is the result of a drain. Its JSON form is stable: names are added, never changed.
type drainReport struct {
	Target string `json:"target"`
	DryRun bool   `json:"dryRun,omitempty"`
	Effect string `json:"effect"`
	// Rules are the names of the DeviceTaintRules.
	Rules   []string `json:"rules"`
	Devices []string `json:"devices"`
	// Claims are the claims that still have devices.
	Claims []string `json:"claims"`
}

// drain creates the rules, and waits.
func (s *session) drain(cmd *cobra.Command, target string, d *draining) (*drainReport, error) {
	client, _, err := s.connect()
	if err != nil {
		return nil, err
	}
	found, err := s.toDrain(cmd, client, target, d)
	if err != nil {
		return nil, err
	}
	// The name goes into the rules' annotations, by which undrain finds them.
	target = canonical(target, found.devices)
	r := &drainReport{Target: target, DryRun: d.dry, Effect: string(d.effect()), Rules: []string{}}
	rules := d.rules(target, found)
	for i := range rules {
		if !d.dry {
			// The rules are not created in one transaction. After an error, those that were created stay, and a repetition
			// finds them, because their names derive from the target.
			if err := create(cmd.Context(), client, &rules[i]); err != nil {
				return nil, d.halfway(r, err)
			}
		}
		r.Rules = append(r.Rules, rules[i].Name)
	}
	if len(found.writing) > 0 {
		if found, err = s.drained(cmd.Context(), cmd.ErrOrStderr(), client, target, d); err != nil {
			return nil, d.unknown(r, err)
		}
	}
	r.see(found.devices)
	if !d.wait || d.dry {
		return r, nil
	}
	return r, s.awaitDrained(cmd, client, r, d)
}

// halfway adds to the error of a drain what it has created before.
func (d *draining) halfway(r *drainReport, err error) error {
	if len(r.Rules) == 0 {
		return err
	}
	return fmt.Errorf("%w; %s before it: `kubectl kata-vfio undrain %s` takes them back, and another drain continues",
		err, output.Count(len(r.Rules), "rule was created", "rules were created"), r.Target)
}

func (d *draining) effect() resourceapi.DeviceTaintEffect {
	if d.evict {
		return resourceapi.DeviceTaintEffectNoExecute
	}
	return resourceapi.DeviceTaintEffectNoSchedule
}

// rules returns the rules: one for each pool of a node, or for each device.
func (d *draining) rules(target string, found *drainTarget) []resourceapi.DeviceTaintRule {
	var rules []resourceapi.DeviceTaintRule
	for _, selector := range found.selectors(!strings.Contains(target, "/")) {
		name := drainName(target, selector, d.effect())
		// While a pool has slices of two generations, a device is listed twice.
		if slices.ContainsFunc(rules, func(r resourceapi.DeviceTaintRule) bool { return r.Name == name }) {
			continue
		}
		rules = append(rules, resourceapi.DeviceTaintRule{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: drainManager},
				Annotations: map[string]string{fleet.AnnotationDrainOf: target, fleet.AnnotationReason: d.reason},
			},
			Spec: resourceapi.DeviceTaintRuleSpec{
				DeviceSelector: selector, Taint: resourceapi.DeviceTaint{Key: publish.TaintDrain, Value: drainValue, Effect: d.effect()},
			},
		})
	}
	return rules
}

// drainName returns the name of a drain's rule. The same drain always has the same name, so that it can be repeated. Two drains
// have different names, so that the end of one does not end the other.
func drainName(target string, s *resourceapi.DeviceTaintSelector, effect resourceapi.DeviceTaintEffect) string {
	text := target + " " + string(effect) + " " + *s.Pool
	if s.Device != nil {
		text += " " + *s.Device
	}
	sum := sha256.Sum256([]byte(text))
	return "kata-vfio-drain-" + hex.EncodeToString(sum[:8])
}

// create creates a rule, unless it is there. Another rule of its name is an error: the devices would not be drained.
func create(ctx context.Context, client changer, r *resourceapi.DeviceTaintRule) error {
	switch err := client.Create(ctx, "", r.DeepCopy(), metav1.CreateOptions{FieldManager: drainManager}); {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		return isThere(ctx, client, r)
	// A Create that answers "not found" means that the API server does not serve the resource.
	case apierrors.IsNotFound(err):
		return fmt.Errorf("create DeviceTaintRule %s: the API server has none of resource.k8s.io/v1 (Kubernetes 1.37); run `kata-vfio-plugin drain` on the node instead: %w", r.Name, err)
	case apierrors.IsForbidden(err):
		return &rightsError{err}
	default:
		return fmt.Errorf("create DeviceTaintRule %s: %w", r.Name, err)
	}
}

// isThere returns an error unless the existing rule with the name of r has the same effect as r.
func isThere(ctx context.Context, client lister, r *resourceapi.DeviceTaintRule) error {
	drains, err := listDrains(ctx, client)
	if err != nil {
		return err
	}
	for i := range drains {
		// A rule of the name without the drain's label is not in the list. It fails below, like a rule with another selector.
		have := &drains[i].Spec
		if drains[i].Name == r.Name && equality.Semantic.DeepEqual(have.DeviceSelector, r.Spec.DeviceSelector) &&
			have.Taint.Key == r.Spec.Taint.Key && have.Taint.Effect == r.Spec.Taint.Effect {
			return nil
		}
	}
	return fmt.Errorf("DeviceTaintRule %s exists and is not the drain's: look at it (`kubectl get devicetaintrule %s -o yaml`), delete it, and drain again", r.Name, r.Name)
}

// see notes the devices and the claims that have them.
func (r *drainReport) see(devices []fleet.Device) {
	r.Devices, r.Claims = []string{}, []string{}
	for i := range devices {
		d := &devices[i]
		r.Devices = append(r.Devices, d.Node+"/"+d.Name)
		if d.Claim != "" && !slices.Contains(r.Claims, d.Claim) {
			r.Claims = append(r.Claims, d.Claim)
		}
	}
}

// awaitDrained waits until no claim has the devices.
func (s *session) awaitDrained(cmd *cobra.Command, client lister, r *drainReport, d *draining) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), d.limit)
	defer cancel()
	said := ""
	for len(r.Claims) > 0 {
		said = progress(cmd.ErrOrStderr(), said, strings.Join(r.Claims, ", "))
		select {
		case <-ctx.Done():
			return d.over(cmd, r)
		case <-time.After(d.pause):
		}
		found, err := s.drained(ctx, cmd.ErrOrStderr(), client, r.Target, d)
		// The list was cut off by the limit, so its error says nothing of the cluster.
		if ctx.Err() != nil {
			return d.over(cmd, r)
		}
		if err != nil {
			return err
		}
		r.see(found.devices)
	}
	return nil
}

// over says why a wait has ended: a signal, or its limit.
func (d *draining) over(cmd *cobra.Command, r *drainReport) error {
	if cmd.Context().Err() != nil {
		return context.Cause(cmd.Context())
	}
	return &verdictError{fmt.Sprintf("after %s, %s of %s: the rules stay; delete the pods, or use --evict", d.limit, has(len(r.Claims)), r.Target)}
}

// has is "1 claim has devices", "2 claims have devices".
func has(n int) string { return output.Count(n, "claim has devices", "claims have devices") }

// lines are a report for people.
func (r *drainReport) lines() []string {
	what := map[bool]string{true: "would be", false: "is"}[r.DryRun]
	lines := []string{fmt.Sprintf("%s %s drained: no new claim gets its %s", r.Target, what, output.Count(len(r.Devices), "device"))}
	if len(r.Claims) == 0 {
		return append(lines, "no claim has one")
	}
	after := "they keep them until their pods end"
	if r.Effect == string(resourceapi.DeviceTaintEffectNoExecute) {
		after = "the cluster deletes their pods"
	}
	for _, c := range r.Claims {
		lines = append(lines, "  "+output.Visible(c)+" has one")
	}
	return append(lines, after)
}

func undrainCommand(s *session) *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use:   "undrain NODE | NODE/DEVICE",
		Short: "End a drain that drain began",
		Long: "undrain deletes the DeviceTaintRules of the drain of a node, or of a device. Those of the node's single devices stay when a node's ends.\n" +
			"Drains by kata-vfio-plugin on the node are not touched, and a quarantine can't be ended from here.\n" +
			"\n" +
			exitCodeHelp("undrain"),
		Example: "  kubectl kata-vfio undrain worker-1\n  kubectl kata-vfio undrain worker-1/gpu-0000-3b-00-0",
		Args:    command.ExactArgs(1, "one NODE or NODE/DEVICE"), ValidArgsFunction: s.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			lines, err := s.undrain(cmd.Context(), args[0], dry)
			if len(lines) == 0 {
				return err
			}
			return errors.Join(writeLines(cmd.OutOrStdout(), lines), err)
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show which rules would be deleted")
	return cmd
}

// undrain deletes the rules of a target.
func (s *session) undrain(ctx context.Context, target string, dry bool) (lines []string, err error) {
	client, _, err := s.connect()
	if err != nil {
		return nil, err
	}
	drains, err := listDrains(ctx, client)
	if err != nil {
		return nil, err
	}
	named := target
	if found, err := s.drainTarget(ctx, client, target); err == nil { // a device that is gone has to be named as it was drained
		named = canonical(target, found.devices)
	}
	for i := range drains {
		r := &drains[i]
		if of := r.Annotations[fleet.AnnotationDrainOf]; of != target && of != named {
			continue
		}
		what := "deleted DeviceTaintRule "
		if dry {
			what = "would delete DeviceTaintRule "
		} else if err := client.Delete(ctx, "", r.Name, &resourceapi.DeviceTaintRule{}, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			if apierrors.IsForbidden(err) {
				return lines, &rightsError{err}
			}
			return lines, fmt.Errorf("delete DeviceTaintRule %s: %w", r.Name, err)
		}
		lines = append(lines, what+r.Name)
	}
	if len(lines) == 0 {
		return nil, &fleet.NotFoundError{Name: fmt.Sprintf("drain of %s; `kubectl kata-vfio status` lists the drains", target)}
	}
	return lines, nil
}

// listDrains returns the rules of drains.
func listDrains(ctx context.Context, client lister) ([]resourceapi.DeviceTaintRule, error) {
	var rules resourceapi.DeviceTaintRuleList
	err := client.List(ctx, "", &rules, metav1.ListOptions{LabelSelector: v1alpha1.LabelManagedBy + "=" + drainManager})
	switch {
	case apierrors.IsForbidden(err):
		return nil, &rightsError{err}
	case err != nil:
		return nil, fmt.Errorf("list DeviceTaintRules: %w", err)
	}
	return rules.Items, nil
}

// taintRules returns all DeviceTaintRules for a status. An API server without them has none, and if they may not be listed, a warning says so.
func taintRules(cmd *cobra.Command, client lister) []resourceapi.DeviceTaintRule {
	var rules resourceapi.DeviceTaintRuleList
	err := client.List(cmd.Context(), "", &rules, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: drains by rules are not shown: %v\n", err)
	}
	return rules.Items
}

// uniqueDrains returns the drains among rules, each once.
func uniqueDrains(rules []resourceapi.DeviceTaintRule) []fleet.Drain {
	all := []fleet.Drain{}
	for i := range rules {
		r := &rules[i]
		d := fleet.Drain{Target: r.Annotations[fleet.AnnotationDrainOf], Reason: r.Annotations[fleet.AnnotationReason], Effect: string(r.Spec.Taint.Effect)}
		if r.Labels[v1alpha1.LabelManagedBy] != drainManager ||
			slices.ContainsFunc(all, func(other fleet.Drain) bool { return other.Target == d.Target && other.Effect == d.Effect }) {
			continue
		}
		if !r.CreationTimestamp.IsZero() {
			d.Since = r.CreationTimestamp.UTC().Format(time.RFC3339)
		}
		all = append(all, d)
	}
	return all
}

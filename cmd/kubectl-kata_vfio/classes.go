package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// offers are the DeviceClasses of a namespace. Their JSON form is stable: names are added, never changed.
type offers struct {
	Namespace string `json:"namespace"`
	// Updated is when the controller counted.
	Updated string               `json:"updated"`
	Classes []cluster.ClassOffer `json:"classes"`
}

// systemNamespace is where the chart is installed unless somebody says otherwise.
const systemNamespace = "kata-vfio-system"

func classesCommand(s *session) *cobra.Command {
	formats := command.Formats{"table", "json", "yaml"}
	var format, system string
	cmd := &cobra.Command{
		Use:   "classes",
		Short: "Show the DeviceClasses that your namespace may name, and how many of their devices are free",
		Long: "classes shows the DeviceClasses that are granted to your namespace, what each gives, and how many devices new claims can get at the\n" +
			"same time: of eight or fewer the count, of more a multiple of eight (\"16+\"). It reads a view that kata-vfio-controller renews each\n" +
			"minute, if the chart has it on (values: kubectl.classes.enabled). It needs the right to get the namespace, which the role `view`\n" +
			"grants in it. Devices in a domain that your namespace has to itself are yours alone, and are not counted.\n" +
			"\n" +
			exitCodeHelp("classes"),
		Example: "  kubectl kata-vfio classes\n  kubectl kata-vfio classes -n team-a -o json | jq '.classes[] | select(.free > 0) | .name'",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := s.offers(cmd.Context(), system)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if late := s.late(o.Updated); late != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+late)
			}
			if done, err := output.Document(out, format, "classes", o); done {
				return err
			}
			return writeLines(out, offerLines(o, output.TableWidth(out), output.Colorful(out)))
		},
	}
	formats.Flag(cmd, &format)
	cmd.Flags().StringVar(&system, "system-namespace", systemNamespace, "`namespace` of the chart")
	return cmd
}

// noViewError says that there is no view of DeviceClasses.
type noViewError struct{ in string }

func (e *noViewError) Error() string {
	return fmt.Sprintf("the cluster publishes no view of DeviceClasses: there is no ConfigMap %s/%s; the cluster's admin switches it on (values: kubectl.classes.enabled), "+
		"and --system-namespace says where the chart is. Until then ask the admin which DeviceClasses are granted to your namespace", e.in, cluster.ClassesConfigMap)
}

// classView reads the view.
func classView(ctx context.Context, client lister, system string) (*cluster.ClassView, error) {
	var c corev1.ConfigMap
	switch err := client.Get(ctx, system, cluster.ClassesConfigMap, &c); {
	case apierrors.IsNotFound(err):
		return nil, &noViewError{system}
	case apierrors.IsForbidden(err):
		// The chart grants the right with the view, so this is also the answer while the view is off.
		return nil, &forbiddenError{kind: fleet.ClassViews, err: err}
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", system, cluster.ClassesConfigMap, err)
	}
	if c.Data[cluster.ClassesKey] == "" {
		return nil, fmt.Errorf("ConfigMap %s/%s is empty: kata-vfio-controller has not written it yet, or does not run", system, cluster.ClassesConfigMap)
	}
	v, err := cluster.DecodeClassView(c.Data[cluster.ClassesKey])
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", system, cluster.ClassesConfigMap, err)
	}
	return v, nil
}

// offers reads which classes the namespace has.
func (s *session) offers(ctx context.Context, system string) (*offers, error) {
	client, namespace, err := s.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	v, err := classView(ctx, client, system)
	if err != nil {
		return nil, err
	}
	// Grants in the view are hashes with the namespace's UID, so that nobody learns from it which namespaces exist.
	uid, err := namespaceUID(ctx, client, namespace)
	if err != nil {
		return nil, err
	}
	o := &offers{Namespace: namespace, Updated: v.Updated, Classes: []cluster.ClassOffer{}}
	for i := range v.Classes {
		if v.Granted(&v.Classes[i], uid) {
			o.Classes = append(o.Classes, v.Classes[i])
		}
	}
	return o, nil
}

// namespaceUID returns the namespace's UID, by which the view knows it.
func namespaceUID(ctx context.Context, client lister, name string) (string, error) {
	var n corev1.Namespace
	switch err := client.Get(ctx, "", name, &n); {
	case apierrors.IsForbidden(err):
		return "", &forbiddenError{kind: fleet.Namespaces, err: err}
	case apierrors.IsNotFound(err):
		return "", &fleet.NotFoundError{Name: "namespace " + name}
	case err != nil:
		return "", fmt.Errorf("read namespace %s: %w", name, err)
	}
	return string(n.UID), nil
}

// outdated is how old a view may be while the controller runs.
const outdated = 15 * time.Minute

// late says that the view is old, or returns "".
func (s *session) late(updated string) string {
	at, err := time.Parse(time.RFC3339, updated)
	if err != nil {
		return "the view does not say when it was made"
	}
	if age := s.now().Sub(at); age > outdated {
		return fmt.Sprintf("the counts are of %s ago: kata-vfio-controller does not run, or may not write them", age.Round(time.Minute))
	}
	return ""
}

// offerLines are the classes for people.
func offerLines(o *offers, width int, color bool) []string {
	if len(o.Classes) == 0 {
		return output.Wrap(output.Visible(fmt.Sprintf("no DeviceClass is granted to namespace %s: have the cluster's admin add it to a class's annotation %s", o.Namespace, v1alpha1.AnnotationNamespaces)), width)
	}
	return offersTable(o).Lines(width, color)
}

// offersTable is a line for each class.
func offersTable(o *offers) *output.Table {
	p := &picture{titles: []string{"CLASS", "FREE", "GIVES", "SETS"}, least: []string{"SETS"}}
	for i := range o.Classes {
		c := &o.Classes[i]
		line := cells(c.Name, freeWords(c), givesWords(c), orDash(setsWords(c)))
		if c.Free == 0 {
			line[1].Color = output.Yellow
		}
		p.rows = append(p.rows, row{cells: line})
	}
	return p.table()
}

func freeWords(c *cluster.ClassOffer) string {
	switch {
	case c.SelectorFails:
		return "0: its selector fails"
	case c.AtLeast:
		return fmt.Sprintf("%d+", c.Free)
	}
	return fmt.Sprint(c.Free)
}

// givesWords is "gpu: NVIDIA H100, NVIDIA L40S; example.com/gpu".
func givesWords(c *cluster.ClassOffer) string {
	if len(c.Kinds) == 0 {
		return "nothing: no device matches"
	}
	text := strings.ReplaceAll(strings.Join(c.Kinds, ", "), "gpu-partition", "GPUs joined by NVLink")
	if len(c.Models) > 0 {
		text += ": " + strings.Join(c.Models, ", ")
	}
	if c.ExtendedResource != "" {
		text += "; also as " + c.ExtendedResource
	}
	return text
}

// setsWords is "attachment, vlan; a claim may not set vlan": the parameters that a claim gets without asking.
func setsWords(c *cluster.ClassOffer) string {
	text := strings.Join(c.Sets, ", ")
	if len(c.Weakens) > 0 {
		text += "; a claim may not set " + strings.Join(c.Weakens, ", ")
	}
	return text
}

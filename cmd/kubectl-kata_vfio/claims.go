package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

func claimsCommand(s *session) *cobra.Command {
	v := s.view(fleet.Claims, tableFormats(), fleet.Pods)
	v.want.also = append(v.want.also, fleet.Classes)
	var all bool
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "List claims for devices: pod, node, VM, conditions, network",
		Long: "claims lists the claims that have or wait for devices of kata-vfio, those that need attention first. STATE is refused\n" +
			"(with the reason), pending, allocated, deleting, weakened (its DeviceClass waives isolation or reset) or ready.\n" +
			"Conditions that are not true have a ! (false) or a ? (unknown) and their reason. VM is the pod's RuntimeClass and the\n" +
			"pod's phase; the sandbox's ID is not in the API: use `kata-vfio-audit who --claim` on the node. A waiting claim is listed\n" +
			"if its DeviceClass is for kata-vfio; if you may not list DeviceClasses, only if the class's name ends in .kata-vfio.dev.\n" +
			"\n" +
			exitCodeHelp("claims"),
		Example: "  kubectl kata-vfio claims -A --watch\n  kubectl kata-vfio claims -n team-a -o wide",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(*cobra.Command, []string) error {
			if _, err := labels.Parse(v.want.labels); err != nil {
				return command.Usagef("--selector %q: %w", v.want.labels, err)
			}
			return v.printing.check()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, namespace, err := s.connect()
			if err != nil {
				return err
			}
			// An empty namespace lists all (as in client-go).
			if !all {
				v.want.namespace = namespace
			}
			v.picture = func(state *fleet.State) (*picture, error) {
				p := claimsPicture(state.ClaimRows(), state.Now, all, v.printing.format == "wide")
				if !all {
					p.empty += " in namespace " + namespace + " (-A: in all)"
				}
				return p, nil
			}
			return v.show(cmd.Context(), cmd, client)
		},
	}
	v.printing.flags(cmd)
	cmd.Flags().StringVarP(&v.want.labels, "selector", "l", "", "claims with these `labels` only, such as app=train")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "claims of all namespaces")
	return cmd
}

func claimsPicture(claims []fleet.Claim, now time.Time, namespaces, wide bool) *picture {
	p := &picture{
		what: "claims", empty: "no claim for a device of kata-vfio",
		document: struct {
			Claims []fleet.Claim `json:"claims"`
		}{claims},
		titles: []string{"CLAIM", "STATE", "POD", "NODE", "DEVICES", "VM", "CONDITIONS", "NETWORK", ageTitle},
	}
	if namespaces {
		p.titles = append([]string{"NAMESPACE"}, p.titles...)
	}
	if !wide {
		p.least = []string{"NETWORK", "VM", "CONDITIONS", "AGE", "POD"}
	}
	if wide {
		p.titles = append(p.titles, "FUNCTIONS", "LEDGER")
	}
	for i := range claims {
		c := &claims[i]
		line := claimCells(c, now)
		if namespaces {
			line = append(cells(c.Namespace), line...)
		}
		if wide {
			line = append(line, cells(list(functions(c)), list(anchors(c)))...)
		}
		p.rows = append(p.rows, row{key: "claim " + c.Namespace + "/" + c.Name, name: "resourceclaim.resource.k8s.io/" + c.Name, cells: line, value: c})
	}
	return p
}

func claimCells(c *fleet.Claim, now time.Time) []output.Cell {
	names := make([]string, len(c.Devices))
	for i := range c.Devices {
		names[i] = c.Devices[i].Name
	}
	state := string(c.State)
	if c.Reason != "" {
		state += ": " + c.Reason
	}
	vm := orDash(c.VM)
	if c.PodPhase != "" {
		vm += "/" + c.PodPhase
	}
	line := cells(c.Name, state, list(c.Pods), orDash(c.Node), list(names), vm, list(c.Conditions()), list(c.Network()), age(now, c.Created))
	line[1].Color = stateColor(c.State)
	return line
}

func stateColor(s fleet.ClaimState) output.Color {
	switch s {
	case fleet.Refused:
		return output.Red
	case fleet.Ready:
		return output.Green
	case fleet.Pending, fleet.Allocated, fleet.Deleting, fleet.Weakened, fleet.Unjudged:
		return output.Yellow
	}
	return ""
}

// ageTitle is the title of the column that changes by itself.
const ageTitle = "AGE"

func age(now, since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(since))
}

func list(words []string) string { return orDash(strings.Join(words, ",")) }

func functions(c *fleet.Claim) []string {
	var all []string
	for i := range c.Devices {
		all = append(all, c.Devices[i].Functions...)
	}
	return all
}

// anchors names the checkpoints of nodes' ledgers in a claim's status by ledger and
// size: -o json has them whole, with their signatures.
func anchors(c *fleet.Claim) []string {
	var all []string
	for i := range c.Devices {
		text := c.Devices[i].Ledger
		if text == "" {
			continue
		}
		point, err := ledger.ParseCheckpoint(text)
		if err != nil {
			all = append(all, "damaged")
			continue
		}
		all = append(all, fmt.Sprintf("%s@%d", point.Origin, point.Size))
	}
	return all
}

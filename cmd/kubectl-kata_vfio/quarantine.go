package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func quarantineCommand(s *session) *cobra.Command {
	v := s.view(fleet.Slices, tableFormats(), fleet.TaintRules)
	cmd := &cobra.Command{
		Use:   "quarantine [NODE]",
		Short: "List the quarantined devices: why, and since when",
		Long: "quarantine lists the devices that no claim gets because their node could not prove them clean after a tenant. WHY is a code:\n" +
			"`kubectl kata-vfio explain CODE` says what to do. The evidence is on the node, and only its administrator can end a\n" +
			"quarantine there: `kata-vfio-plugin quarantine explain DEVICE`, then `kata-vfio-plugin quarantine clear DEVICE --reason TEXT`.\n" +
			"\n" +
			exitCodeHelp("quarantine"),
		Example: "  kubectl kata-vfio quarantine\n  kubectl kata-vfio quarantine worker-1 -o json | jq -r '.quarantined[].name'",
		Args:    command.MaxArgs(1, "one node"), ValidArgsFunction: s.completeNode,
		PreRunE: func(*cobra.Command, []string) error { return v.printing.check() },
		RunE:    s.drawNode(v, func(state *fleet.State) *picture { return quarantinePicture(state.Devices(), state.Now) }),
	}
	v.printing.flags(cmd)
	return cmd
}

// quarantinePicture shows those of the devices that are quarantined.
func quarantinePicture(devices []fleet.Device, now time.Time) *picture {
	// Not nil: a script expects "quarantined": [] of a good cluster, not null.
	all := []fleet.Device{}
	p := &picture{
		what: "quarantined devices", empty: "no device is quarantined",
		titles: []string{"NODE", "DEVICE", "ADDRESS", "MODEL", "WHY", ageTitle},
		least:  []string{"MODEL", "ADDRESS"},
	}
	for i := range devices {
		d := &devices[i]
		if d.Use != fleet.Quarantined {
			continue
		}
		all = append(all, *d)
		since := "-"
		if d.QuarantinedAt != nil {
			since = age(now, *d.QuarantinedAt)
		}
		line := cells(orDash(d.Node), d.Name, orDash(d.Address), orDash(d.Model), whyQuarantined(d), since)
		line[4].Color = output.Red
		p.rows = append(p.rows, row{key: "device " + d.Node + "/" + d.Pool + "/" + d.Name, name: "device/" + d.Node + "/" + d.Name, cells: line, value: d})
	}
	p.document = struct {
		Quarantined []fleet.Device `json:"quarantined"`
	}{all}
	return p
}

// whyQuarantined returns a code. A plugin of an older version publishes none.
func whyQuarantined(d *fleet.Device) string {
	if d.QuarantinedFor == "" {
		return string(rule.Quarantined)
	}
	return d.QuarantinedFor
}

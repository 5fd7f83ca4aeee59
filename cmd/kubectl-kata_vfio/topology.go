package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func topologyCommand(s *session) *cobra.Command {
	v := s.view(fleet.Slices, fleet.Claims, command.Formats{"tree", "json", "yaml"})
	cmd := &cobra.Command{
		Use:   "topology [NODE]",
		Short: "Draw where a node's devices are, and who has which",
		Long: "topology draws the devices that nodes publish: root, switch, PF, device, as far as the nodes publish that. Bridges and\n" +
			"functions that nobody can claim are not in the API: `kata-vfio-audit topology` on the node draws them too.\n" +
			"● is claimed, ○ free, ◌ withheld (it shares hardware with a claimed one), ✗ tainted or quarantined, ? not known.\n\n" + exitCodes,
		Example: "  kubectl kata-vfio topology worker-1",
		Args:    command.MaxArgs(1, "one node"), ValidArgsFunction: s.completeNode,
		PreRunE: func(*cobra.Command, []string) error { return v.check() },
		RunE: func(cmd *cobra.Command, args []string) error {
			client, _, err := s.connect()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				v.node = args[0]
			}
			v.picture = func(state *fleet.State) (*picture, error) {
				nodes := state.Nodes()
				if v.node != "" && !slices.Contains(nodes, v.node) && !v.watch {
					return nil, &fleet.NotFoundError{Name: "node " + v.node + " that publishes something"}
				}
				return topologyPicture(nodes, state.Devices()), nil
			}
			return v.show(cmd.Context(), cmd, client)
		},
	}
	v.flags(cmd)
	return cmd
}

// nodeDevices are the devices of one node.
type nodeDevices struct {
	Node    string         `json:"node"`
	Devices []fleet.Device `json:"devices"`
}

func topologyPicture(nodes []string, devices []fleet.Device) *picture {
	p := &picture{what: "topology", empty: "no node publishes a device"}
	all := []nodeDevices{}
	for _, name := range nodes {
		n := nodeDevices{name, []fleet.Device{}}
		for _, d := range devices {
			if d.Node == name {
				n.Devices = append(n.Devices, d)
			}
		}
		all = append(all, n)
		p.drawing = append(p.drawing, fleet.Tree(orDash(name), n.Devices))
		p.rows = append(p.rows, row{key: "node " + name, value: n})
	}
	p.document = struct {
		Nodes []nodeDevices `json:"nodes"`
	}{all}
	return p
}

package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

func devicesCommand(s *session) *cobra.Command {
	v := s.view(fleet.Slices, tableFormats(), fleet.Claims, fleet.TaintRules)
	var pool string
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the published devices: claim, isolation, health, audit",
		Long: "devices lists the devices that nodes publish, by node and address. STATE is free, claimed by a claim, tainted (no new\n" +
			"claim gets it; the running pod keeps it), quarantined (not proven clean after a tenant), sanitizing (it waits for\n" +
			"its sanitizing stage), kept for a tenant (it is in an exclusive domain where that tenant has a device; the ID is that of\n" +
			"the ConfigMap kata-vfio-tenants), or withheld: it shares hardware with a claimed device, as a PF does with its VFs,\n" +
			"or the other driver of a shared GPU has it.\n" +
			"STATE is unknown if you may not list claims.\n" +
			"AUDIT lists the checks that fail, the worst first: `kubectl kata-vfio audit` describes them.\n" +
			"\n" +
			exitCodeHelp("devices"),
		Example: "  kubectl kata-vfio devices --node worker-1 -o wide\n  kubectl kata-vfio devices --sort-by .model -o custom-columns=NODE:.node,NAME:.name,MODEL:.model\n  kubectl kata-vfio devices -o json | jq -r '.devices[] | select(.use==\"free\") | .name'",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(*cobra.Command, []string) error { return v.printing.check() },
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, _, err := s.connect()
			if err != nil {
				return err
			}
			v.picture = func(state *fleet.State) (*picture, error) {
				devices := inPool(state.Devices(), pool)
				if (v.want.node != "" || pool != "") && len(devices) == 0 && !v.printing.watch {
					return nil, &fleet.NotFoundError{Name: "device" + ofNode(v.want.node) + inThePool(pool)}
				}
				return devicesPicture(devices, v.printing.format == "wide"), nil
			}
			return v.show(cmd.Context(), cmd, client)
		},
	}
	v.printing.flags(cmd)
	cmd.Flags().StringVar(&v.want.node, "node", "", "devices of this node only")
	cmd.Flags().StringVar(&pool, "pool", "", "devices of this pool only")
	_ = cmd.RegisterFlagCompletionFunc("node", s.completeNodes)
	return cmd
}

func ofNode(node string) string {
	if node == "" {
		return ""
	}
	return " of node " + node
}

func inThePool(pool string) string {
	if pool == "" {
		return ""
	}
	return " in pool " + pool + "; `kubectl kata-vfio devices -o wide` lists the pools"
}

// inPool returns the devices of a pool; all for none.
func inPool(devices []fleet.Device, pool string) []fleet.Device {
	shown := []fleet.Device{}
	for _, d := range devices {
		if pool == "" || d.Pool == pool {
			shown = append(shown, d)
		}
	}
	return shown
}

func devicesPicture(devices []fleet.Device, wide bool) *picture {
	p := &picture{
		what: "devices", empty: "no node publishes a device",
		document: struct {
			Devices []fleet.Device `json:"devices"`
		}{devices},
		titles: []string{"NODE", "DEVICE", "ADDRESS", "KIND", "ROOT", "NUMA", "STATE", "ISOLATED", "HEALTH", "AUDIT"},
	}
	if !wide {
		p.least = []string{"ROOT", "NUMA", "KIND", "AUDIT", "ADDRESS", "HEALTH", "ISOLATED"} // a device's name has its kind and address
	}
	if wide {
		p.titles = append(p.titles, "SWITCH", "GROUP", "PF", "MODEL", "DRIVER", "RESET", "POOL")
	}
	for i := range devices {
		d := &devices[i]
		c := cells(orDash(d.Node), d.Name, orDash(d.Address), orDash(d.Kind), orDash(d.Root), number(d.NUMA), d.State(), d.Isolation(),
			orOK(d.Health), orDash(strings.Join(d.Failed, ",")))
		c[6].Color = d.Color()
		if wide {
			c = append(c, cells(orDash(d.Switch), number(d.Group), orDash(d.PF), orDash(d.Model), orDash(d.Driver), orDash(d.Reset), d.Pool)...)
		}
		p.rows = append(p.rows, row{key: "device " + d.Node + "/" + d.Pool + "/" + d.Name, name: "device/" + d.Node + "/" + d.Name, cells: c, value: d})
	}
	return p
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func orOK(words []string) string {
	if len(words) == 0 {
		return "ok"
	}
	return strings.Join(words, ",")
}

func number(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

func topologyCommand(s *session) *cobra.Command {
	v := s.view(fleet.Slices, command.Formats{"tree", "json", "yaml", "name", jsonPath + "="}, fleet.Claims, fleet.TaintRules)
	cmd := &cobra.Command{
		Use:   "topology [NODE]",
		Short: "Draw where a node's devices are, and which are claimed",
		Long: "topology draws the devices that nodes publish: root, switch, PF, device, as far as published. Bridges and functions that\n" +
			"nobody can claim are not in the API: `kata-vfio-audit topology` on the node draws them too.\n" +
			"● is claimed, ○ free, ◌ withheld (it shares hardware with a claimed one), ✗ tainted or quarantined, ? not known.\n" +
			"\n" +
			exitCodeHelp("topology"),
		Example: "  kubectl kata-vfio topology worker-1",
		Args:    command.MaxArgs(1, "one node"), ValidArgsFunction: s.completeNode,
		PreRunE: func(*cobra.Command, []string) error { return v.printing.check() },
		RunE:    s.drawNode(v, func(state *fleet.State) *picture { return topologyPicture(state.Nodes(), state.Devices()) }),
	}
	v.printing.flags(cmd)
	return cmd
}

// drawNode returns the RunE of a command that takes one node, or none for all. A node that publishes no device is an error, except with
// --watch: it may publish some later.
func (s *session) drawNode(v *view, draw func(*fleet.State) *picture) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		client, _, err := s.connect()
		if err != nil {
			return err
		}
		if len(args) > 0 {
			v.want.node = args[0]
		}
		v.picture = func(state *fleet.State) (*picture, error) {
			if v.want.node != "" && !slices.Contains(state.Nodes(), v.want.node) && !v.printing.watch {
				return nil, &fleet.NotFoundError{Name: "node " + v.want.node + " that publishes devices"}
			}
			return draw(state), nil
		}
		return v.show(cmd.Context(), cmd, client)
	}
}

// nodeDevices are the devices of one node.
type nodeDevices struct {
	Node    string         `json:"node"`
	Devices []fleet.Device `json:"devices"`
}

func topologyPicture(nodes []string, devices []fleet.Device) *picture {
	p := &picture{what: "topology", empty: "no node publishes a device"}
	// Not nil: a script expects "nodes": [] of an empty cluster, not null.
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
		p.rows = append(p.rows, row{key: "node " + name, name: "node/" + name, value: n})
	}
	p.document = struct {
		Nodes []nodeDevices `json:"nodes"`
	}{all}
	return p
}

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// auditing has the flags of the command audit.
type auditing struct {
	view     view
	files    []string
	nodeName string
	failOn   string
	reports  []*finding.Report
}

func auditCommand(s *session) *cobra.Command {
	a := &auditing{view: *s.view(fleet.Slices, tableFormats(), fleet.Claims)}
	cmd := &cobra.Command{
		Use:   "audit [NODE]",
		Short: "List the audit checks that fail on each node, and their effect",
		Long: "audit lists each node's failing checks, the worst first, with the devices and claims concerned. The plugin runs the\n" +
			"cheap checks and publishes failures in its devices' attributes and taints, so no failure here does not mean that\n" +
			"the node passes. --node-report adds nodes' full audits (`kata-vfio-audit node -o json`, or the log of `node --every`);\n" +
			"the latest report of a node counts, and AGE is its age. TAINT shows whether new claims are kept away.\n" +
			"`kata-vfio-audit explain ID` describes a check, and `kata-vfio-audit cluster` judges the cluster itself.\n" +
			"\n" +
			exitCodeHelp("audit"),
		Example: "  kubectl kata-vfio audit -o wide\n  kubectl kata-vfio audit worker-1 --node-report reports/",
		Args:    command.MaxArgs(1, "one node"), ValidArgsFunction: s.completeNode,
		PreRunE: func(*cobra.Command, []string) error { return a.check() },
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if a.reports, err = fleet.ReadReports(cmd.InOrStdin(), a.files, a.nodeName); err != nil {
				return err
			}
			client, _, err := s.connect()
			if err != nil {
				return err
			}
			if len(args) > 0 {
				a.view.want.node = args[0]
			}
			a.view.picture = a.roll
			return a.view.show(cmd.Context(), cmd, client)
		},
	}
	a.view.printing.flags(cmd)
	nodeReportFlags(cmd, &a.files, &a.nodeName)
	cmd.Flags().StringVar(&a.failOn, "fail-on", string(rule.High), "least severity whose failures make the exit code 3: "+finding.SeverityWords())
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(strings.Split(finding.SeverityWords(), ", "), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// nodeReportFlags adds the flags that name files of nodes' own audits, and the node of reports without a name.
func nodeReportFlags(cmd *cobra.Command, files *[]string, nodeName *string) {
	cmd.Flags().StringArrayVar(files, "node-report", nil, "report of a node's own audit, or a directory of reports; - for standard input; may be repeated")
	cmd.Flags().StringVar(nodeName, "node-name", "", "the node of the reports that have no node name, because the machine did not know it")
}

func (a *auditing) check() error {
	if !slices.Contains(finding.Severities(), rule.Severity(a.failOn)) {
		return command.Usagef("--fail-on %q: want one of %s", a.failOn, finding.SeverityWords())
	}
	return a.view.printing.check()
}

// roll returns the picture of the state, and an error if a check fails.
func (a *auditing) roll(state *fleet.State) (*picture, error) {
	all, err := rule.ReadCatalogue()
	if err != nil {
		return nil, err
	}
	nodes := state.Audit(a.reports, all.OfNodes())
	if a.view.want.node != "" {
		nodes = slices.DeleteFunc(nodes, func(n fleet.NodeAudit) bool { return n.Node != a.view.want.node })
		// With --watch, a node that is not there yet may come.
		if len(nodes) == 0 && !a.view.printing.watch {
			return nil, &fleet.NotFoundError{Name: "node " + a.view.want.node + " that publishes devices or has a report"}
		}
	}
	failing := 0
	for i := range nodes {
		for j := range nodes[i].Failed {
			if nodes[i].Failed[j].Severity.Compare(rule.Severity(a.failOn)) <= 0 {
				failing++
			}
		}
	}
	_, unseen := state.Missing[fleet.Claims]
	p := auditPicture(nodes, state.Now, unseen, a.view.printing.format == "wide")
	if failing > 0 {
		return p, &verdictError{fmt.Sprintf("checks of severity %s or worse that fail: %d", a.failOn, failing)}
	}
	return p, nil
}

// auditPicture shows the nodes' failures. unseen is set if the claims are unknown.
func auditPicture(nodes []fleet.NodeAudit, now time.Time, unseen, wide bool) *picture {
	p := &picture{
		what: "audit", empty: "no node publishes a device",
		document: struct {
			Nodes []fleet.NodeAudit `json:"nodes"`
		}{nodes},
		titles: []string{"NODE", "CHECK", "SEVERITY", "TAINT", "DEVICES", "CLAIMS", "BY", ageTitle, "WHAT"},
	}
	if wide {
		p.titles = append(p.titles, "FIX")
	} else {
		p.least = []string{"BY", ageTitle, "TAINT", "CLAIMS", "DEVICES"}
	}
	for i := range nodes {
		n := &nodes[i]
		if len(n.Failed) == 0 {
			of := "-"
			if n.Devices > 0 {
				of = fmt.Sprintf("0 of %d", n.Devices)
			}
			c := cells(orDash(n.Node), "-", "-", "-", of, "-", seenBy(n), reportAge(n, now), nothingFails(n))
			p.rows = append(p.rows, row{key: "node " + n.Node, name: "node/" + n.Node, cells: c, value: n})
		}
		for j := range n.Failed {
			p.rows = append(p.rows, auditRow(n, &n.Failed[j], now, unseen, wide))
		}
	}
	return p
}

// auditRow is a row of a check that fails on a node.
func auditRow(n *fleet.NodeAudit, f *fleet.FailedCheck, now time.Time, unseen, wide bool) row {
	taints, concerned := "no", "node"
	if f.Taints {
		taints = "yes"
	}
	if len(f.Devices) > 0 {
		concerned = fmt.Sprintf("%d of %d", len(f.Devices), n.Devices)
	}
	claims := strconv.Itoa(len(f.Claims))
	if unseen {
		claims = "?"
	}
	// A node's plugin may be newer than this program, and publish checks that its catalogue lacks.
	wrong := "this version does not know the check"
	switch {
	case len(f.Texts) > 0:
		wrong = f.Texts[0]
	case f.Title != "":
		wrong = "expected: " + f.Expected()
	}
	c := cells(orDash(n.Node), f.ID, orDash(string(f.Severity)), taints, concerned, claims, list(f.By), reportAge(n, now), wrong)
	c[2].Color = severityColor(f.Severity)
	if wide {
		c = append(c, cells(orDash(f.Fix))...)
	}
	return row{key: "failure of " + f.ID + " on node " + n.Node, name: "node/" + n.Node, cells: c, value: struct {
		Node string `json:"node"`
		*fleet.FailedCheck
	}{n.Node, f}}
}

func seenBy(n *fleet.NodeAudit) string {
	if n.Reported != nil {
		return "plugin,report"
	}
	return "plugin"
}

// reportAge is the age of the node's report.
func reportAge(n *fleet.NodeAudit, now time.Time) string {
	switch {
	case n.Reported == nil:
		return "-"
	case n.Reported.After(now):
		return "0s"
	}
	return age(now, *n.Reported)
}

// nothingFails describes the evidence for a node without failures.
func nothingFails(n *fleet.NodeAudit) string {
	switch {
	case n.Reported == nil && n.Devices == 0:
		return "unknown: it publishes no device, whose taints show failures"
	case n.Reported == nil:
		return "none of the plugin's checks fails"
	case n.Verdict == finding.Pass:
		return "nothing fails"
	}
	return "nothing fails, but some checks could not tell"
}

func severityColor(s rule.Severity) output.Color {
	switch s {
	case rule.Critical, rule.High:
		return output.Red
	case rule.Medium:
		return output.Yellow
	default:
		return ""
	}
}

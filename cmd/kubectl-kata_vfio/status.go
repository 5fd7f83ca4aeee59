package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// waiting has the flags of status that wait for a rollout.
type waiting struct {
	wait  bool
	limit time.Duration
}

func statusCommand(s *session) *cobra.Command {
	formats := command.Formats{"text", "json", "yaml"}
	var format string
	var w waiting
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of kata-vfio in the cluster on one screen",
		Long: "status shows each node with its plugin, its version and its devices, how far rollouts are, and what needs attention: nodes without a\n" +
			"plugin, a container runtime that does not call it (NRI), what differs from the node's blueprint, causes of alerts (claims and writes\n" +
			"that are stuck, disks that are nearly full), devices that are quarantined or tainted, and claims that are refused. What a plugin says\n" +
			"of its node is less than a minute old while something changes, and is called stale if the plugin stopped saying it.\n" +
			"--wait waits until rollouts are over and each node's plugin is ready. It needs the right to list pods, DaemonSets and Deployments.\n" +
			"\n" +
			exitCodeHelp("status"),
		Example: "  kubectl kata-vfio status\n  kubectl kata-vfio status --wait --timeout 10m   # after helm upgrade\n  kubectl kata-vfio status -o json | jq '.problems'",
		Args:    command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			st, pending, err := s.status(cmd, &w)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			done, err := output.Document(out, format, "status", st)
			if !done {
				err = writeLines(out, statusLines(st, output.TableWidth(out), output.Width(out), output.Colorful(out)))
			}
			return errors.Join(err, w.verdict(st, pending))
		},
	}
	formats.Flag(cmd, &format)
	cmd.Flags().BoolVar(&w.wait, "wait", false, "wait until rollouts are over and each node's plugin is ready")
	cmd.Flags().DurationVar(&w.limit, "timeout", 5*time.Minute, "how long --wait waits")
	return cmd
}

// verdict returns why a status is not good; nil if it is. After a wait, nothing may be pending.
func (w *waiting) verdict(st *fleet.Status, pending string) error {
	switch {
	case w.wait && pending != "":
		return &verdictError{fmt.Sprintf("the rollout is not over after %s: %s", w.limit, pending)}
	case len(st.Problems) > 0:
		return &verdictError{"needs attention: " + output.Count(len(st.Problems), "problem")}
	}
	return nil
}

// statusView is what status lists. A wait ends at once if the user may not list what it is about.
func (s *session) statusView(w *waiting) *view {
	parts := rolloutKinds()
	v := &view{want: want{needs: []fleet.Kind{fleet.Slices}, also: append([]fleet.Kind{fleet.Claims}, parts...), now: s.now}}
	if w.wait {
		v.want.permitted = parts
	}
	return v
}

// rolloutKinds are the kinds that say how far a rollout is.
func rolloutKinds() []fleet.Kind {
	return []fleet.Kind{fleet.Components, fleet.DaemonSets, fleet.Deployments}
}

// poll is how often --wait looks.
const poll = 2 * time.Second

// status lists the objects. If the flags ask for it, it repeats that until a rollout is over, or returns what is pending.
func (s *session) status(cmd *cobra.Command, w *waiting) (*fleet.Status, string, error) {
	client, _, err := s.connect()
	if err != nil {
		return nil, "", err
	}
	v := s.statusView(w)
	ctx, cancel := context.WithTimeout(cmd.Context(), w.limit)
	defer cancel()
	said := ""
	for {
		state, err := v.list(cmd.Context(), client)
		if err != nil {
			return nil, "", err
		}
		state.TaintRules = taintRules(cmd, client)
		st := state.Status()
		st.Drains = uniqueDrains(state.TaintRules)
		pending := cmp.Or(unlisted(state), unsettled(st))
		if !w.wait || pending == "" || ctx.Err() != nil {
			v.warn(cmd.ErrOrStderr(), state)
			return st, pending, nil
		}
		// The limit ends the waiting, not the requests: the last state is always a whole one.
		said = progress(cmd.ErrOrStderr(), said, pending)
		select {
		case <-ctx.Done():
		case <-time.After(poll):
		}
		if cmd.Context().Err() != nil {
			return nil, "", context.Cause(cmd.Context())
		}
	}
}

// progress writes what a wait is for, if that has changed.
func progress(w io.Writer, said, now string) string {
	if said != now {
		fmt.Fprintf(w, "waits for %s\n", output.Visible(now))
	}
	return now
}

// unlisted returns why it is unknown how far a rollout is; empty if it is known.
func unlisted(state *fleet.State) string {
	for _, kind := range rolloutKinds() {
		if why, missing := state.Missing[kind]; missing {
			return fmt.Sprintf("%s, which can't be listed: %s", kind, why)
		}
	}
	return ""
}

// unsettled returns what a rollout waits for; empty if it is over.
func unsettled(st *fleet.Status) string {
	if len(st.Rolling) > 0 {
		return strings.Join(st.Rolling, ", ")
	}
	for i := range st.Parts {
		if p := &st.Parts[i]; p.Ready < p.Desired {
			return fmt.Sprintf("%s: %d of %d ready", p.Part, p.Ready, p.Desired)
		}
	}
	return ""
}

// statusLines is a status for people.
func statusLines(st *fleet.Status, tableWidth, width int, color bool) []string {
	lines := nodesTable(st).Lines(tableWidth, color)
	if len(st.Nodes) == 0 {
		lines = []string{"no node publishes devices or runs the plugin"}
	}
	lines = append(lines, "")
	for i := range st.Parts {
		p := &st.Parts[i]
		text := fmt.Sprintf("%s: %d of %d ready", p.Part, p.Ready, p.Desired)
		// Ready pods of the old version count as ready: only the count of updated ones shows how far a rollout is.
		if slices.Contains(st.Rolling, p.Part) {
			text += fmt.Sprintf(", %d updated", p.Updated)
		}
		lines = append(lines, output.Visible(text))
	}
	for _, d := range st.Drains {
		text := fmt.Sprintf("drain of %s since %s (%s)", d.Target, d.Since, d.Effect)
		if d.Reason != "" {
			text += ": " + d.Reason
		}
		lines = append(lines, indented("", "  ", output.Visible(text), width)...)
	}
	if len(st.Problems) == 0 {
		return append(lines, "nothing needs attention")
	}
	lines = append(lines, "", output.Paint(color, output.Bold, "Needs attention"))
	for i := range st.Problems {
		p := &st.Problems[i]
		lines = append(lines, indented(output.Paint(color, output.Red, "✗")+" ", "  ", p.Subject+": "+p.Text+" ["+string(p.Code)+"]", width)...)
		lines = append(lines, indented("    ", "    ", p.Fix, width)...)
	}
	return lines
}

// nodesTable is a line for each node.
func nodesTable(st *fleet.Status) *output.Table {
	p := &picture{titles: []string{"NODE", "PLUGIN", "NRI", "VERSION", "BOOTSTRAP", "DEVICES", "FREE", "CLAIMED", "OTHERS"}, least: []string{"DEVICES", "BOOTSTRAP", "VERSION"}}
	for i := range st.Nodes {
		n := &st.Nodes[i]
		// Without a pod, bootstrap runs as a unit of the node, and the plugin says what it found.
		c := cells(n.Node, n.Plugin, orDash(n.NRI), orDash(n.PluginVersion), orDash(cmp.Or(n.Bootstrap, n.Outcome)), fmt.Sprint(n.Devices), fmt.Sprint(n.Free), fmt.Sprint(n.Claimed), orDash(others(n)))
		if n.Plugin != "ready" {
			c[1].Color = output.Red
		}
		if n.NRI == "disconnected" {
			c[2].Color = output.Red
		}
		p.rows = append(p.rows, row{cells: c})
	}
	return p.table()
}

// others is "1 quarantined, 2 tainted".
func others(n *fleet.NodeStatus) string {
	var words []string
	for _, use := range slices.Sorted(maps.Keys(n.Others)) {
		words = append(words, fmt.Sprintf("%d %s", n.Others[use], use))
	}
	return strings.Join(words, ", ")
}

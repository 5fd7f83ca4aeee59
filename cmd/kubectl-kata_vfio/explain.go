package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func explainCommand(s *session) *cobra.Command {
	formats := command.Formats{"text", "json", "yaml"}
	var format, nodeName string
	var files []string
	var watch bool
	cmd := &cobra.Command{
		Use:   "explain CLAIM | POD | NODE/DEVICE | CODE",
		Short: "Explain the state of a claim, pod or device, or a reason, and what to do",
		Long: "explain shows in order of time what happened to a claim, a pod with claims, or a node's device: allocation, conditions,\n" +
			"events (the API server keeps them for an hour), taints and failed checks, and then what to do. Name a device by\n" +
			"its name or its PCI address. Use claim/NAME, pod/NAME or device/NODE/NAME if a name is ambiguous.\n" +
			"A code is the reason of a condition or an Event, or the value of a taint, such as GroupNotViable: explain shows what it means,\n" +
			"what to do, and who can do it.\n" +
			"--watch shows the explanation again whenever it changes; a pod or claim that is not there yet is waited for.\n" +
			"--node-report adds what the node's own audit (`kata-vfio-audit node -o json`) reports about the pod's VM: its process, and\n" +
			"where its devices are in the guest.\n" +
			"\n" +
			exitCodeHelp("explain"),
		Example: "  kubectl kata-vfio explain -n team-a train-0\n  kubectl kata-vfio explain -n team-a train-0 --watch\n  kubectl kata-vfio explain worker-1/0000:3b:00.0\n  kubectl kata-vfio explain -n team-a train-0 --node-report reports/\n  kubectl kata-vfio explain GroupNotViable",
		Args:    command.ExactArgs(1, "one claim, pod, NODE/DEVICE or code"), ValidArgsFunction: s.completeExplain,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, args []string) error {
			code, err := codeNamed(args[0])
			if err != nil {
				return err
			}
			if code != nil {
				return command.WriteCode(cmd.OutOrStdout(), format, code)
			}
			reports, err := fleet.ReadReports(cmd.InOrStdin(), files, nodeName)
			if err != nil {
				return err
			}
			e := explainer{session: s, subject: parseSubject(args[0]), reports: reports}
			if watch {
				return e.watch(cmd, format)
			}
			x, err := e.once(cmd)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if done, err := output.Document(out, format, "explanation", x); done {
				return err
			}
			return writeLines(out, explanationLines(x, output.Width(out), output.Colorful(out)))
		},
	}
	formats.Flag(cmd, &format)
	nodeReportFlags(cmd, &files, &nodeName)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the explanation again whenever it changes, until a signal ends the command")
	return cmd
}

// codeNamed returns the text of a code; nil if the word is not one. No object of Kubernetes has a name with capital letters.
func codeNamed(word string) (*rule.Text, error) {
	if word == strings.ToLower(word) {
		return nil, nil
	}
	texts, err := rule.Texts()
	if err != nil {
		return nil, err
	}
	text, ok := rule.Find(texts, word)
	if !ok && !strings.Contains(word, "/") {
		return nil, command.Usagef("there is no code %q%s; a pod or claim has no capital letters in its name", word, command.SimilarCode(texts, word))
	}
	return text, nil
}

// subject is the object to explain. An empty kind means a claim or a pod.
type subject struct{ kind, node, name string }

func parseSubject(text string) subject {
	first, rest, ok := strings.Cut(text, "/")
	switch first {
	case "claim", "claims", "resourceclaim", "resourceclaims", "resourceclaim.resource.k8s.io":
		if ok {
			return subject{kind: "claim", name: rest}
		}
	case "pod", "pods", "po":
		if ok {
			return subject{kind: "pod", name: rest}
		}
	case "device", "devices":
		if node, name, ok := strings.Cut(rest, "/"); ok {
			return subject{kind: "device", node: node, name: name}
		}
	}
	if ok {
		return subject{kind: "device", node: first, name: rest}
	}
	return subject{name: text}
}

// explainer explains one object.
type explainer struct {
	session *session
	subject subject
	reports []*finding.Report
}

// view connects to the cluster, and returns what is to be listed.
func (e *explainer) view() (*view, lister, error) {
	client, namespace, err := e.session.connect()
	if err != nil {
		return nil, nil, err
	}
	v := &view{want: want{
		needs: []fleet.Kind{fleet.Claims}, also: []fleet.Kind{fleet.Pods, fleet.Events, fleet.Slices, fleet.Classes, fleet.TaintRules}, namespace: namespace, now: e.session.now,
	}}
	switch e.subject.kind {
	case "device":
		v.want = want{needs: []fleet.Kind{fleet.Slices}, also: []fleet.Kind{fleet.Claims, fleet.Events, fleet.TaintRules}, node: e.subject.node, eventKind: "ResourceClaim", now: e.session.now}
	case "claim":
	default:
		v.want.pod = e.subject.name
	}
	return v, client, nil
}

// once explains the object as it is now.
func (e *explainer) once(cmd *cobra.Command) (*fleet.Explanation, error) {
	v, client, err := e.view()
	if err != nil {
		return nil, err
	}
	state, err := v.list(cmd.Context(), client)
	if err != nil {
		return nil, err
	}
	v.warn(cmd.ErrOrStderr(), state)
	return e.of(state, v.want.namespace)
}

func (e *explainer) of(state *fleet.State, namespace string) (*fleet.Explanation, error) {
	state.Reports = e.reports
	return explanation(state, e.subject, namespace)
}

// watch explains the object whenever it changes. An object that is not there yet is waited for.
func (e *explainer) watch(cmd *cobra.Command, format string) error {
	if format == "yaml" {
		return command.Usagef("--watch writes lines of text or, with -o json, one line for each change; yaml has no such form")
	}
	v, client, err := e.view()
	if err != nil {
		return err
	}
	state, err := v.list(cmd.Context(), client)
	if err != nil {
		return err
	}
	v.warn(cmd.ErrOrStderr(), state)
	screen := newScreen(cmd.OutOrStdout(), format)
	return v.want.follow(cmd.Context(), client, state.Missing, cmd.ErrOrStderr(), func(s *fleet.State) error {
		x, err := e.of(s, v.want.namespace)
		if missing, ok := errors.AsType[*fleet.NotFoundError](err); ok {
			return screen.show(&picture{empty: missing.Error() + " yet"})
		}
		if err != nil {
			return err
		}
		return screen.show(&picture{
			what: "explanation", document: x, rows: []row{{key: x.Subject, value: x}},
			text: func(color bool) []string { return explanationLines(x, output.Width(cmd.OutOrStdout()), color) },
		})
	})
}

// readTexts reads the texts that explain the words of objects. The error is a defect of the build.
func readTexts() (fleet.Texts, error) {
	all, err := rule.ReadCatalogue()
	if err != nil {
		return fleet.Texts{}, err
	}
	codes, err := rule.Texts()
	if err != nil {
		return fleet.Texts{}, err
	}
	return fleet.Texts{Rules: all.OfNodes(), Codes: codes}, nil
}

func explanation(state *fleet.State, of subject, namespace string) (*fleet.Explanation, error) {
	texts, err := readTexts()
	if err != nil {
		return nil, err
	}
	switch of.kind {
	case "device":
		return state.ExplainDevice(of.node, of.name, texts)
	case "claim":
		return state.ExplainClaim(namespace, of.name, texts)
	case "pod":
		return state.ExplainPod(namespace, of.name, texts)
	}
	// A pod and its claim from a template have different names (the claim's has a random suffix), but nothing prevents equal ones.
	claim, err1 := state.ExplainClaim(namespace, of.name, texts)
	pod, err2 := state.ExplainPod(namespace, of.name, texts)
	_, noPod := errors.AsType[*fleet.NotFoundError](err2)
	switch {
	case err1 != nil && err2 != nil && !noPod:
		return nil, fmt.Errorf("there is no claim %s/%s, and the command can't tell whether there is such a pod: %w", namespace, of.name, err2)
	case err1 != nil && err2 != nil:
		return nil, &fleet.NotFoundError{Name: "claim or pod " + namespace + "/" + of.name + " (-n names another namespace)"}
	case err1 == nil && err2 == nil:
		return nil, command.Usagef("%s is both a claim and a pod: use claim/%s or pod/%s", of.name, of.name, of.name)
	case err1 == nil:
		return claim, nil
	}
	return pod, nil
}

// explanationLines is an explanation for people, within the width.
func explanationLines(x *fleet.Explanation, width int, color bool) []string {
	lines := output.Wrap(output.Visible(x.Subject+" "+x.Now), width)
	for i := range lines {
		lines[i] = output.Paint(color, output.Bold, lines[i])
	}
	lines = append(lines, "")
	for i := range x.Moments {
		lines = append(lines, momentLines(x, &x.Moments[i], width, color)...)
	}
	if len(x.Todo) == 0 {
		return append(lines, "", "nothing to do")
	}
	lines = append(lines, "", output.Paint(color, output.Bold, "What to do"))
	for _, todo := range x.Todo {
		lines = append(lines, indented("  - ", "    ", todo, width)...)
	}
	return lines
}

// momentLines returns the time, the object, and the text below, indented.
func momentLines(x *fleet.Explanation, m *fleet.Moment, width int, color bool) []string {
	at := "now                 "
	if !m.At.IsZero() {
		at = m.At.UTC().Format(time.RFC3339)
	}
	head := at + "  " + mark(m) + " "
	if m.Of != x.Subject {
		head += m.Of + ": "
	}
	head += m.What
	paint := output.Color("")
	if m.Trouble && !m.Past {
		paint = output.Red
	}
	lines := []string{output.Paint(color, paint, output.Visible(head))}
	if m.Text != "" {
		lines = append(lines, indented("    ", "    ", m.Text, width)...)
	}
	return lines
}

// mark distinguishes trouble from other moments without relying on color.
func mark(m *fleet.Moment) string {
	switch {
	case m.Past:
		return "·"
	case m.Trouble:
		return "✗"
	}
	return "✓"
}

func indented(first, rest, text string, width int) []string {
	lines := output.Wrap(output.Visible(text), width-len(rest))
	for i := range lines {
		if i == 0 {
			lines[i] = first + lines[i]
		} else {
			lines[i] = rest + lines[i]
		}
	}
	return lines
}

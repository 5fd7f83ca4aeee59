package command_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// explained returns a program's output for "explain" with args.
func explained(args ...string) (string, error) {
	var out bytes.Buffer
	root := &cobra.Command{Use: "kata-vfio-x", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(command.ExplainCommand("kata-vfio-x", "Exit codes: 0"))
	root.SetOut(&out)
	root.SetArgs(append([]string{"explain"}, args...))
	err := root.Execute()
	return out.String(), err
}

func TestExplainSaysWhatACodeMeans(t *testing.T) {
	got, err := explained("quarantined")
	if err != nil {
		t.Fatal(err)
	}
	want := `Quarantined  The device could not be proven clean

severity  refusal
why       A reset between two tenants failed, or left other registers than before. No tenant gets the device.
fix       run ` + "`kata-vfio-plugin quarantine explain DEVICE`" + ` on its node: it has the evidence and the ways out;
          ` + "`kata-vfio-plugin quarantine clear DEVICE --reason TEXT`" + ` tries the reset again
by        platform
refused   by a taint, when the claim is prepared, when the claim is released
seen in   condition, event, taint, command, ledger
taint     kata-vfio.dev/quarantined
checks    RST-005
runbook   "Device is quarantined" in deploy/RUNBOOK.md
`
	if unwrapped(got) != unwrapped(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for _, args := range [][]string{{"link-lost", "-o", "json"}, {"kata-vfio.dev/link-lost", "-o", "yaml"}} {
		if got, err := explained(args...); err != nil || !strings.Contains(got, "LinkLost") || !strings.Contains(got, "seenIn") {
			t.Errorf("%v: got %v, %s; want a document", args, err, got)
		}
	}
}

// unwrapped returns text as one line, independent of the terminal's width.
func unwrapped(text string) string { return strings.Join(strings.Fields(text), " ") }

// TestExplainKnowsEveryCode: no code of the binaries is left without an explanation.
func TestExplainKnowsEveryCode(t *testing.T) {
	texts, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		if got, err := explained(string(text.Code)); err != nil || !strings.HasPrefix(got, string(text.Code)+"  "+text.Title+"\n") {
			t.Errorf("%s: got %v\n%s", text.Code, err, got)
		}
	}
}

func TestExplainRefusesOtherWords(t *testing.T) {
	for _, args := range [][]string{{}, {"NoSuchCode"}, {"Held", "Drained"}, {"Held", "-o", "xml"}} {
		_, err := explained(args...)
		if _, ok := errors.AsType[*command.UsageError](err); !ok {
			t.Errorf("%v: got %v, want a usage error", args, err)
		}
	}
}

package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// ExplainCommand returns "explain CODE" for a program that explains nothing else.
func ExplainCommand(program, exitCodes string) *cobra.Command {
	formats := Formats{"text", "json", "yaml"}
	var format string
	cmd := &cobra.Command{
		Use:   "explain CODE",
		Short: "Explain a reason that commands, Events, conditions or taints show",
		Long: "explain shows what a code means, why kata-vfio refuses something because of it, what to do, and who can do it. A code is the\n" +
			"reason of a condition or an Event, the value or key of a taint, or the word in parentheses behind a refusal.\n\n" + exitCodes,
		Example:           "  " + program + " explain GroupNotViable\n  " + program + " explain link-lost -o json",
		Args:              ExactArgs(1, "one code, such as GroupNotViable"),
		ValidArgsFunction: CompleteCodes,
		PreRunE:           func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, args []string) error {
			texts, err := rule.Texts()
			if err != nil {
				return err
			}
			text, ok := rule.Find(texts, args[0])
			if !ok {
				return Usagef("there is no code %q%s; the shell completes them, and upper and lower case do not matter", args[0], SimilarCode(texts, args[0]))
			}
			return WriteCode(cmd.OutOrStdout(), format, text)
		},
	}
	formats.Flag(cmd, &format)
	return cmd
}

// SimilarCode asks whether a code that is similar to a wrong one was meant. It returns "" if there is none.
func SimilarCode(texts []rule.Text, wrong string) string {
	names := make([]string, len(texts))
	for i := range texts {
		names[i] = string(texts[i].Code)
	}
	return didYouMean("", similar(wrong, names))
}

// CompleteCodes completes codes, with their titles.
func CompleteCodes(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	texts, err := rule.Texts()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var codes []cobra.Completion
	for i := range texts {
		codes = append(codes, cobra.CompletionWithDesc(string(texts[i].Code), texts[i].Title))
	}
	return codes, cobra.ShellCompDirectiveNoFileComp
}

// WriteCode writes the text of a code for people, for programs (json, yaml) or as Markdown (md).
func WriteCode(w io.Writer, format string, text *rule.Text) error {
	if done, err := output.Document(w, format, "explanation", text); done {
		return err
	}
	out := codeLines(text, output.Width(w), output.Colorful(w))
	if format == "md" {
		out = codeMarkdown(text)
	}
	if _, err := io.WriteString(w, out); err != nil {
		return fmt.Errorf("write explanation: %w", err)
	}
	return nil
}

// codeField is a line of an explanation.
type codeField struct{ name, text string }

// codeFields returns the explanation of a code for people.
func codeFields(text *rule.Text) []codeField {
	fields := []codeField{
		{"severity", string(text.Severity)},
		{"why", text.Why},
		{"fix", text.Fix},
		{"by", joined(text.Who)},
		{"refused", refusedAt(text.Enforced)},
		{"seen in", joined(text.SeenIn)},
		{"taint", text.Taint},
		{"checks", strings.Join(text.Checks, ", ")},
	}
	if text.Runbook != "" {
		fields = append(fields, codeField{"runbook", fmt.Sprintf("%q in deploy/RUNBOOK.md", text.Runbook)})
	}
	return fields
}

// refusedAt names the points that refuse because of a code.
func refusedAt(points []rule.EnforcementPoint) string {
	words := map[rule.EnforcementPoint]string{
		rule.AtAdmission: "by the API server, if the chart's admission policies are on",
		rule.AtPublish:   "by a taint", rule.AtPrepare: "when the claim is prepared", rule.AtSandbox: "when the VM has started",
		rule.AtContainer: "when a container is created", rule.AtRelease: "when the claim is released",
	}
	var where []string
	for _, point := range points {
		where = append(where, words[point])
	}
	return strings.Join(where, ", ")
}

func codeLines(text *rule.Text, width int, color bool) string {
	const indent = 10
	var b strings.Builder
	b.WriteString(output.Paint(color, output.Bold, string(text.Code)) + "  " + text.Title + "\n\n")
	for _, field := range codeFields(text) {
		if field.text == "" {
			continue
		}
		first := field.name
		for _, line := range output.Wrap(field.text, width-indent) {
			fmt.Fprintf(&b, "%-*s%s\n", indent, first, line)
			first = ""
		}
	}
	return b.String()
}

func codeMarkdown(text *rule.Text) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s.\n\n", text.Code, text.Title)
	for _, field := range codeFields(text) {
		if field.text != "" {
			fmt.Fprintf(&b, "- **%s**: %s\n", field.name, field.text)
		}
	}
	return b.String()
}

// joined returns words with commas between them.
func joined[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, word := range words {
		texts[i] = string(word)
	}
	return strings.Join(texts, ", ")
}

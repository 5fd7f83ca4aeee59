package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// Step is something that a document tells people to run, and what it shows of the output.
type Step struct {
	// Command is a shell's input: one command, or a block of them.
	Command string
	// Output is what the document shows; empty if it shows none.
	Output string
}

// Steps returns what the section of the document below the heading tells people to run, in order: blocks of sh, each with the block
// of text that follows it, and the commands in blocks of console, each with its output. See [Section] for the heading.
func Steps(tb testing.TB, path, heading string) []Step {
	tb.Helper()
	steps := stepsOf(Section(tb, path, heading))
	if len(steps) == 0 {
		tb.Fatalf("%s: section %q has no commands", path, heading)
	}
	return steps
}

var blockPattern = regexp.MustCompile("(?ms)^( *)```(\\w*)\n(.*?)^ *```$")

func stepsOf(text string) []Step {
	var steps []Step
	shown := false // that the last step has its output, or can't have one
	for _, m := range blockPattern.FindAllStringSubmatch(text, -1) {
		body := unindented(m[3], m[1])
		switch m[2] {
		case "sh", "bash":
			steps, shown = append(steps, Step{Command: body}), false
		case "console":
			steps, shown = append(steps, consoleSteps(body)...), true
		case "text":
			if !shown && len(steps) > 0 {
				steps[len(steps)-1].Output = body
			}
			shown = true
		default:
			shown = true
		}
	}
	return steps
}

// unindented returns the lines of a block in a list without the list's indentation.
func unindented(body, indent string) string {
	var b strings.Builder
	for line := range strings.Lines(body) {
		b.WriteString(strings.TrimPrefix(line, indent))
	}
	return b.String()
}

// consoleSteps splits a block at its prompts: "$ " of a user, "# " or "node# " of root. A command whose line ends in a backslash goes on in the
// next.
func consoleSteps(body string) []Step {
	var steps []Step
	continued := false
	for line := range strings.Lines(body) {
		command, prompted := strings.CutPrefix(line, "$ ")
		if !prompted {
			command, prompted = strings.CutPrefix(strings.TrimPrefix(line, "node"), "# ")
		}
		switch last := len(steps) - 1; {
		case continued:
			steps[last].Command += line
		case prompted:
			steps = append(steps, Step{Command: command})
		case last >= 0:
			steps[last].Output += line
		}
		continued = strings.HasSuffix(line, "\\\n") && (prompted || continued)
	}
	return steps
}

// Match compares what a document shows of an output with the output, line by line. In a line, "..." stands for any text, and a
// line of "..." for any lines. Runs of blanks are equal, and blank lines don't count. The error names the first line of the
// document that the output lacks.
func Match(shown, got string) error {
	lines := trimmed(got)
	skips := false // that lines may be left out here
	for _, want := range trimmed(shown) {
		if want == "..." {
			skips = true
			continue
		}
		i := 0
		for skips && i < len(lines) && !matchesLine(want, lines[i]) {
			i++
		}
		if i >= len(lines) {
			return fmt.Errorf("the document shows %q, which the output lacks:\n%s", want, got)
		}
		if !matchesLine(want, lines[i]) {
			return fmt.Errorf("the document shows %q where the output has %q:\n%s", want, lines[i], got)
		}
		lines, skips = lines[i+1:], false
	}
	if len(lines) > 0 && !skips {
		return fmt.Errorf("the document does not show %q:\n%s", lines[0], got)
	}
	return nil
}

// trimmed returns the lines that are not blank, each with single blanks.
func trimmed(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	return lines
}

func matchesLine(want, got string) bool {
	parts := strings.Split(want, "...")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}

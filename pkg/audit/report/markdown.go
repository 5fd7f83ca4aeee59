package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

func writeMarkdown(w io.Writer, d *Document, failOn isolation.Severity) error {
	var b strings.Builder
	name := d.Subject.Label()
	fmt.Fprintf(&b, "# Audit of %s: %s\n\n", code(name), d.Summary.Verdict)
	fmt.Fprintf(&b, "%s %s.\n\n", code(name), verdictWords(&d.Summary, failOn))
	fmt.Fprintf(&b, "Profile %s, %s, %s, kernel %s, boot %s.\n\n", md(d.Profile), terminal.Count(d.Summary.Rules, "check"), md(d.Subject.Time),
		code(d.Subject.Kernel), code(d.Subject.BootID))
	if d.Basis != nil {
		b.WriteString(md(d.Basis.String()) + ".\n\n")
	}
	b.WriteString("| State | Checks | Findings |\n|---|---:|---:|\n")
	for _, state := range finding.States() {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", state, d.Summary.RuleStates[state], d.Summary.States[state])
	}
	for _, s := range []struct {
		title string
		state finding.State
	}{
		{"Failures", finding.Fail},
		{"Checks that went wrong", finding.Error},
		{"Could not be told", finding.Unknown},
		{"For a person to look at", finding.Manual},
		{"Accepted for a time", finding.Waived},
	} {
		markdownSection(&b, s.title, d.in(s.state))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write report as Markdown: %w", err)
	}
	return nil
}

func markdownSection(b *strings.Builder, title string, found []finding.Finding) {
	if len(found) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n", title)
	for _, g := range byRule(found) {
		worst := &g[0]
		heading := fmt.Sprintf("%s %s", strings.ToUpper(string(worst.Severity)), worst.ID)
		if worst.State != finding.Fail {
			heading += ": " + md(worst.Title)
		}
		fmt.Fprintf(b, "\n### %s\n\n", heading)
		same := sameAdvice(g)
		for i := range g {
			markdownFinding(b, &g[i])
			if !same {
				markdownAdvice(b, &g[i], "  ")
			}
		}
		if same {
			markdownAdvice(b, worst, "")
		}
	}
}

func markdownFinding(b *strings.Builder, f *finding.Finding) {
	fmt.Fprintf(b, "- %s: %s\n", code(about(f)), md(f.Text))
	if len(f.Devices) > 1 {
		fmt.Fprintf(b, "  - In reach: %s\n", codes(addresses(f)))
	}
	if len(f.Tenants) > 0 {
		fmt.Fprintf(b, "  - Exposure: %s; tenants %s\n", f.Exposure.Words(), codes(f.Tenants))
	}
	if f.Pending != "" {
		fmt.Fprintf(b, "  - Next boot: %s\n", md(f.Pending))
	}
	if f.Waiver != nil {
		fmt.Fprintf(b, "  - Waiver: %s\n", md(waiverWords(f.Waiver)))
	}
	for _, e := range f.Evidence {
		fmt.Fprintf(b, "  - Evidence: %s\n", code(evidenceWords(&e)))
	}
	if f.LeftOut > 0 {
		fmt.Fprintf(b, "  - Evidence: %s\n", leftOutWords(f))
	}
}

func markdownAdvice(b *strings.Builder, f *finding.Finding, indent string) {
	if f.Remediation != "" {
		fmt.Fprintf(b, "%s- **Fix:** %s\n", indent, md(f.Remediation))
	}
	if f.Verify != "" {
		fmt.Fprintf(b, "%s- **By hand:** %s\n", indent, code(f.Verify))
	}
}

// md escapes text within a line of Markdown (CommonMark 2.4: a backslash makes any ASCII punctuation literal; HTML
// needs its ampersand and brackets as entities). Text between backticks in the audit's own texts is a command and
// stays one.
func md(text string) string {
	parts := strings.Split(text, "`")
	if len(parts)%2 == 0 {
		return escapeMarkdown(text)
	}
	for i := range parts {
		if i%2 == 0 {
			parts[i] = escapeMarkdown(parts[i])
		} else {
			parts[i] = code(parts[i])
		}
	}
	return strings.Join(parts, "")
}

func escapeMarkdown(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '&':
			b.WriteString("&amp;")
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case strings.ContainsRune("\\`*_[]|~", r):
			b.WriteRune('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// code makes text a code span, in which nothing is markup, with a fence that is
// longer than any in it.
func code(text string) string {
	if strings.TrimSpace(text) == "" {
		return "-"
	}
	longest, run := 0, 0
	for _, r := range text {
		if r == '`' {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	fence := strings.Repeat("`", longest+1)
	if longest > 0 || strings.HasPrefix(text, " ") && strings.HasSuffix(text, " ") {
		return fence + " " + text + " " + fence
	}
	return fence + text + fence
}

func codes(texts []string) string {
	spans := make([]string, len(texts))
	for i, text := range texts {
		spans[i] = code(text)
	}
	return strings.Join(spans, ", ")
}

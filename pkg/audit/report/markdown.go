package report

import (
	"bytes"
	_ "embed" // the templates
	"fmt"
	"io"
	"strings"
	"text/template"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// markdownTemplates have a template for each document. Other text goes through md or code.
//
//go:embed markdown.tmpl
var markdownTemplates string

// fillIn writes the document of a template.
func fillIn(w io.Writer, name string, data any) error {
	t, err := template.New("markdown").Funcs(markdownWords()).Parse(markdownTemplates)
	if err != nil {
		return fmt.Errorf("parse the templates of Markdown: %w", err)
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, name, data); err != nil {
		return fmt.Errorf("fill in the %s as Markdown: %w", name, err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write %s as Markdown: %w", name, err)
	}
	return nil
}

// markdownWords are the functions that the templates use.
func markdownWords() template.FuncMap {
	return template.FuncMap{
		"md": md, "code": code, "codes": codes, "count": output.Count, "join": strings.Join,
		"upper":  func(s rule.Severity) string { return strings.ToUpper(string(s)) },
		"states": finding.States, "sameAdvice": sameAdvice, "waiver": waiverWords,
		"about":     func(f finding.Finding) string { return about(&f) },
		"addresses": func(f finding.Finding) []string { return addresses(&f) },
		"evidence":  func(e rule.Evidence) string { return evidenceWords(&e) },
		"leftOut":   func(f finding.Finding) string { return leftOutWords(&f) },
	}
}

// section has the findings of some rules.
type section struct {
	Title string
	Rules [][]finding.Finding
}

func writeMarkdown(w io.Writer, d *Document, failOn rule.Severity) error {
	return fillIn(w, "report", struct {
		*finding.Report
		Verdict  string
		Sections []section
	}{d.Report, verdictWords(&d.Summary, failOn), []section{
		{"Failures", byRule(d.in(finding.Fail))},
		{"Checks with an error", byRule(d.in(finding.Error))},
		{"Checks without an answer", byRule(d.in(finding.Unknown))},
		{"Check by hand", byRule(d.in(finding.Manual))},
		{"Accepted for a time", byRule(d.in(finding.Waived))},
	}})
}

// md escapes text within a line of Markdown (CommonMark 2.4: a backslash makes any ASCII punctuation literal; HTML
// needs its ampersand and brackets as entities). Text between backticks in the audit's own texts is a command and
// stays one.
func md(text string) string {
	parts := strings.Split(text, "`")
	if len(parts)%2 == 0 {
		// One backtick has no partner, so the text has no command.
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

// code makes text a code span, in which nothing is markup. Its fence is longer than any sequence of backticks in
// the text.
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

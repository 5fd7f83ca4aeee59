package report

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// functions are the words that the templates use. The page has a part for each
// function of the inventory, which may be nil.
func functions(inv *audit.Inventory) template.FuncMap {
	known := map[pci.Address]bool{}
	if inv != nil {
		for i := range inv.Devices {
			known[inv.Devices[i].Address] = true
		}
	}
	return template.FuncMap{
		"known": func(a pci.Address) bool { return known[a] },
		"id":    deviceAnchor,
		"when":  when, "minute": minute, "day": day,
		"glyph": stateGlyph, "state": stateWord, "heading": stateHeading, "group": groupName,
		"standing": func(f function) template.HTML {
			return template.HTML(audit.Mark(f.grade())) //nolint:gosec // our own drawing
		},
		"verdict": gradeWord, "subject": subject, "plural": output.Plural,
		"who": func(f finding.Finding) string { return "|" + strings.Join(f.Tenants, "|") + "|" },
		"devices": func(f finding.Finding) []pci.Address {
			return f.Devices[:min(len(f.Devices), maxDevices)]
		},
		"evidence": func(f finding.Finding) []rule.Evidence {
			return f.Evidence[:min(len(f.Evidence), maxEvidence)]
		},
		"more": func(all, shown int) int { return all - shown },
		"mark": func(standing audit.Grade) template.HTML {
			return template.HTML(audit.Mark(standing)) //nolint:gosec // our own drawing
		},
		"symbols": audit.Legend,
		"marks": func() template.HTML {
			return template.HTML(audit.Definitions()) //nolint:gosec // our own drawing
		},
		"prose": prose, "brief": brief, "claim": claimName, "addresses": listAddresses,
	}
}

// when writes a time for people; empty if there is none.
func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// minute writes a time for people, to the minute; empty if there is none.
func minute(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04")
}

// day writes a time of the report for people, or unchanged if it can't be parsed.
func day(text string) string {
	t := parseTime(text)
	if t.IsZero() {
		return text
	}
	return t.Format("2 January 2006, 15:04 UTC")
}

// parseTime returns a time of the report; zero if it is none.
func parseTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// stateGlyph returns the sign of a state, so that readers need no colors.
func stateGlyph(s finding.State) string {
	switch s {
	case finding.Fail:
		return "✗"
	case finding.Error:
		return "!"
	case finding.Unknown:
		return "?"
	case finding.Manual:
		return "☞"
	case finding.Waived:
		return "~"
	case finding.Pass:
		return "✓"
	case finding.NotApplicable:
	}
	return "–"
}

// stateWord returns the predicate of a finding in the state.
func stateWord(s finding.State) string {
	words := map[finding.State]string{
		finding.Fail: "fails", finding.Error: "error", finding.Unknown: "unknown", finding.Manual: "manual",
		finding.Waived: "waived", finding.Pass: "passes", finding.NotApplicable: "not applicable",
	}
	if w, ok := words[s]; ok {
		return w
	}
	return string(s)
}

// stateHeading is the heading of the findings of a state.
func stateHeading(s finding.State) string {
	words := map[finding.State]string{
		finding.Fail: "Fails", finding.Error: "Checks with an error", finding.Unknown: "Checks without an answer",
		finding.Manual: "Check by hand", finding.Waived: "Fails, accepted until a date",
		finding.Pass: "Passes", finding.NotApplicable: "Not applicable",
	}
	if w, ok := words[s]; ok {
		return w
	}
	return string(s)
}

// groupName returns the subject of a group of rules.
func groupName(group string) string {
	names := map[string]string{
		"IOM": "IOMMU and interrupts", "ACS": "PCIe topology and ACS", "VFIO": "Device assignment to VMs", "RST": "Reset between tenants",
		"GPU": "Graphics processors", "NIC": "Network adapters and virtual functions", "HOST": "Kernel and files of the node", "RT": "Container runtimes and Kata", "CDI": "Container Device Interface", "K8S": "Cluster",
		"CC": "Confidential computing", "OBS": "Evidence",
	}
	if n, ok := names[group]; ok {
		return n
	}
	return group
}

// gradeWord is the isolation verdict on a function.
func gradeWord(d *audit.Device) string {
	switch d.Grade() {
	case audit.Good:
		return "isolated"
	case audit.Concern:
		return "isolated, with a serious note"
	case audit.Bad:
		var codes []string
		for _, r := range d.Against() {
			codes = append(codes, string(r.Code))
		}
		what := "not isolated"
		if d.Isolated {
			what = "claims are refused"
		}
		return fmt.Sprintf("%s: %s", what, strings.Join(codes, ", "))
	case audit.None:
		if text := cmp.Or(d.Waits(), d.LeftOut()); text != "" {
			return "isolated, " + text
		}
	}
	return ""
}

// piece is a part of a text: words, or a command between backticks.
type piece struct {
	Text string
	Code bool
}

// prose splits a text at its backticks. An unpaired backtick is an ordinary
// character.
func prose(text string) []piece {
	var pieces []piece
	for {
		before, rest, opened := strings.Cut(text, "`")
		code, after, closed := strings.Cut(rest, "`")
		if !opened || !closed {
			return append(pieces, piece{Text: text})
		}
		pieces = append(pieces, piece{Text: before}, piece{Text: code, Code: true})
		text = after
	}
}

// spellOut replaces invisible characters that change the visible text: controls,
// and marks that change the direction of writing or are hidden in it. They can
// only come from the node, because the page's own parts have none except line
// breaks and tabs. It is the last step, so that it covers every part of the page.
func spellOut(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case r == '\n' || r == '\t':
			out = append(out, text[0])
		case unicode.Is(unicode.Cc, r):
			out = fmt.Appendf(out, `\x%02x`, r)
		case unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}

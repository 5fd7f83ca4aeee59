package chromium

import (
	"fmt"
	"html"
	"regexp"
	"strings"
)

// colored replaces the sequences of the colors of package cli/output.
func colored(text string) string {
	return strings.NewReplacer(
		"\x1b[31m", `<span style="color:#f47067">`, "\x1b[33m", `<span style="color:#e3b341">`, "\x1b[32m", `<span style="color:#57ab5a">`,
		"\x1b[1m", `<span style="color:#fff">`, "\x1b[2m", `<span style="color:#8b949e">`, "\x1b[0m", "</span>",
	).Replace(text)
}

var sequence = regexp.MustCompile("\x1b[^\x1b]{0,8}")

// Terminal returns a page that shows text as a terminal of a width in columns does, where a line that is too long makes the page's element
// "pre" scroll. It returns an error if the text has an escape sequence that is no color.
func Terminal(text string, columns int) (string, error) {
	text = colored(html.EscapeString(strings.ReplaceAll(text, "\r\n", "\n")))
	if unknown := sequence.FindString(text); unknown != "" {
		return "", fmt.Errorf("the text has a sequence that this terminal does not know: %q", unknown)
	}
	return `<!DOCTYPE html><meta charset="utf-8"><title>terminal</title><body style="background:#0d1117;color:#e6edf3">` +
		fmt.Sprintf(`<pre style="width:%dch;overflow:auto;font:14px/1.3 DejaVu Sans Mono,monospace">`, columns) + text + "</pre>", nil
}

// Wider returns by how many pixels the text of a [Terminal] is wider than it.
func (p *Page) Wider() int {
	p.b.tb.Helper()
	var pixels int
	p.Eval(`document.querySelector("pre").scrollWidth - document.querySelector("pre").clientWidth`, &pixels)
	return pixels
}

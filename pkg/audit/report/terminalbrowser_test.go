package report_test

import (
	"html"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// terminal shows reports as a terminal of 100 columns does: letters of any width are in a row's cells.
func terminal(b browser) {
	for _, name := range []string{"color", "few", "few.wide", "clean", "undetermined"} {
		text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		if err != nil {
			b.t.Fatal(err)
		}
		p := b.openText(screen(b.t, string(text)), desk())
		if wide := eval[int](p, `document.querySelector("pre").scrollWidth - document.querySelector("pre").clientWidth`); wide > 0 {
			b.t.Errorf("%s: got lines %d pixels wider than 100 columns, want none", name, wide)
		}
		b.keep("terminal-"+name+".png", func() []byte { return p.Screenshot(true) })
	}
}

// screen returns a page with a terminal's text.
func screen(t *testing.T, text string) string {
	t.Helper()
	text = html.EscapeString(text)
	for _, color := range []struct{ sequence, css string }{
		{string(output.Red), "#f47067"}, {string(output.Yellow), "#e3b341"}, {string(output.Green), "#57ab5a"}, {string(output.Bold), "#fff"},
	} {
		text = strings.ReplaceAll(text, "\x1b["+color.sequence+"m", `<span style="color:`+color.css+`">`)
	}
	text = strings.ReplaceAll(text, "\x1b[0m", "</span>")
	if strings.Contains(text, "\x1b") {
		t.Errorf("the text has a sequence that this screen does not know: %q", text)
	}
	return `<!DOCTYPE html><meta charset="utf-8"><title>terminal</title><body style="background:#0d1117;color:#e6edf3">` +
		`<pre style="width:100ch;overflow:auto;font:14px/1.3 DejaVu Sans Mono,monospace">` + text + "</pre>"
}

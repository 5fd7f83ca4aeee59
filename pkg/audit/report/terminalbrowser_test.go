package report_test

import (
	"os"
	"path/filepath"

	"github.com/kata-vfio/kata-vfio/test/chromium"
)

// terminal shows reports as a terminal of 100 columns does: letters of any width are in a row's cells.
func terminal(b browser) {
	for _, name := range []string{"color", "few", "few.wide", "clean", "undetermined"} {
		text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		if err != nil {
			b.t.Fatal(err)
		}
		page, err := chromium.Terminal(string(text), 100)
		if err != nil {
			b.t.Fatal(err)
		}
		p := b.openText(page, desk())
		if wide := p.Wider(); wide > 0 {
			b.t.Errorf("%s: got lines %d pixels wider than 100 columns, want none", name, wide)
		}
		b.keep("terminal-"+name+".png", func() []byte { return p.Screenshot(true) })
	}
}

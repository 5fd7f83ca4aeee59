package output

import (
	"bytes"
	"strings"
	"testing"
)

func TestProgressReplacesAndRemovesItsText(t *testing.T) {
	var out bytes.Buffer
	p := &Progress{w: &out}
	p.Say("reading %d functions", 3)
	p.End()
	if got := out.String(); got != eraseLine+"reading 3 functions…"+eraseLine {
		t.Errorf("written %q", got)
	}
}

func TestStepsAreLinesInPipes(t *testing.T) {
	var out strings.Builder
	p := NewSteps(&out)
	for range 3 { // a step that is looked at each second is one line
		p.Say("running %s", "update-grub\x1b")
	}
	p.Say("verifying")
	p.End()
	if got := out.String(); got != "running update-grub\\x1b\nverifying\n" {
		t.Errorf("written %q", got)
	}
}

func TestProgressIsSilentInPipes(t *testing.T) {
	var out strings.Builder
	p := NewProgress(&out)
	p.Say("reading")
	p.End()
	if out.Len() > 0 {
		t.Errorf("written %q", out.String())
	}
}

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// TestProgressIsForPeople: with -o json and yaml, standard error has warnings and errors only.
func TestProgressIsForPeople(t *testing.T) {
	for format, want := range map[string]bool{"table": true, "json": false, "yaml": false} {
		var out strings.Builder
		o := &options{output: format}
		if observe := o.progress(&out); observe != nil {
			observe(effects.Event{Step: &plan.Step{}, Took: 1500 * time.Millisecond})
		}
		if strings.Contains(out.String(), "ok    1500.0 ms") != want {
			t.Errorf("%s: written %q", format, out.String())
		}
	}
}

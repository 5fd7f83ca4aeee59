package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
)

type failing struct{ bootstrap.Runner }

func (failing) Run(context.Context, []string) error { return errors.New("no space") }

// TestAnnouncedToolsAreNamedOnce: people see which tool runs, and programs only its result.
func TestAnnouncedToolsAreNamedOnce(t *testing.T) {
	for format, want := range map[string]string{"text": "running update-grub -v\n", "json": "", "yaml": ""} {
		var out strings.Builder
		e := &bootstrap.Engine{Tools: failing{}}
		o := &options{format: format}
		o.announce(e, &out)
		if err := e.Tools.Run(t.Context(), []string{"update-grub", "-v"}); err == nil || err.Error() != "no space" {
			t.Errorf("%s: %v", format, err)
		}
		if out.String() != want {
			t.Errorf("%s: written %q, want %q", format, out.String(), want)
		}
	}
	e := &bootstrap.Engine{}
	(&options{}).announce(e, nil)
	if e.Tools != nil {
		t.Error("tools that are only listed would run")
	}
}

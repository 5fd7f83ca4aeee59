package main

import (
	"context"
	"io"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// announced runs tools, and says which one runs now: some take a minute.
type announced struct {
	bootstrap.Runner
	working *output.Progress
}

// announce has an engine's tools announced on w, except for programs that read the result.
func (o *options) announce(e *bootstrap.Engine, w io.Writer) {
	if e.Tools != nil && o.format != "json" && o.format != "yaml" {
		e.Tools = announced{e.Tools, output.NewSteps(w)}
	}
}

// Run implements [bootstrap.Runner].
func (a announced) Run(ctx context.Context, argv []string) error {
	a.working.Say("running %s", strings.Join(argv, " "))
	defer a.working.End()
	return a.Runner.Run(ctx, argv)
}

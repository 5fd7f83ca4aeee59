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

// announce makes an engine print on w which tool it runs, unless the output is for programs.
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

// Package commandline is what the tools of a release have in common: how they are called, and how they end.
package commandline

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/mod/semver"
)

// Run runs a tool until it ends or is interrupted. An error goes to standard error, and the exit code is then 1. A call for
// help is not an error.
func Run[R interface {
	Run(ctx context.Context, stdout io.Writer) error
}](name string, parse func(args []string, help io.Writer) (R, error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = r.Run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1) //nolint:gocritic // the context has nothing left to end
	}
}

// Parse parses flags, and writes their help to w if the arguments ask for it. Other errors are only returned. Usage is
// the line above the flags' help.
func Parse(flags *flag.FlagSet, usage string, args []string, w io.Writer) error {
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(w, "usage:", usage)
		flags.SetOutput(w)
		flags.PrintDefaults()
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return err
}

// CheckVersion refuses what is not a complete semantic version without v.
func CheckVersion(version string) error {
	if !semver.IsValid("v"+version) || strings.Count(version, ".") < 2 {
		return fmt.Errorf("version %q is not like 1.2.3", version)
	}
	return nil
}

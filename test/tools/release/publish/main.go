// Command publish takes a release that is made to where people get it: the images and the chart to a registry, and the
// manifest of the kubectl plugin to a Git repository for krew.
//
//	publish -from bin/release -version 1.2.3 -registry ghcr.io/kata-vfio -o published.json
//
// It compares all files with their checksums first. It never moves a tag: a version that is there already must have
// the same digest, so that a publication that failed halfway can be repeated.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = r.run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "publish:", err)
		os.Exit(1) //nolint:gocritic // the context has nothing left to end
	}
}

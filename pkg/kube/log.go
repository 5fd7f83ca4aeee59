package kube

import (
	"context"
	"flag"
	"fmt"
	"log/slog"

	"k8s.io/klog/v2"
)

// libraryVerbosity is the klog verbosity of libraries at level debug: slog's debug is logr's 4.
const libraryVerbosity = "4"

// LogLibraries sends the output of Kubernetes' libraries to the log. Info has verbosity 0, and debug up to
// libraryVerbosity. It changes the process: call it once, at the start of a daemon.
func LogLibraries(ctx context.Context, log *slog.Logger) error {
	klog.SetSlogLogger(log)
	// klog takes its verbosity from a flag. A separate flag set keeps klog's flags off the command line.
	flags, verbosity := flag.NewFlagSet("klog", flag.ContinueOnError), "0"
	klog.InitFlags(flags)
	if log.Enabled(ctx, slog.LevelDebug) {
		verbosity = libraryVerbosity
	}
	if err := flags.Set("v", verbosity); err != nil {
		return fmt.Errorf("set the verbosity of libraries' logs: %w", err)
	}
	return nil
}

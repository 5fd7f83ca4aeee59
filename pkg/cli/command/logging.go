package command

import (
	"io"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"
)

// Logging has the flags of a daemon's log.
type Logging struct{ level, format string }

// AddFlags adds --log-level and --log-format to a command, with completion.
func (l *Logging) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.level, "log-level", "info", "minimum log level: debug, info, warn or error; debug includes the client libraries up to klog's verbosity 4")
	f.StringVar(&l.format, "log-format", "text", "log format: text or json")
	for name, values := range map[string][]string{"log-level": logLevels(), "log-format": logFormats()} {
		// The only possible error is an unknown flag.
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

func logLevels() []string { return []string{"debug", "info", "warn", "error"} }

func logFormats() []string { return []string{"text", "json"} }

// Validate returns a [UsageError] for an unknown level or format.
func (l *Logging) Validate() error {
	switch {
	case !slices.Contains(logLevels(), l.level):
		return Usagef("--log-level %q: want debug, info, warn or error", l.level)
	case !slices.Contains(logFormats(), l.format):
		return Usagef("--log-format %q: want text or json", l.format)
	}
	return nil
}

// Logger returns the logger of validated flags. It writes to w.
func (l *Logging) Logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l.level)) // validated
	o := &slog.HandlerOptions{Level: level}
	if l.format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

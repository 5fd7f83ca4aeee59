package nri

import (
	"context"
	"fmt"
	"log/slog"
)

// logger passes the stub's log on. It says at every connection what it does,
// which is for debugging.
type logger struct{ log *slog.Logger }

// Debugf implements the logger of NRI.
func (l logger) Debugf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

// Infof implements the logger of NRI.
func (l logger) Infof(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

// Warnf implements the logger of NRI.
func (l logger) Warnf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelWarn, format, args)
}

// Errorf implements the logger of NRI.
func (l logger) Errorf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelError, format, args)
}

func (l logger) write(ctx context.Context, level slog.Level, format string, args []any) {
	if l.log.Enabled(ctx, level) {
		l.log.LogAttrs(ctx, level, "NRI stub", slog.String("text", fmt.Sprintf(format, args...)))
	}
}

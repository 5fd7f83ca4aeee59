package plugin

import (
	"context"
	"log/slog"
	"time"
)

// settleEvery is the pause between two looks at devices that are no longer offered. If there are no such devices, a look makes no request.
const settleEvery = 30 * time.Second

// settle releases devices that are no longer offered from their slices, once no claim can have them, until ctx ends.
func (s *service) settle(ctx context.Context) error {
	problem := ""
	return EverySpread(ctx, settleEvery, func(ctx context.Context) { problem = s.settleOnce(ctx, problem) })
}

// settleOnce looks once and returns the error's text. It logs an error that differs from the last.
func (s *service) settleOnce(ctx context.Context, last string) string {
	released, err := s.publisher.Settle(ctx)
	for _, d := range released {
		s.log.InfoContext(ctx, "no claim has the withdrawn device", slog.String("device", d.Name), slog.String("pool", d.Pool))
	}
	if len(released) > 0 {
		s.changes.Wake()
		last = ""
	}
	switch {
	case ctx.Err() != nil:
		return ""
	case err == nil:
		return last // most looks make no request, so the last error may still be current
	case err.Error() != last:
		s.log.WarnContext(ctx, "withdrawn devices stay published", slog.Any("err", err))
	}
	return err.Error()
}

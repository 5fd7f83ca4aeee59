package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding/waiver"
)

// waiverFile has the failures that the node's operator accepts. It is read at each
// look, so that a change needs no restart.
type waiverFile struct {
	path string
	// optional: that there is no such file is no mistake.
	optional bool
	log      *slog.Logger
	// said is what was last wrong with it, which is logged once.
	said string
}

// read returns the accepted failures. Those of a file that can't be read don't
// count: nothing is accepted by mistake. The monitor calls it, one look at a time.
func (w *waiverFile) read(ctx context.Context) []finding.Waiver {
	accepted, err := w.parse()
	if err == nil {
		w.said = ""
		return accepted
	}
	if w.said != err.Error() {
		w.said = err.Error()
		w.log.WarnContext(ctx, "no failure is accepted: waivers can't be read", slog.String("file", w.path), slog.Any("err", err))
	}
	return nil
}

func (w *waiverFile) parse() ([]finding.Waiver, error) {
	content, err := os.ReadFile(w.path)
	if errors.Is(err, fs.ErrNotExist) && w.optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return waiver.Parse(content, checkIDs())
}

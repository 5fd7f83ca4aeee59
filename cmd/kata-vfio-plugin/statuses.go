package main

import (
	"context"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
)

// statusEvery is how often `run` looks for prepared claims without a status, and at the links
// of their VFs. It asks the API server for those claims alone whose status is not known to be
// right.
const statusEvery = time.Minute

// syncStatuses brings the status of prepared claims up to date until ctx ends.
func (s *service) syncStatuses(ctx context.Context) error {
	statuses := dra.StatusSync{Reporter: s.reporter, Records: s.node.Journal.List, Attributes: s.publisher.Attributes}
	return everyAfter(ctx, statusEvery, statuses.Look)
}

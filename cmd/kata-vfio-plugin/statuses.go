package main

import (
	"context"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/dra"
)

// statusEvery is how often `run` looks for prepared claims without a status. It asks the API
// server for those alone that are not known to have theirs.
const statusEvery = time.Minute

// syncStatuses looks for prepared claims without a status until ctx ends.
func (s *service) syncStatuses(ctx context.Context) error {
	statuses := dra.StatusSync{Reporter: s.reporter, Records: s.node.Journal.List, Attributes: s.publisher.Attributes}
	return everyAfter(ctx, statusEvery, statuses.Look)
}

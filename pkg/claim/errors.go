package claim

import "errors"

// ErrNotOurs says that a claim holds no device of our driver.
var ErrNotOurs = errors.New("no device of our driver is allocated")

// ErrNotAllocated says that a claim has no status.allocation. The scheduler
// writes it once a pod uses the claim.
var ErrNotAllocated = errors.New("status.allocation is missing")

package writer

import (
	"time"

	"golang.org/x/sys/unix"
)

// now returns the time in UTC, and CLOCK_BOOTTIME in nanoseconds, which continues while the machine sleeps and can't be
// set.
func now() (time.Time, int64) {
	var boot unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) // which fails for unknown clocks only
	return time.Now().UTC(), boot.Nano()
}

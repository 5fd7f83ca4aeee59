package writer

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// now returns the time in UTC, and CLOCK_BOOTTIME in nanoseconds, which continues while the machine sleeps and can't be
// set.
func now() (time.Time, int64) {
	var boot unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) // which fails for unknown clocks only
	return time.Now().UTC(), boot.Nano()
}

// tick is a moment on the clocks of a ledger. Its zero value is before the first event.
type tick struct {
	time    time.Time
	boot    int64
	bootID  string
	elapsed int64
}

// moment returns the moment of an event.
func moment(e *ledger.Event) tick {
	return tick{time: e.Time, boot: e.BootTime, bootID: e.BootID, elapsed: e.Elapsed}
}

// maxOff limits how much the time between the last event before a boot and that boot adds to elapsed. Only the node's clock
// measures this time, and that clock may be wrong by years.
const maxOff = 24 * time.Hour

// then returns a later moment. Within a boot, elapsed grows by CLOCK_BOOTTIME alone.
func (t tick) then(at time.Time, boot int64, bootID string) tick {
	later := tick{time: at, boot: boot, bootID: bootID, elapsed: t.elapsed}
	switch {
	case t.time.IsZero():
	case t.bootID == bootID:
		later.elapsed += max(boot-t.boot, 0)
	default:
		// Only the wall clock tells how long the node was off, and it may be wrong: it counts up to maxOff.
		off := at.Sub(t.time) - time.Duration(boot)
		later.elapsed += boot + int64(min(max(off, 0), maxOff))
	}
	return later
}

// lookAtClocks returns the present moment. The writer is at the end of the ledger.
func (w *Writer) lookAtClocks() tick {
	at, boot := w.config.Now()
	return w.at.tick.then(at.UTC().Round(0), boot, w.config.BootID)
}

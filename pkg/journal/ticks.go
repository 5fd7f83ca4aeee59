package journal

import (
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, the unit of start times in proc_pid_stat(5).
const ticksPerSecond = 100

// Ticks returns the clock ticks since the node booted, including time in suspend (CLOCK_BOOTTIME). Changes of the wall
// clock don't affect it. It has the unit of [Process.StartTime], and is valid within one boot only.
func Ticks() uint64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0 // Linux has had it since 2.6.39
	}
	return TicksIn(time.Duration(t.Nano()))
}

// TicksIn returns how many clock ticks a duration has.
func TicksIn(d time.Duration) uint64 { return uint64(d / (time.Second / ticksPerSecond)) }

// TicksFor returns how long a number of clock ticks takes.
func TicksFor(n uint64) time.Duration { return time.Duration(n) * (time.Second / ticksPerSecond) }

// HasFor reports whether the sandbox has had its functions for at least d at the time now, in clock ticks of this boot.
// It returns false if that is unknown.
func (s *Sandbox) HasFor(d time.Duration, now uint64) bool {
	since := s.Begin()
	return since != 0 && now >= since+TicksIn(d)
}

// Begin returns when the sandbox got its functions, in clock ticks since boot, or when its shim started if that is
// unknown. It is zero if neither is known.
func (s *Sandbox) Begin() uint64 {
	if s.Ticks != 0 {
		return s.Ticks
	}
	return s.Shim.StartTime
}

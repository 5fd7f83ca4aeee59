package assignment

import (
	"os"
	"time"
)

// settleTime is how long a directory must have been at rest before its
// modification time is trusted to tell of the next change: the kernel stamps
// files by a clock that ticks every 10 ms or faster (CONFIG_HZ), so that two
// changes within a tick look the same.
const settleTime = 50 * time.Millisecond

// dirVersion tells whether files in the directories were made, replaced or removed:
// each of these changes its directory's modification time (POSIX rename(),
// unlink()). A write into an existing file does not, and nobody makes one:
// journal and CDI specs are replaced whole.
type dirVersion struct {
	times   [2]time.Time
	settled bool
}

// stampOf reads the stamp now. A directory that can't be read has none that is
// settled.
func stampOf(dirs [2]string) dirVersion {
	now := time.Now()
	s := dirVersion{settled: true}
	for i, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			return dirVersion{}
		}
		s.times[i] = info.ModTime()
		s.settled = s.settled && now.Sub(s.times[i]) > settleTime
	}
	return s
}

// same reports whether nothing changed between an earlier stamp and this one.
func (s dirVersion) same(earlier dirVersion) bool { return earlier.settled && s.times == earlier.times }

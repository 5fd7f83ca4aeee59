package writer_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
)

// machine is a node whose clock can be set.
type machine struct {
	*testing.T
	writer.Config
	time time.Time
	boot time.Duration
}

// newMachine returns a node that keeps a year of small segments, three minutes after its boot.
func newMachine(t *testing.T) *machine {
	m := &machine{T: t, Config: config(t), time: time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC), boot: 3 * time.Minute}
	m.SegmentBytes, m.Retain = 1, 365*24*time.Hour
	m.Now = func() (time.Time, int64) { return m.time, int64(m.boot) }
	return m
}

// pass lets time pass on all clocks.
func (m *machine) pass(d time.Duration) { m.time, m.boot = m.time.Add(d), m.boot+d }

// reboot boots the node after it was off.
func (m *machine) reboot(off time.Duration) {
	m.time, m.boot, m.BootID = m.time.Add(off+time.Minute), time.Minute, m.BootID+"'"
}

func (m *machine) wantEvent(reason string, want bool) {
	m.Helper()
	if all := reasons(m.T, m.Dir); slices.Contains(all, reason) != want {
		m.Errorf("event %q is there: %t, want %t: %v", reason, !want, want, all)
	}
}

// TestWrongClockDropsNothing: a battery or a time server has the clock wrong by years, ahead or back, while segments get
// full or at a start.
func TestWrongClockDropsNothing(t *testing.T) {
	for _, years := range []int{12, -56} {
		t.Run(fmt.Sprint(years), func(t *testing.T) {
			m := newMachine(t)
			w := open(t, m.Config)
			write := func(w *writer.Writer, name string) {
				for i := range 4 {
					m.pass(time.Minute)
					add(t, w, fmt.Sprint(name, i))
				}
			}
			write(w, "right")
			m.time = m.time.AddDate(years, 0, 0)
			write(w, "wrong")
			write(open(t, m.Config), "restarted")
			m.reboot(time.Minute)
			write(open(t, m.Config), "rebooted")
			m.time = m.time.AddDate(-years, 0, 0)
			write(w, "right again")
			write(open(t, m.Config), "restarted again")
			m.wantEvent("right0", true)
			m.wantEvent("wrong0", true)
			if r := verify(t, m.Dir); r.Dropped != 0 {
				t.Errorf("%d events are dropped", r.Dropped)
			}
		})
	}
}

// TestAgeIsThatOfRunningNode: events are dropped in time, whatever the clock says.
func TestAgeIsThatOfRunningNode(t *testing.T) {
	m := newMachine(t)
	add(t, open(t, m.Config), "first", "second")
	m.time = m.time.AddDate(-3, 0, 0)
	m.pass(m.Retain - time.Hour)
	add(t, open(t, m.Config), "third")
	m.wantEvent("first", true)
	m.pass(2 * time.Hour)
	open(t, m.Config)
	m.wantEvent("first", false)
	m.wantEvent("third", true)
}

// TestTimeOffCountsUpToOneDay: how long a node was off, only its clock says.
func TestTimeOffCountsUpToOneDay(t *testing.T) {
	const day = 24 * time.Hour
	for off, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, 90 * day: day, -90 * day: 0} {
		m := newMachine(t)
		add(t, open(t, m.Config), "before")
		m.reboot(off)
		m.pass(time.Hour)
		add(t, open(t, m.Config), "after")
		for e, err := range ledger.Events(os.DirFS(m.Dir)) {
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Duration(e.Event.Elapsed); e.Event.Reason == "after" && got != want+time.Hour+time.Minute {
				t.Errorf("off for %s: %s elapsed, want %s of them, and an hour and a minute of running", off, got, want)
			}
		}
	}
}

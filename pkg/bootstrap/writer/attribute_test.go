package writer

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
)

// kernel answers a write after a time.
type kernel struct{ takes time.Duration }

func (k kernel) Write(string, []byte) error { time.Sleep(k.takes); return nil }

// TestWriteIsNotWaitedForWithoutEnd: an unbind that hangs holds the lock that driver_override needs. Huge pages take longer than
// anything else, and no function has to do with them.
func TestWriteIsNotWaitedForWithoutEnd(t *testing.T) {
	const override, pages = "sys/bus/pci/devices/0000:3b:00.0/driver_override", "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	const parameter = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			path            string
			takes, waits    time.Duration
			stuck, function bool // function: the error is about one
		}{
			{override, writeLimit / 2, writeLimit / 2, false, false},
			{override, time.Hour, writeLimit, true, true},
			{parameter, time.Hour, writeLimit, true, false},
			{pages, pagesLimit / 2, pagesLimit / 2, false, false},
			{pages, time.Hour, pagesLimit, true, false},
		} {
			begin := time.Now()
			err := attributeWriter{kernel{c.takes}}.Write(c.path, []byte("1"))
			if time.Since(begin) != c.waits {
				t.Errorf("a write to %s that takes %s was waited for %s, want %s", c.path, c.takes, time.Since(begin), c.waits)
			}
			stuck, _ := errors.AsType[*bootstrap.StuckError](err)
			if c.stuck != (stuck != nil && *stuck == bootstrap.StuckError{Path: c.path, Limit: c.waits}) || stuck == nil && err != nil {
				t.Errorf("a write to %s that takes %s: %v", c.path, c.takes, err)
			}
			if stuck != nil && strings.Contains(err.Error(), "function") != c.function {
				t.Errorf("the text of %s: %v", c.path, err)
			}
		}
		time.Sleep(time.Hour) // the writes that were left behind end
	})
}

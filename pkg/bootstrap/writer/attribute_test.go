package writer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// kernel answers a write after a time.
type kernel struct{ takes time.Duration }

func (k kernel) Write(string, []byte) error { time.Sleep(k.takes); return nil }

// TestWriteIsNotWaitedForWithoutEnd: an unbind that hangs holds the lock that driver_override needs.
func TestWriteIsNotWaitedForWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for takes, want := range map[time.Duration]error{writeLimit / 2: nil, time.Hour: errStuck} {
			begin := time.Now()
			err := attributeWriter{kernel{takes}, writeLimit}.Write("sys/bus/pci/devices/0000:3b:00.0/driver_override", []byte("vfio-pci"))
			if !errors.Is(err, want) || time.Since(begin) > writeLimit {
				t.Errorf("a write that takes %s: %v after %s, want %v", takes, err, time.Since(begin), want)
			}
		}
		time.Sleep(time.Hour) // the write that was left behind ends
	})
}

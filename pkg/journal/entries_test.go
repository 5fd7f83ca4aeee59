package journal

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

func TestEntriesShareFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, begun, gate := errors.New("full"), make(chan struct{}, 9), make(chan struct{})
		e := newEntries("")
		e.fsync = func(string) error {
			begun <- struct{}{}
			<-gate
			return full
		}
		var all sync.WaitGroup
		call := func() {
			if err := e.sync(); !errors.Is(err, full) {
				t.Errorf("got %v", err)
			}
		}
		all.Go(call)
		<-begun
		for range 8 {
			all.Go(call) // an fsync that has begun is not theirs
		}
		synctest.Wait()
		gate <- struct{}{}
		<-begun
		gate <- struct{}{}
		all.Wait()
		if len(begun) > 0 {
			t.Errorf("%d more than two fsyncs for nine calls", len(begun))
		}
	})
}

package await_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kata-vfio/kata-vfio/test/internal/await"
)

var (
	errNotYet = errors.New("not yet")
	errEnded  = errors.New("it ended")
	errEnough = errors.New("enough")
)

func living() error { return nil }

func pace() await.Pace { return await.Pace{Limit: 2 * time.Second, Pause: time.Second} }

func TestAwaitRetriesUntilSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, tries := time.Now(), 0
		err := await.Until(t.Context(), pace(), living, func(context.Context) error {
			if tries++; tries < 4 {
				return errNotYet
			}
			return nil
		})
		if took := time.Since(begin); err != nil || tries != 4 || took != 3*time.Second {
			t.Errorf("%v after %d tries, %v", err, tries, took)
		}
	})
}

func TestTryThatHangsIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 7*time.Second, errEnough)
		defer cancel()
		tries := 0
		err := await.Until(ctx, pace(), living, func(ctx context.Context) error {
			tries++
			<-ctx.Done()
			return errNotYet
		})
		if !errors.Is(err, errEnough) || !errors.Is(err, errNotYet) || tries != 3 {
			t.Errorf("%v after %d tries", err, tries)
		}
	})
}

func TestAwaitStopsAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		ended := func() error {
			if time.Since(begin) < time.Minute {
				return nil
			}
			return errEnded
		}
		err := await.Until(t.Context(), pace(), ended, func(context.Context) error { return errNotYet })
		if took := time.Since(begin); !errors.Is(err, errEnded) || !errors.Is(err, errNotYet) || took != time.Minute {
			t.Errorf("%v after %v", err, took)
		}
	})
}

package podres_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
)

// keep serves an instance that watches over its socket.
func (w *world) keep(cfg podres.Config) *instance {
	w.t.Helper()
	l, err := podres.Listen(w.t.Context(), w.socket())
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	i := &instance{stop: stop, done: make(chan error, 1)}
	go func() { i.done <- podres.New(cfg).Keep(ctx, l, w.socket()) }()
	w.t.Cleanup(func() { i.end(w.t) })
	return i
}

// awaitAnswer waits until somebody answers, the one who has it to tell.
func (w *world) awaitAnswer() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := w.get(); err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	w.t.Fatal("nobody answers")
}

func TestSocketIsTakenBackFromAnInstanceThatIsGone(t *testing.T) {
	for name, goes := range map[string]func(*testing.T, *world, *instance){
		"rolled back": func(t *testing.T, _ *world, newer *instance) { newer.end(t) },
		"with the file removed": func(t *testing.T, w *world, newer *instance) {
			newer.end(t)
			mustDo(t, os.Remove(w.socket()))
		},
		"and again after another came": func(t *testing.T, w *world, newer *instance) {
			newer.end(t)
			w.awaitAnswer()
			w.start(w.config()).end(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.startKubelet()
			w.keep(w.config())
			newer := w.start(w.config())
			if _, err := w.get(); err != nil {
				t.Fatal(err)
			}
			goes(t, w, newer)
			w.awaitAnswer()
		})
	}
}

// An instance that answers keeps the socket, whoever else watches it.
func TestSocketOfAnInstanceThatAnswersIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.startKubelet()
	w.keep(w.config())
	w.keep(w.config())
	before, err := os.Stat(w.socket())
	mustDo(t, err)
	for begin := time.Now(); time.Since(begin) < 3*time.Second; { // three looks at it
		if _, err := w.get(); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := os.Stat(w.socket()); err != nil || !os.SameFile(before, after) {
		t.Errorf("the socket is another: %v", err)
	}
}

package podres_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// away are the ways in which the kubelet gives no answer.
func away() map[string]func(*world) {
	return map[string]func(*world){
		"is not there": func(*world) {},
		"is too slow": func(w *world) {
			w.kubelet.before = func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}
			w.startKubelet()
		},
		"takes connections and says nothing": func(w *world) {
			l, err := net.Listen("unix", w.kubeletSocket())
			if err != nil {
				w.t.Fatal(err)
			}
			w.t.Cleanup(func() { _ = l.Close() })
		},
		"does not know the pod": func(w *world) {
			w.kubelet.before = func(context.Context) error { return status.Error(codes.Unknown, "pod not found") }
			w.startKubelet()
		},
	}
}

func TestKubeletThatDoesNotAnswer(t *testing.T) {
	for how, kubelet := range away() {
		t.Run(how, func(t *testing.T) {
			for name, c := range map[string]struct {
				node func(*world)
				say  string
			}{
				"leaves open whether a pod has more than is prepared": {
					node: func(w *world) { w.prepared(record("c1", "p1", gpu)) }, say: "the devices that it should have are unknown",
				},
				"leaves open whether a pod should have devices": {
					node: func(*world) {}, say: "the devices that it should have are unknown",
				},
				"leaves open whose claims they are": {
					node: func(w *world) {
						noBundle(w)
						w.prepared(record("c1", "p1", gpu))
					},
					say: "it is unknown which pod of this name asks",
				},
			} {
				t.Run(name, func(t *testing.T) {
					w := newWorld(t)
					w.limit = 50 * time.Millisecond
					kubelet(w)
					c.node(w)
					w.start(w.config())
					began := time.Now()
					answer, err := w.get()
					if took := time.Since(began); took > 10*time.Second {
						t.Errorf("it took %s", took)
					}
					if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), "ask the kubelet") {
						t.Errorf("Get = %v, %v; want Unavailable that says %q", plugged(answer), err, c.say)
					}
				})
			}
		})
	}
}

// The kubelet's limit is for all its callers: a node that starts thirty pods at
// once meets it.
func TestKubeletAtItsRateLimitIsAskedAgain(t *testing.T) {
	w := newWorld(t)
	var calls atomic.Int32
	w.kubelet.before = func(context.Context) error {
		if calls.Add(1) <= 2 {
			return status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return nil
	}
	w.startKubelet()
	w.start(w.config())
	if _, err := w.get(); err != nil || calls.Load() != 3 {
		t.Errorf("Get = %v after %d calls; want an answer at the third", err, calls.Load())
	}
}

// A kubelet that is starting is heard within the limit.
func TestKubeletThatStartsIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.start(w.config())
	result := make(chan error, 1)
	go func() {
		_, err := w.get()
		result <- err
	}()
	select {
	case err := <-result:
		t.Fatalf("Get = %v; want it to wait for the kubelet", err)
	case <-time.After(100 * time.Millisecond):
	}
	w.startKubelet()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

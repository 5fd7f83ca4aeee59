package dra_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// eventServer is an API server that answers the writing of Events with an error, if it has one.
type eventServer struct {
	*fake.Clientset
	mu   sync.Mutex // guards those below
	err  error
	told []string
}

// answer sets the error.
func (s *eventServer) answer(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func newEventServer() *eventServer {
	s := &eventServer{Clientset: fake.NewClientset()}
	s.PrependReactor("create", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err != nil {
			return true, nil, s.err
		}
		e := a.(clienttesting.CreateAction).GetObject().(*eventsv1.Event)
		s.told = append(s.told, fmt.Sprintf("%s %s at %s", e.Reason, e.Regarding.Name, e.EventTime.UTC().Format("15:04")))
		return false, nil, nil
	})
	return s
}

func claimNamed(name string) kubeletplugin.NamespacedObject {
	return kubeletplugin.NamespacedObject{NamespacedName: types.NamespacedName{Namespace: "tenant", Name: name}, UID: types.UID("uid-" + name)}
}

// finalReporter returns a reporter with an outbox, which run until ctx ends.
func finalReporter(ctx context.Context, server *eventServer, file string) *dra.Reporter {
	outbox := dra.NewOutbox(server, "worker-1", file, plugintest.Quiet())
	r := dra.NewReporter(dra.ReporterConfig{Client: server, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet(), Final: outbox})
	for _, run := range []func(context.Context) error{outbox.Run, r.Run} {
		go func() { _ = run(ctx) }() // they have no error to return
	}
	return r
}

// TestEventsOfEndsAreToldAfterHoursWithoutTheAPIServer, in their order and with their time, by the instance that made them and
// by the next one, once.
func TestEventsOfEndsAreToldAfterHoursWithoutTheAPIServer(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server, file := newEventServer(), filepath.Join(t.TempDir(), "events.json")
			start := func() (*dra.Reporter, func()) {
				ctx, stop := context.WithCancel(t.Context())
				return finalReporter(ctx, server, file), stop
			}
			r, stop := start()
			server.answer(errors.New("dial tcp: connection refused"))
			r.Unprepared(claimNamed("a"), 1)
			time.Sleep(3 * time.Hour)
			r.Unprepared(claimNamed("b"), 1)
			time.Sleep(3 * time.Hour)
			synctest.Wait()
			if text, err := os.ReadFile(file); err != nil || strings.Count(string(text), "Unprepared") != 2 {
				t.Errorf("on disk: %s, %v; want both events", text, err)
			}
			if restarted {
				stop()
				synctest.Wait()
				_, stop = start()
			}
			server.answer(nil)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			want := []string{"Unprepared a at 00:00", "Unprepared b at 03:00"}
			if diff := cmp.Diff(want, server.told); diff != "" {
				t.Errorf("restarted: %t (-want +got):\n%s", restarted, diff)
			}
			if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file is still there (%v)", err)
			}
			stop()
			synctest.Wait()
		})
	}
}

// TestEventThatIsRefusedHoldsUpNoOther, nor does one that is there already.
func TestEventThatIsRefusedHoldsUpNoOther(t *testing.T) {
	gone := eventsv1.SchemeGroupVersion.WithResource("events").GroupResource()
	for name, err := range map[string]error{
		"its namespace is gone": apierrors.NewNotFound(gone, "tenant"),
		"it is there already":   apierrors.NewAlreadyExists(gone, "a"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, file := newEventServer(), filepath.Join(t.TempDir(), "events.json")
				r := finalReporter(t.Context(), server, file)
				server.answer(err)
				r.Unprepared(claimNamed("a"), 1)
				synctest.Wait()
				server.answer(nil)
				r.Unprepared(claimNamed("b"), 1)
				synctest.Wait()
				if diff := cmp.Diff([]string{"Unprepared b at 00:00"}, server.told); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestEventsOfLongNamesAreAccepted: the name of a claim may have 253 characters, and that of its Event is a DNS subdomain, too.
func TestEventsOfLongNamesAreAccepted(t *testing.T) {
	for _, claim := range []string{"a", strings.Repeat("a", 200), strings.Repeat("a", 253), strings.Repeat("a", 199) + "-b", strings.Repeat("a", 198) + "-.b"} {
		synctest.Test(t, func(t *testing.T) {
			server := newEventServer()
			r := finalReporter(t.Context(), server, filepath.Join(t.TempDir(), "events.json"))
			r.Unprepared(claimNamed(claim), 1)
			synctest.Wait()
			all, err := server.EventsV1().Events("tenant").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(all.Items) != 1 {
				t.Fatalf("%d events of claim %s, %v; want one", len(all.Items), claim, err)
			}
			name := all.Items[0].Name
			if problems := validation.NameIsDNSSubdomain(name, false); len(problems) > 0 || !strings.HasPrefix(name, claim[:min(len(claim), 198)]) {
				t.Errorf("the event of claim %s has the name %s: %q", claim, name, problems)
			}
		})
	}
}

// TestOutboxIsBounded, and keeps the newest.
func TestOutboxIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, file := newEventServer(), filepath.Join(t.TempDir(), "events.json")
		r := finalReporter(t.Context(), server, file)
		server.answer(errors.New("dial tcp: connection refused"))
		for i := range 1200 {
			r.Unprepared(claimNamed(fmt.Sprint("claim-", i)), 1)
		}
		synctest.Wait()
		server.answer(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(server.told) != 1000 || server.told[999] != "Unprepared claim-1199 at 00:00" {
			t.Errorf("%d events, want the newest 1000", len(server.told))
		}
		all, err := server.EventsV1().Events("tenant").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(all.Items) != 1000 {
			t.Errorf("%d events at the server, %v", len(all.Items), err)
		}
	})
}

package standin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kata-vfio/kata-vfio/test/bench/standin"
)

// TestStandInAsksLittleAtStart: a plugin's requests at its start, on one connection, with one watch, of its own node's
// slices only. A thousand plugins multiply each request, and what a watch of other nodes' objects sends.
func TestStandInAsksLittleAtStart(t *testing.T) {
	s := newServer(t)
	run(t, s)
	s.await(t, "create resourceslices", standin.Slices)
	want := map[string]int{"list resourceslices": 1, "watch resourceslices": 1, "get nodes/worker-1": 1, "create resourceslices": standin.Slices}
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff(want, s.calls); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	for _, selector := range s.selectors {
		if want := "spec.driver=kata-vfio.dev,spec.nodeName=worker-1"; selector != want {
			t.Errorf("lists or watches %q, want %q", selector, want)
		}
	}
	if s.connections != 1 {
		t.Errorf("%d connections, want 1", s.connections)
	}
	if !maps.Equal(s.bodies, map[string]int{"application/vnd.kubernetes.protobuf": standin.Slices}) {
		t.Errorf("bodies %v, want protobuf", s.bodies)
	}
}

// run runs the stand-in of worker-1 until the test ends.
func run(t *testing.T, s *server) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- standin.Run(ctx, standin.Config{Node: "worker-1", Dir: dir, Spread: 10 * time.Millisecond, Server: &rest.Config{
			Host: s.http.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, Dial: (&net.Dialer{}).DialContext,
		}})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// server is an API server that has one node and keeps no slices.
type server struct {
	http *httptest.Server

	mu          sync.Mutex // guards below
	calls       map[string]int
	bodies      map[string]int // content types
	selectors   []string
	connections int
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{calls: map[string]int{}, bodies: map[string]int{}}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.answer))
	s.http.EnableHTTP2 = true
	s.http.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if state == http.StateNew {
			s.connections++
		}
	}
	s.http.StartTLS()
	t.Cleanup(s.http.Close)
	t.Cleanup(s.http.CloseClientConnections)
	return s
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/v1/")+len("/v1/"):]
	verb := strings.ToLower(r.Method)
	selected := resource == "resourceslices" && r.Method == http.MethodGet
	switch {
	case r.URL.Query().Get("watch") != "":
		verb = "watch"
	case selected:
		verb = "list"
	case r.Method == http.MethodPost:
		verb = "create"
	}
	s.mu.Lock()
	s.calls[verb+" "+resource]++
	if selected {
		s.selectors = append(s.selectors, r.URL.Query().Get("fieldSelector"))
	}
	if verb == "create" {
		s.bodies[r.Header.Get("Content-Type")]++
	}
	n := s.calls[verb+" "+resource]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch verb {
	case "watch":
		watch(w, r)
	case "list":
		reply(w, &resourceapi.ResourceSliceList{TypeMeta: kind("ResourceSliceList"), ListMeta: metav1.ListMeta{ResourceVersion: "1"}})
	case "create":
		create(w, r, n)
	default:
		reply(w, &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "worker-1", UID: "node"}})
	}
}

// watch has no objects, says so, and lasts until the client leaves.
func watch(w http.ResponseWriter, r *http.Request) {
	mark := &resourceapi.ResourceSlice{TypeMeta: kind("ResourceSlice"), ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	reply(w, map[string]any{"type": "BOOKMARK", "object": mark})
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// create answers with the slice as it would be stored.
func create(w http.ResponseWriter, r *http.Request, n int) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		panic(err)
	}
	slice := o.(*resourceapi.ResourceSlice)
	slice.TypeMeta, slice.Name, slice.ResourceVersion = kind("ResourceSlice"), fmt.Sprint(slice.GenerateName, n), fmt.Sprint(n+1)
	reply(w, slice)
}

func kind(name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: name}
}

func reply(w http.ResponseWriter, o any) {
	if err := json.NewEncoder(w).Encode(o); err != nil {
		panic(err)
	}
}

// await waits for a number of requests of a kind, and then a while for more of any.
func (s *server) await(t *testing.T, call string, want int) {
	t.Helper()
	for range 200 {
		time.Sleep(100 * time.Millisecond)
		s.mu.Lock()
		got := s.calls[call]
		s.mu.Unlock()
		if got >= want {
			time.Sleep(300 * time.Millisecond)
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Fatalf("no %d requests to %s: %v", want, call, slices.Sorted(maps.Keys(s.calls)))
}

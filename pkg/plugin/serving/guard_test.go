package serving_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
)

// api is an API server that knows tokens and who may read metrics.
type api struct {
	mu       sync.Mutex // guards all below
	users    map[string]authenticationv1.UserInfo
	readers  map[string]authorizationv1.SubjectAccessReviewStatus
	fails    func(path, token string) *metav1.Status // of a request, if not nil
	hangs    bool
	asked    []string // paths
	inFlight int
	most     int
	lastSeen authorizationv1.SubjectAccessReviewSpec
}

func newAPI() *api {
	return &api{
		users: map[string]authenticationv1.UserInfo{
			"t-reader":   {Username: "reader", UID: "u-1", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"e": {"1"}}},
			"t-stranger": {Username: "stranger"},
			"t-denied":   {Username: "denied"},
		},
		readers: map[string]authorizationv1.SubjectAccessReviewStatus{"reader": {Allowed: true}, "denied": {Allowed: true, Denied: true}},
	}
}

// RoundTrip answers as the API server, in the caller's goroutine.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	a.begin(r.URL.Path)
	defer a.end()
	if a.hanging() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	if err := a.answer(w, r); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

func (a *api) begin(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, path[strings.LastIndexByte(path, '/')+1:])
	a.inFlight++
	a.most = max(a.most, a.inFlight)
}

func (a *api) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inFlight--
}

func (a *api) hanging() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.hangs
}

func (a *api) answer(w *httptest.ResponseRecorder, r *http.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users == nil {
		return errors.New("connection refused")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if strings.HasSuffix(r.URL.Path, "tokenreviews") {
		return a.reviewToken(w, r.URL.Path, body)
	}
	return a.reviewAccess(w, r.URL.Path, body)
}

func (a *api) reviewToken(w *httptest.ResponseRecorder, path string, body []byte) error {
	var review authenticationv1.TokenReview
	if err := json.Unmarshal(body, &review); err != nil {
		return err
	}
	if a.fails != nil {
		if s := a.fails(path, review.Spec.Token); s != nil {
			return fail(w, s)
		}
	}
	if user, ok := a.users[review.Spec.Token]; ok {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: user}
	} else {
		review.Status.Error = "invalid bearer token " + review.Spec.Token
	}
	return json.NewEncoder(w).Encode(review)
}

func (a *api) reviewAccess(w *httptest.ResponseRecorder, path string, body []byte) error {
	var review authorizationv1.SubjectAccessReview
	if err := json.Unmarshal(body, &review); err != nil {
		return err
	}
	a.lastSeen = review.Spec
	if a.fails != nil {
		if s := a.fails(path, ""); s != nil {
			return fail(w, s)
		}
	}
	review.Status = a.readers[review.Spec.User]
	return json.NewEncoder(w).Encode(review)
}

func fail(w *httptest.ResponseRecorder, s *metav1.Status) error {
	s.Kind, s.APIVersion = "Status", "v1"
	w.WriteHeader(int(s.Code))
	return json.NewEncoder(w).Encode(s)
}

// change changes what the API server knows.
func (a *api) change(f func(*api)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a)
}

// reviews returns how many requests there were so far.
func (a *api) reviews() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.asked)
}

// guarded is the handler of metrics before an API server, and what it logs.
func guarded(t *testing.T, a *api) (http.Handler, *bytes.Buffer) {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "http://api", Transport: a, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "kata_vfio_test"}))
	var log bytes.Buffer
	return serving.Metrics(registry, serving.NewGuard(client, slog.New(slog.NewTextHandler(&log, nil)))), &log
}

// ask asks for metrics with the text of the header Authorization, if any.
func ask(h http.Handler, authorization string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", http.NoBody)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestGuardAllowsReaders(t *testing.T) {
	down := func(a *api) { a.users = nil }
	cases := map[string]struct {
		authorization string
		change        func(*api)
		code          int
		body          string
		asked         []string
	}{
		"no token":              {"", nil, 401, "need a bearer token", nil},
		"another scheme":        {"Basic dDp0", nil, 401, "need a bearer token", nil},
		"an empty token":        {"Bearer  ", nil, 401, "need a bearer token", nil},
		"an unknown token":      {"Bearer t-unknown", nil, 401, "does not accept", []string{"tokenreviews"}},
		"a user without a role": {"Bearer t-stranger", nil, 403, `user "stranger" may not get /metrics`, []string{"tokenreviews", "subjectaccessreviews"}},
		"a user who is denied":  {"Bearer t-denied", nil, 403, `user "denied"`, []string{"tokenreviews", "subjectaccessreviews"}},
		"a reader":              {"Bearer t-reader", nil, 200, "kata_vfio_test 0", []string{"tokenreviews", "subjectaccessreviews"}},
		"a scheme in capitals":  {"BEARER t-reader", nil, 200, "kata_vfio_test 0", []string{"tokenreviews", "subjectaccessreviews"}},
		"no token, nobody asked": {
			"", down, 401, "need a bearer token", nil,
		},
		"no API server": {"Bearer t-reader", down, 503, "can't be asked", []string{"tokenreviews"}},
		"no right to review tokens": {
			"Bearer t-reader", func(a *api) { a.fails = refuses("tokenreviews") }, 503, "can't be asked", []string{"tokenreviews"},
		},
		"no right to review access": {
			"Bearer t-reader", func(a *api) { a.fails = refuses("subjectaccessreviews") }, 503, "can't be asked",
			[]string{"tokenreviews", "subjectaccessreviews"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a := newAPI()
			if c.change != nil {
				a.change(c.change)
			}
			h, _ := guarded(t, a)
			got := ask(h, c.authorization)
			if got.Code != c.code || !strings.Contains(got.Body.String(), c.body) {
				t.Errorf("%d %q, want %d %q", got.Code, got.Body, c.code, c.body)
			}
			if (got.Header().Get("WWW-Authenticate") != "") != (c.code == 401) {
				t.Errorf("headers %v", got.Header())
			}
			if diff := cmp.Diff(c.asked, a.asked); diff != "" {
				t.Errorf("requests differ (-want +got):\n%s", diff)
			}
			if c.code != 200 && strings.Contains(got.Body.String(), "kata_vfio_test") {
				t.Error("it shows metrics")
			}
		})
	}
}

// refuses is an API server that forbids the requests for a resource.
func refuses(resource string) func(string, string) *metav1.Status {
	return func(path, _ string) *metav1.Status {
		if !strings.HasSuffix(path, resource) {
			return nil
		}
		return &metav1.Status{Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: resource + " is forbidden"}
	}
}

// TestWholeUserIsAskedAbout: a role may be bound to a group, and an authorizer may go
// by what the token adds.
func TestWholeUserIsAskedAbout(t *testing.T) {
	a := newAPI()
	h, _ := guarded(t, a)
	ask(h, "Bearer t-reader")
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "reader", UID: "u-1", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"e": {"1"}},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}
	if diff := cmp.Diff(want, a.lastSeen); diff != "" {
		t.Errorf("the review differs (-want +got):\n%s", diff)
	}
}

// TestReviewsAreRemembered: for a while, what the API server said; never, that it said
// nothing.
func TestReviewsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		h, _ := guarded(t, a)
		steps := []struct {
			what    string
			change  func(*api)
			pause   time.Duration
			token   string
			code    int
			reviews int // requests since the last step
		}{
			{"a reader is asked about", nil, 0, "t-reader", 200, 2},
			{"once", nil, 30 * time.Second, "t-reader", 200, 0},
			{"a reader's right is taken", func(a *api) { a.readers = nil }, 0, "t-reader", 200, 0},
			{"which counts after a minute", nil, 31 * time.Second, "t-reader", 403, 2},
			{"and is remembered", nil, 0, "t-reader", 403, 0},
			{"a right that is granted", func(a *api) { a.readers = newAPI().readers }, 0, "t-reader", 403, 0},
			{"counts after seconds", nil, 11 * time.Second, "t-reader", 200, 2},
			{"a token nobody knows", nil, 0, "t-unknown", 401, 1},
			{"is remembered", nil, 9 * time.Second, "t-unknown", 401, 0},
			{"for seconds", nil, 2 * time.Second, "t-unknown", 401, 1},
			{"without an API server", func(a *api) { a.users = nil }, 0, "t-stranger", 503, 1},
			{"it is tried again", nil, 0, "t-stranger", 503, 1},
			{"a reader reads on", nil, 0, "t-reader", 200, 0},
			{"but not for ever", nil, time.Minute, "t-reader", 503, 1},
			{"it is back", func(a *api) { a.users = newAPI().users }, 0, "t-reader", 200, 2},
		}
		for _, s := range steps {
			if s.change != nil {
				a.change(s.change)
			}
			time.Sleep(s.pause)
			before := a.reviews()
			if got := ask(h, "Bearer "+s.token); got.Code != s.code || a.reviews()-before != s.reviews {
				t.Fatalf("%s: %d after %d requests, want %d after %d", s.what, got.Code, a.reviews()-before, s.code, s.reviews)
			}
		}
	})
}

// TestMadeUpTokensDisplaceNoReader: what is remembered is bounded, and a reader's token
// stays.
func TestMadeUpTokensDisplaceNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		h, _ := guarded(t, a)
		ask(h, "Bearer t-reader")
		const madeUp = 3000
		for i := range madeUp {
			ask(h, fmt.Sprintf("Bearer t-%d", i))
		}
		before := a.reviews()
		if got := ask(h, "Bearer t-reader"); got.Code != 200 || a.reviews() != before {
			t.Errorf("the reader gets %d after %d requests", got.Code, a.reviews()-before)
		}
		for token, reviews := range map[string]int{"t-0": 1, fmt.Sprintf("t-%d", madeUp-1): 0} {
			before := a.reviews()
			if got := ask(h, "Bearer "+token); got.Code != 401 || a.reviews()-before != reviews {
				t.Errorf("%s gets %d after %d requests, want 401 after %d", token, got.Code, a.reviews()-before, reviews)
			}
		}
	})
}

// TestOneReviewForAllWhoAskAtOnce: with the same token.
func TestOneReviewForAllWhoAskAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		h, _ := guarded(t, a)
		var answered, refused atomic.Int64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				switch got := ask(h, "Bearer t-reader"); got.Code {
				case http.StatusOK:
					answered.Add(1)
				case http.StatusUnauthorized, http.StatusForbidden:
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		if a.reviews() != 2 || answered.Load() == 0 || refused.Load() > 0 {
			t.Errorf("%d requests, want 2; %d answered, %d refused", a.reviews(), answered.Load(), refused.Load())
		}
	})
}

// TestAPIServerThatHangs keeps nobody waiting for long, and has few requests open.
func TestAPIServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.hangs = true
		h, log := guarded(t, a)
		begin := time.Now()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				if got := ask(h, fmt.Sprintf("Bearer t-%d", i)); got.Code != 503 {
					t.Errorf("%d", got.Code)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		if a.most > 8 {
			t.Errorf("%d requests at once, want at most 8", a.most)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 {
			t.Errorf("%d lines of log, want 1:\n%s", lines, log)
		}
	})
}

// TestGuardLogsNoToken: no log or response has the token, even if the API server's error quotes it.
func TestGuardLogsNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		a.fails = func(_, token string) *metav1.Status {
			return &metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: "no review of " + token}
		}
		h, log := guarded(t, a)
		for range 3 {
			if got := ask(h, "Bearer s3cret"); got.Code != 503 || strings.Contains(got.Body.String(), "s3cret") {
				t.Errorf("%d %s", got.Code, got.Body)
			}
		}
		a.change(func(a *api) { a.fails = nil })
		if got := ask(h, "Bearer s3cret"); got.Code != 401 || strings.Contains(got.Body.String(), "s3cret") {
			t.Errorf("%d %s", got.Code, got.Body)
		}
		if text := log.String(); strings.Contains(text, "s3cret") || strings.Count(text, "create a TokenReview: no review of <token>") != 1 {
			t.Errorf("the log is\n%s", text)
		}
	})
}

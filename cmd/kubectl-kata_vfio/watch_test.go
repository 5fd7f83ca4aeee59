package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// lines are the lines that a command that goes on writes, as they come.
type lines chan string

func (l lines) Write(data []byte) (int, error) {
	for line := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n") {
		l <- line
	}
	return len(data), nil
}

// next is the next line; a test waits no longer than a minute for it.
func (l lines) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-l:
		return line
	case <-time.After(time.Minute):
		t.Fatal("nothing more is written")
		return ""
	}
}

// watching runs a command until the test ends it; done has its error.
func watching(t *testing.T, client *fake.Clientset, args ...string) (out lines, end context.CancelFunc, done chan error) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	out, done = make(lines, 100), make(chan error, 1)
	go func() { done <- execute(ctx, sessionOf(client), append(args, "--watch"), out, io.Discard) }()
	return out, end, done
}

// take gives a claim to a device that was free.
func take(t *testing.T, client *fake.Clientset, namespace, device string) {
	t.Helper()
	c := decode(t, []byte(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {namespace: `+namespace+`, name: late, uid: uid-late}
status:
  allocation: {devices: {results: [{request: device, driver: kata-vfio.dev, pool: worker-1/kata-vfio.dev/pf-0000-5e-00-0, device: `+device+`}]}}
`)).(*resourceapi.ResourceClaim)
	if _, err := client.ResourceV1().ResourceClaims(namespace).Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestWatchExplainsWhatChanges: an object that is not there yet is waited for, and each explanation follows the one before.
func TestWatchExplainsWhatChanges(t *testing.T) {
	client := sample(t)
	out, end, done := watching(t, client, "explain", "claim/late")
	if line := out.next(t); line != "there is no claim team-a/late yet" {
		t.Errorf("before the claim: %s", line)
	}
	take(t, client, "team-a", "vf-0000-5e-00-3")
	for _, want := range []string{"", "claim team-a/late has devices of node worker-1, which has not said that they are ready"} {
		if line := out.next(t); line != want {
			t.Errorf("with the claim: got %q, want %q", line, want)
		}
	}
	end()
	if err := <-done; err != nil {
		t.Errorf("the watch ends with %v", err)
	}
}

// TestWatchAppendsTheRowsThatChanged, and only those, where there is no terminal, and
// ends without an error.
func TestWatchAppendsTheRowsThatChanged(t *testing.T) {
	client := sample(t)
	out, end, done := watching(t, client, "devices", "--node", "worker-1")
	for i := range 8 {
		if line := out.next(t); (i == 0) != strings.HasPrefix(line, "NODE ") {
			t.Errorf("line %d: %s", i, line)
		}
	}
	take(t, client, "team-c", "vf-0000-5e-00-3")
	if line := out.next(t); !strings.Contains(line, "vf-0000-5e-00-3") || !strings.Contains(line, "claimed team-c/late") {
		t.Errorf("the change is told as %s", line)
	}
	if err := client.ResourceV1().ResourceSlices().Delete(t.Context(), "worker-1-pf-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if line := out.next(t); !strings.HasPrefix(line, "device worker-1/worker-1/kata-vfio.dev/pf-0000-5e-00-0/vf-") || !strings.HasSuffix(line, " is gone") {
			t.Errorf("line %d of the devices that went: %s", i, line)
		}
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(out) > 0 {
		t.Errorf("more is written: %s", <-out)
	}
}

// TestWatchAsksForEachKindOnce, however much changes.
func TestWatchAsksForEachKindOnce(t *testing.T) {
	client := sample(t)
	out, end, done := watching(t, client, "devices", "-o", "json")
	for range 10 {
		out.next(t)
	}
	asked := len(client.Actions())
	take(t, client, "team-c", "vf-0000-5e-00-3")
	if line := out.next(t); !strings.HasPrefix(line, `{"type":"row","key":"device worker-1/worker-1/kata-vfio.dev/pf-0000-5e-00-0/vf-0000-5e-00-3","row":{"node":"worker-1",`) {
		t.Errorf("the change is told as %s", line)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if more := client.Actions()[asked:]; len(more) != 1 || more[0].GetVerb() != "create" {
		t.Errorf("a change made it ask again: %v", more)
	}
}

// TestWatchRedrawsADrawingThatChanged as a whole.
func TestWatchRedrawsADrawingThatChanged(t *testing.T) {
	client := sample(t)
	out, end, done := watching(t, client, "topology", "worker-1")
	if line := out.next(t); line != "worker-1: 7 devices, 3 claimed, 2 free, 1 withheld, 1 tainted" {
		t.Errorf("it begins with %s", line)
	}
	take(t, client, "team-c", "vf-0000-5e-00-3")
	for line := ""; line != "worker-1: 7 devices, 4 claimed, 1 free, 1 withheld, 1 tainted"; {
		line = out.next(t)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestWatchEndsWithTheRight to watch.
func TestWatchEndsWithTheRight(t *testing.T) {
	client := sample(t)
	client.PrependWatchReactor("resourceslices", func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, nil, forbidden("resourceslices")
	})
	_, end, done := watching(t, client, "devices")
	defer end()
	if err := <-done; exitCode(err) != exitForbidden {
		t.Errorf("it ends with %v", err)
	}
}

// TestWatchThatIsNotKnownAnyMore ends, which is not lack of rights.
func TestWatchThatIsNotKnownAnyMore(t *testing.T) {
	client := sample(t)
	client.PrependWatchReactor("resourceslices", func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, nil, apierrors.NewUnauthorized("expired")
	})
	_, end, done := watching(t, client, "devices")
	defer end()
	if err := <-done; exitCode(err) != command.Failed || !strings.Contains(err.Error(), "log in again") || strings.Contains(err.Error(), "ClusterRole") {
		t.Errorf("it ends with %v", err)
	}
}

// TestWatchGoesOnWithout a kind that adds to what is shown, and which may be listed but not watched.
func TestWatchGoesOnWithout(t *testing.T) {
	client := sample(t)
	client.PrependWatchReactor("resourceclaims", func(clienttesting.Action) (bool, watch.Interface, error) {
		return true, nil, forbidden("resourceclaims")
	})
	out, end, done := watching(t, client, "devices", "--node", "worker-1")
	for unseen := map[string]bool{}; len(unseen) < 2; { // one that is free, and one that a claim has
		line := out.next(t)
		for _, device := range []string{"vf-0000-5e-00-3", "gpu-0000-3c-00-0"} {
			if strings.Contains(line, device) && strings.Contains(line, " unknown ") {
				unseen[device] = true
			}
		}
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestScreenShowsWhatFits, and says what does not.
func TestScreenShowsWhatFits(t *testing.T) {
	all := []string{"1", "2", "3", "4", "5"}
	for height, want := range map[int]string{6: "1 2 3 4 5", 5: "1 2 3 ... 2 more lines", 3: "1 ... 4 more lines", 1: "... 5 more lines"} {
		if got := strings.Join(fit(slices.Clone(all), height), " "); got != want {
			t.Errorf("of a screen of %d: %s, want %s", height, got, want)
		}
	}
}

// failing is a pipe whose reader went away.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestWatchEndsWithItsReader: it does not write without a reader.
func TestWatchEndsWithItsReader(t *testing.T) {
	for _, line := range []string{"devices", "devices -o json", "topology"} {
		err := execute(t.Context(), sessionOf(sample(t)), append(strings.Fields(line), "--watch"), failing{}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "broken pipe") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(resourceapi.Resource(resource), "", errors.New("not you"))
}

// forbid lets nobody list a kind.
func forbid(client *fake.Clientset, resource string) {
	client.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden(resource) })
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// waitLimit is for what a control plane does in a second or two.
const waitLimit = time.Minute

// plane is a control plane that the first test that asks starts, and TestMain ends.
type plane struct {
	once sync.Once
	made *controlplane.ControlPlane
	err  error
}

// shared is for all tests but those of the installed chart, whose policies are the whole cluster's: see installation.
var shared plane

func TestMain(m *testing.M) {
	code := m.Run()
	if err := errors.Join(shared.stop(), installation.stop()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// start returns the control plane, which is made ready once. It lives longer than the test that starts it.
func (p *plane) start(t *testing.T, ready func(*controlplane.ControlPlane) error) *controlplane.ControlPlane {
	t.Helper()
	p.once.Do(func() {
		p.err = errors.New("its start has failed a test already") // unless it comes to an end below
		p.made, p.err = controlplane.Start(context.Background(), controlplane.Config{Progress: os.Stderr})
		if p.err == nil {
			p.err = ready(p.made)
		}
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	if err := p.made.Lost(); err != nil {
		t.Fatal(err)
	}
	return p.made
}

// stop ends the control plane, if there is one, and tells if it was lost before.
func (p *plane) stop() error {
	if p.made == nil {
		return nil
	}
	defer p.made.Stop()
	return p.made.Lost()
}

// cluster is the shared control plane. A test keeps to its own namespace, and to its own names where there is none.
func cluster(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	return shared.start(t, func(*controlplane.ControlPlane) error { return nil })
}

func client(t *testing.T, p *controlplane.ControlPlane, u controlplane.User) *kubernetes.Clientset {
	t.Helper()
	config, err := p.RESTConfig(u)
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// namespace makes a namespace that pods can be created in, and deletes it with the test.
func namespace(t *testing.T, p *controlplane.ControlPlane) string {
	t.Helper()
	return labeledNamespace(t, p, nil)
}

// labeledNamespace is namespace with labels. It has them from the first: what policies see of a namespace that is
// labeled later is its state of a moment before.
func labeledNamespace(t *testing.T, p *controlplane.ControlPlane, labels map[string]string) string {
	t.Helper()
	admin := client(t, p, controlplane.Admin())
	made, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Labels: labels},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's own context is over by now.
		err := admin.CoreV1().Namespaces().Delete(context.Background(), made.Name, metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	until(t, "the namespace's service account is made", func(ctx context.Context) error {
		_, err := admin.CoreV1().ServiceAccounts(made.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return made.Name
}

// until tries until it works, and fails the test with the last error if it does not.
func until(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, waitLimit, true,
		func(ctx context.Context) (bool, error) {
			err := try(ctx)
			if ctx.Err() == nil || last == nil { // a try that the end cuts off says nothing of its own
				last = err
			}
			return err == nil, nil
		})
	if err != nil {
		t.Fatalf("wait until %s: %v: %v", what, err, last)
	}
}

// apply gives objects to the API server as a person would.
func apply(t *testing.T, p *controlplane.ControlPlane, namespace, text string) {
	t.Helper()
	_, err := p.KubectlInput(t.Context(), strings.NewReader(text), "apply", "--namespace", namespace, "-f", "-")
	if err != nil {
		t.Fatal(err)
	}
}

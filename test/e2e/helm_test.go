//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/process"
)

const (
	chart = "../../deploy/helm/kata-vfio"
	// system is the namespace of the release, which has the chart's name.
	system, release = "kata-vfio-system", "kata-vfio"
	// plugin is the name of most of the chart's objects.
	plugin = "kata-vfio-plugin"

	driver = "kata-vfio.dev"
)

// helmBinary is built, or found in the cache, once.
var helmBinary = sync.OnceValues(func() (string, error) {
	set, err := binaries.Ensure(context.Background(), binaries.Config{Modules: []binaries.Module{binaries.Helm}, Progress: os.Stderr})
	if err != nil {
		return "", err
	}
	return set.Path("helm"), nil
})

// helm runs helm without what a person's helm has configured and returns its output. An error quotes the standard error.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return helmInput(t, nil, args...)
}

// helmInput is helm with a standard input, as for "--values -".
func helmInput(t *testing.T, input io.Reader, args ...string) (string, error) {
	t.Helper()
	path, err := helmBinary()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &stdout, &stderr
	if err := process.Run(cmd); err != nil {
		return stdout.String(), fmt.Errorf("run helm %q: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// template renders the chart with values, a YAML text, as helm does where it sees no cluster.
func template(t *testing.T, values string, args ...string) (string, error) {
	t.Helper()
	return templateFrom(t, chart, values, args...)
}

// templateFrom is template of a chart that is elsewhere.
func templateFrom(t *testing.T, chart, values string, args ...string) (string, error) {
	t.Helper()
	all := []string{"template", release, chart, "--namespace", system, "--kube-version", kubernetesVersion(), "--values", "-"}
	return helmInput(t, strings.NewReader(values), append(all, args...)...)
}

// rendered is the chart's objects and their text.
type rendered struct {
	text    string
	objects []*unstructured.Unstructured
}

func render(t *testing.T, values string, args ...string) rendered {
	t.Helper()
	text, err := template(t, values, args...)
	if err != nil {
		t.Fatal(err)
	}
	return rendered{text: text, objects: parse(t, text)}
}

// parse reads a stream of YAML documents.
func parse(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var objects []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 { // a document of comments only
			objects = append(objects, o)
		}
	}
}

// find returns the object of a kind with a name, or nil.
func (r rendered) find(kind, name string) *unstructured.Unstructured {
	for _, o := range r.objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	return nil
}

// object is the object of a kind with a name, in its Go type.
func object[T any](t *testing.T, r rendered, kind, name string) *T {
	t.Helper()
	o := r.find(kind, name)
	if o == nil {
		t.Fatalf("there is no %s %s", kind, name)
	}
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true); err != nil {
		t.Fatal(err)
	}
	return into
}

// dryRun has the API server do with objects all but keep them: decoding, strictly, admission and validation.
func dryRun(t *testing.T, p *controlplane.ControlPlane, text string, args ...string) {
	t.Helper()
	args = append([]string{"apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-"}, args...)
	if _, err := p.KubectlInput(t.Context(), strings.NewReader(text), args...); err != nil {
		t.Error(err)
	}
}

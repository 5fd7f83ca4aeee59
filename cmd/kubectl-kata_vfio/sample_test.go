package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/kube/kubetest"
)

// sampleObjects are the objects of testdata/cluster.yaml: two nodes with GPUs, pairs, a NIC's
// VFs and a drive, and claims that fare well and badly.
func sampleObjects(t *testing.T) []runtime.Object {
	t.Helper()
	return objectsOf(t, "testdata/cluster.yaml")
}

// objectsOf are the objects of a file.
func objectsOf(t *testing.T, name string) []runtime.Object {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var objects []runtime.Object
	for text := range bytes.SplitSeq(data, []byte("\n---\n")) {
		objects = append(objects, decode(t, text))
	}
	return objects
}

func decode(t *testing.T, text []byte) runtime.Object {
	t.Helper()
	var kind struct{ Kind string }
	if err := yaml.Unmarshal(text, &kind); err != nil {
		t.Fatal(err)
	}
	object, ok := map[string]runtime.Object{
		"ResourceSlice": &resourceapi.ResourceSlice{}, "ResourceClaim": &resourceapi.ResourceClaim{}, "Pod": &corev1.Pod{}, "Event": &corev1.Event{},
		"Node": &corev1.Node{}, "DaemonSet": &appsv1.DaemonSet{}, "Deployment": &appsv1.Deployment{}, "DeviceClass": &resourceapi.DeviceClass{}, "HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{}, "RuntimeClass": &nodev1.RuntimeClass{},
		"ValidatingAdmissionPolicy": &admissionv1.ValidatingAdmissionPolicy{}, "ValidatingAdmissionPolicyBinding": &admissionv1.ValidatingAdmissionPolicyBinding{},
	}[kind.Kind]
	if !ok {
		t.Fatalf("a %q:\n%s", kind.Kind, text)
	}
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return object
}

// sample is an API server with the sample's objects.
func sample(t *testing.T) *fake.Clientset {
	t.Helper()
	return client(sampleObjects(t))
}

// client is an API server with some objects.
func client(objects []runtime.Object) *fake.Clientset { return fake.NewClientset(objects...) }

// sessionOf is a session of team-a's namespace.
func sessionOf(client *fake.Clientset) *session {
	return &session{now: at, connect: func() (changer, string, error) { return kubetest.New(client), "team-a", nil }}
}

// ask runs a command line and returns its output.
func ask(t *testing.T, client *fake.Clientset, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, warn bytes.Buffer
	err := execute(t.Context(), sessionOf(client), args, &out, &warn)
	if err != nil {
		fmt.Fprintln(&warn, err)
		code = exitCode(err)
	}
	return out.String(), warn.String(), code
}

// documentOf decodes a command's output as JSON.
func documentOf[T any](t *testing.T, text string) T {
	t.Helper()
	var doc T
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return doc
}

// at is when the sample is looked at.
func at() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

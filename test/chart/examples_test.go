package chart

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Who runs an example sees a device in its log, by a program that is the same tomorrow.
func TestExamplesShowTheirDevices(t *testing.T) {
	files, err := filepath.Glob("../../deploy/examples/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	shows := regexp.MustCompile(`nvidia-smi|^ip `)
	for _, file := range files {
		for _, pod := range podsOf(t, file) {
			for _, c := range pod.Spec.Containers {
				command := c.Command[len(c.Command)-1]
				if !regexp.MustCompile(`:[^@/]+@sha256:[0-9a-f]{64}$`).MatchString(c.Image) || !shows.MatchString(command) {
					t.Errorf("%s: the image %s is not pinned by tag and digest, or %q shows no device", file, c.Image, command)
				}
				if strings.Contains(command, "nvidia-smi") != strings.Contains(c.Image, "/nvidia/cuda:") {
					t.Errorf("%s: %s has no %q", file, c.Image, command)
				}
			}
		}
	}
}

// podsOf are the pods of an example, those of Jobs, Deployments and StatefulSets included.
func podsOf(t *testing.T, file string) (pods []corev1.Pod) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var object struct {
			Kind string
			Spec struct {
				corev1.PodSpec
				Template struct{ Spec corev1.PodSpec }
			}
		}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return pods
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		switch object.Kind {
		case "Pod":
			pods = append(pods, corev1.Pod{Spec: object.Spec.PodSpec})
		case "Job", "Deployment", "StatefulSet":
			pods = append(pods, corev1.Pod{Spec: object.Spec.Template.Spec})
		}
	}
}

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
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// Who runs an example sees a device in its log, by a program that is the same tomorrow.
func TestExamplesShowTheirDevices(t *testing.T) {
	files, err := filepath.Glob("../../deploy/examples/*.yaml")
	partition, globErr := filepath.Glob("../../deploy/examples/partition/*.yaml")
	files = append(files, partition...)
	if err = errors.Join(err, globErr); err != nil || len(files) < 10 {
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

// TestPartitionExampleFitsItsValues: the chart's values beside the example make the class of its claim, and a fabric that the plugin takes.
func TestPartitionExampleFitsItsValues(t *testing.T) {
	read := func(name string) []byte {
		text, err := os.ReadFile("../../deploy/examples/partition/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var values struct {
		NodeConfig    map[string]any
		Plugin        struct{ Fabric struct{ Enabled bool } }
		DeviceClasses map[string]struct{ Enabled bool }
	}
	if err := sigsyaml.Unmarshal(read("values.yaml"), &values); err != nil {
		t.Fatal(err)
	}
	values.NodeConfig["apiVersion"], values.NodeConfig["kind"] = "resource.kata-vfio.dev/v1alpha1", "NodeConfig"
	config, err := sigsyaml.Marshal(values.NodeConfig)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := v1alpha1.DecodeNodeConfig(config)
	if err != nil || decoded.Fabric == nil || !values.Plugin.Fabric.Enabled {
		t.Errorf("node config %+v, %v, plugin.fabric.enabled %t; want a fabric", decoded, err, values.Plugin.Fabric.Enabled)
	}
	_, class, _ := strings.Cut(string(read("pod.yaml")), "deviceClassName: ")
	class, _, _ = strings.Cut(class, ".")
	if !values.DeviceClasses[class].Enabled {
		t.Errorf("the values do not make the class %q: %v", class, values.DeviceClasses)
	}
}

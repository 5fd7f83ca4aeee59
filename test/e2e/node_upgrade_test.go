//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// nextImage is the plugin's image by another tag, as the next version has it.
const nextImage = "localhost/" + plugin + ":next"

// upgrades takes the chart to another version and back, with a pod that holds a device all the while: the same tree, packaged by
// another version, with its image by another tag. New pods start with either.
func upgrades(ctx context.Context, s *site) error {
	next, err := otherVersion("99.0.0")
	if err != nil {
		return err
	}
	defer os.RemoveAll(next) // helm has read it
	if err := s.tagPlugin(ctx, nextImage); err != nil {
		return err
	}
	if err := s.apply(ctx, tenant, templates+vmPod("stays", gpuOfTemplate)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "stays"); err != nil {
		return err
	}
	before, err := s.tenancy(ctx, "stays")
	if err != nil {
		return err
	}
	for _, step := range []struct {
		pod, version string
		run          func() error
	}{
		{"upgraded", "99.0.0", func() error { return s.node.InstallPlugin(ctx, next, "image.tag=next") }},
		{"back", "0.1.0", func() error { return s.node.RollbackPlugin(ctx) }},
	} {
		if err := step.run(); err != nil {
			return err
		}
		if err := errors.Join(s.wantVersion(ctx, step.version), s.wantTenancy(ctx, "stays", before)); err != nil {
			return fmt.Errorf("with version %s: %w", step.version, err)
		}
		if err := s.apply(ctx, tenant, vmPod(step.pod, vfOfTemplate)); err != nil {
			return err
		}
		if err := s.awaitRunning(ctx, vmPodLimit, step.pod); err != nil {
			return err
		}
	}
	return s.deletePods(ctx, "stays", "upgraded", "back")
}

// otherVersion is the tree's chart as another version, in a directory.
func otherVersion(version string) (string, error) {
	dir, err := os.MkdirTemp("", "kata-vfio-chart-")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, os.DirFS(chart)); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "Chart.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	text = regexp.MustCompile(`(?m)^(version|appVersion): .*$`).ReplaceAll(text, []byte("$1: "+version))
	return dir, os.WriteFile(file, text, 0o644)
}

// tagPlugin gives the plugin's image on the node another name, by which pods find it.
func (s *site) tagPlugin(ctx context.Context, name string) error {
	_, err := s.output(ctx, "ctr -n k8s.io images tag --force localhost/"+plugin+":lab "+name+
		" && ctr -n k8s.io images label "+name+" io.cri-containerd.image=managed io.cri-containerd.pinned=pinned")
	return err
}

// wantVersion checks which version the plugin's pod and the chart's objects are of.
func (s *site) wantVersion(ctx context.Context, version string) error {
	set, err := s.client.AppsV1().DaemonSets(system).Get(ctx, plugin, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if got := set.Labels["app.kubernetes.io/version"]; got != version {
		return fmt.Errorf("the DaemonSet is of version %s", got)
	}
	pods, err := s.client.CoreV1().Pods(system).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if image := set.Spec.Template.Spec.Containers[0].Image; pod.Spec.Containers[0].Image != image {
			return fmt.Errorf("pod %s has the image %s, the DaemonSet %s", pod.Name, pod.Spec.Containers[0].Image, image)
		}
	}
	return nil
}

// tenancy is all by which a pod that goes on can be told from one that started again.
type tenancy struct {
	uid, container string
	restarts       int32
	functions      []string
}

func (s *site) tenancy(ctx context.Context, pod string) (*tenancy, error) {
	got, err := s.client.CoreV1().Pods(tenant).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	functions, err := s.held(ctx, pod)
	if err != nil {
		return nil, err
	}
	status := got.Status.ContainerStatuses[0]
	return &tenancy{string(got.UID), status.ContainerID, status.RestartCount, functions}, nil
}

// wantTenancy checks that a pod runs on as before, and that its GPU is bound for it.
func (s *site) wantTenancy(ctx context.Context, pod string, want *tenancy) error {
	if err := s.awaitRunning(ctx, nodeLimit, pod); err != nil {
		return err
	}
	got, err := s.tenancy(ctx, pod)
	if err != nil {
		return err
	}
	if got.uid != want.uid || got.container != want.container || got.restarts != want.restarts || !slices.Equal(got.functions, want.functions) {
		return fmt.Errorf("pod %s was %+v and is %+v", pod, want, got)
	}
	return s.wantBound(ctx, topology.GPU0)
}

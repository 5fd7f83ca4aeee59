package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// system is the namespace that the documents install to. The plugin's pods are privileged.
const system = `apiVersion: v1
kind: Namespace
metadata:
  name: kata-vfio-system
  labels:
    pod-security.kubernetes.io/enforce: privileged
`

// renderedFor is the oldest Kubernetes that the chart takes: without it, helm says the version that it was compiled with, which the chart may
// refuse. The objects are the same for each that it takes.
const renderedFor = "1.36.6"

// mutates is what the API server of each Kubernetes that the chart takes has, and no helm knows without being told. Without it, the chart
// leaves out the policies require-plugin and require-plugin-classes.
const mutates = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

const kustomization = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [install.yaml]
`

// writeInstall writes the chart as it is without any values, for kubectl alone: one manifest, and a kustomization of it.
func (r *request) writeInstall(ctx context.Context, src source, chart string) error {
	objects, err := r.render(ctx, chart)
	if err != nil {
		return err
	}
	manifest := append([]byte(system), objects...)
	name := fmt.Sprintf("%s-%s", packageName, src.version)
	root := name + "-kustomize"
	archive, err := tarball([]file{
		{path: root + "/install.yaml", content: manifest, mode: 0o644}, {path: root + "/kustomization.yaml", content: []byte(kustomization), mode: 0o644},
	}, src.time)
	if err != nil {
		return err
	}
	return errors.Join(
		renameio.WriteFile(filepath.Join(r.output, name+"-install.yaml"), manifest, 0o644),
		renameio.WriteFile(filepath.Join(r.output, root+".tar.gz"), archive, 0o644))
}

// render renders a chart without what a person's helm has configured.
func (r *request) render(ctx context.Context, chart string) ([]byte, error) {
	home, err := os.MkdirTemp("", "release-helm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(home)
	args := []string{"template", packageName, chart, "--namespace", "kata-vfio-system", "--include-crds", "--kube-version", renderedFor, "--api-versions", mutates}
	cmd := exec.CommandContext(ctx, r.helm, args...) //nolint:gosec // who runs this says which helm
	cmd.Env = []string{"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s template: %w: %s", r.helm, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

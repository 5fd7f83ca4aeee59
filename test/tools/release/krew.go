package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"go.yaml.in/yaml/v3"
)

// The manifest of a kubectl plugin for krew (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/).
type (
	krewManifest struct {
		APIVersion string       `yaml:"apiVersion"`
		Kind       string       `yaml:"kind"`
		Metadata   krewMetadata `yaml:"metadata"`
		Spec       krewSpec     `yaml:"spec"`
	}
	krewMetadata struct {
		Name string `yaml:"name"`
	}
	krewSpec struct {
		Version          string         `yaml:"version"`
		Homepage         string         `yaml:"homepage"`
		ShortDescription string         `yaml:"shortDescription"`
		Description      string         `yaml:"description"`
		Platforms        []krewPlatform `yaml:"platforms"`
	}
	krewPlatform struct {
		Selector krewSelector `yaml:"selector"`
		URI      string       `yaml:"uri"`
		SHA256   string       `yaml:"sha256"`
		Bin      string       `yaml:"bin"`
		Files    []krewFile   `yaml:"files"`
	}
	krewSelector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	krewFile struct {
		From string `yaml:"from"`
		To   string `yaml:"to"`
	}
)

// writeKrew writes a manifest of the kubectl plugin, whose archives are written already. A release without one has no manifest.
func writeKrew(output string, src source, programs []program) error {
	var m krewManifest
	for i := range programs {
		p := &programs[i]
		if !p.isKubectlPlugin() {
			continue
		}
		m.Metadata.Name = strings.ReplaceAll(strings.TrimPrefix(p.name, "kubectl-"), "_", "-")
		platform, err := krewPlatformOf(output, src, p)
		if err != nil {
			return err
		}
		m.Spec.Platforms = append(m.Spec.Platforms, platform)
	}
	if m.Metadata.Name == "" {
		return nil
	}
	m.APIVersion, m.Kind = "krew.googlecontainertools.github.com/v1alpha2", "Plugin"
	m.Spec.Version, m.Spec.Homepage = "v"+src.version, repository
	m.Spec.ShortDescription = "Show devices, claims and pods of kata-vfio"
	m.Spec.Description = "Shows the GPUs and NIC virtual functions that kata-vfio gives to Kata VMs, the claims\n" +
		"that have or wait for them, why a pod does not start, and which checks fail on which node.\n"
	content, err := yaml.Marshal(&m)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(output, m.Metadata.Name+".krew.yaml"), content, 0o644)
}

func krewPlatformOf(output string, src source, p *program) (krewPlatform, error) {
	archive, err := os.ReadFile(filepath.Join(output, p.archiveFile(src)))
	if err != nil {
		return krewPlatform{}, err
	}
	return krewPlatform{
		Selector: krewSelector{MatchLabels: map[string]string{"os": p.os, "arch": p.arch}},
		URI:      fmt.Sprintf("%s/releases/download/v%s/%s", repository, src.version, p.archiveFile(src)),
		SHA256:   fmt.Sprintf("%x", sha256.Sum256(archive)),
		Bin:      p.file(),
		Files:    []krewFile{{From: "*/" + p.file(), To: "."}, {From: "*/LICENSE", To: "."}},
	}, nil
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"go.yaml.in/yaml/v3"
)

// devSuffix is behind the versions of what was made of a tree with changes: it is not the release.
const devSuffix = "-dev"

// versions are a chart's lines with its version and its images'.
var versions = regexp.MustCompile(`(?m)^((?:version|appVersion): \S+)$`)

// writeChart writes the Helm chart as `helm package` names and fills it, and returns its path.
func writeChart(tree, output string, src source, dev bool) (string, error) {
	chart := os.DirFS(filepath.Join(tree, "deploy/helm/kata-vfio"))
	text, err := fs.ReadFile(chart, "Chart.yaml")
	if err != nil {
		return "", err
	}
	var is struct{ Name, Version string }
	if err := yaml.Unmarshal(text, &is); err != nil {
		return "", err
	}
	files, err := chartFiles(chart, is.Name)
	if err != nil {
		return "", err
	}
	if dev {
		is.Version += devSuffix
		for i := range files {
			if files[i].path == path.Join(is.Name, "Chart.yaml") {
				files[i].content = versions.ReplaceAll(files[i].content, []byte("${1}"+devSuffix))
			}
		}
	}
	content, err := tarball(files, src.time)
	if err != nil {
		return "", err
	}
	target := filepath.Join(output, fmt.Sprintf("%s-%s.tgz", is.Name, is.Version))
	return target, renameio.WriteFile(target, content, 0o644)
}

// chartFiles are all files of a chart but those that it ignores, whatever this host's permissions of them are.
func chartFiles(chart fs.FS, root string) (files []file, err error) {
	ignored, err := ignoredNames(chart)
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(chart, ".", func(name string, d fs.DirEntry, err error) error {
		matches := func(pattern string) bool { ok, _ := path.Match(pattern, d.Name()); return ok }
		if err != nil || d.IsDir() || slices.ContainsFunc(ignored, matches) {
			return err
		}
		content, err := fs.ReadFile(chart, name)
		files = append(files, file{path: path.Join(root, name), content: content, mode: 0o644})
		return err
	})
	return files, err
}

// ignoredNames are the patterns of .helmignore. Of its language patterns of names are enough for this chart.
func ignoredNames(chart fs.FS) ([]string, error) {
	text, err := fs.ReadFile(chart, ".helmignore")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	patterns := strings.Fields(string(text))
	for _, p := range patterns {
		if _, bad := path.Match(p, ""); bad != nil || strings.ContainsAny(p, "/!#") {
			return nil, fmt.Errorf("%q in .helmignore is not a pattern of names", p)
		}
	}
	return patterns, err
}

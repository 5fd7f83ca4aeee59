package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"go.yaml.in/yaml/v3"
)

// The media types of a chart in a registry (https://helm.sh/docs/topics/registries/#helm-chart-manifest).
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chart is a chart's archive as what `helm push` makes of it, but with nothing in it that differs from push to push.
type chart struct {
	v1.Image
	name    string
	version string
}

// loadChart reads the archive of a chart.
func loadChart(file string) (chart, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return chart{}, err
	}
	text, err := metadata(content)
	if err != nil {
		return chart{}, err
	}
	// What is not in is goes to the config, too.
	var is struct{ Name, Version, Description string }
	var all map[string]any
	if err := errors.Join(yaml.Unmarshal(text, &is), yaml.Unmarshal(text, &all)); err != nil {
		return chart{}, fmt.Errorf("read Chart.yaml: %w", err)
	}
	config, err := json.Marshal(all)
	if err != nil {
		return chart{}, err
	}
	img, err := partial.CompressedToImage(&chartImage{
		config: static.NewLayer(config, chartConfig), content: static.NewLayer(content, chartContent), raw: config,
		annotations: map[string]string{
			"org.opencontainers.image.title": is.Name, "org.opencontainers.image.version": is.Version,
			"org.opencontainers.image.description": is.Description,
		},
	})
	return chart{Image: img, name: is.Name, version: is.Version}, err
}

// metadata is the Chart.yaml in the archive of a chart.
func metadata(content []byte) ([]byte, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("find Chart.yaml: %w", err)
		}
		if ok, _ := path.Match("*/Chart.yaml", h.Name); ok {
			return io.ReadAll(r)
		}
	}
}

// chartImage has the parts of a chart that a registry keeps.
type chartImage struct {
	config, content v1.Layer
	raw             []byte // of the config
	annotations     map[string]string
}

// MediaType is that of the manifest.
func (c *chartImage) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawConfigFile is the chart's metadata.
func (c *chartImage) RawConfigFile() ([]byte, error) { return c.raw, nil }

// RawManifest names the config and the archive.
func (c *chartImage) RawManifest() ([]byte, error) {
	config, err := partial.Descriptor(c.config)
	if err != nil {
		return nil, err
	}
	content, err := partial.Descriptor(c.content)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: *config, Layers: []v1.Descriptor{*content}, Annotations: c.annotations,
	})
}

// LayerByDigest is one of the two parts.
func (c *chartImage) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	for _, part := range []v1.Layer{c.config, c.content} {
		is, err := part.Digest()
		if err != nil {
			return nil, err
		}
		if is == digest {
			return part, nil
		}
	}
	return nil, fmt.Errorf("the chart has no part %s", digest)
}

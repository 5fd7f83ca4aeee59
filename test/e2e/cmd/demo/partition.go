package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/e2e/node"
)

const (
	// joinedPod is the pod of the example with two GPUs that NVLink joins.
	joinedPod = "partition"
	// boardValues are the chart's for the board, which has no file with a map of its modules.
	boardValues = `nodeConfig:
  fabric:
    modules:
    - {module: 1, address: "` + node.BoardGPU1 + `"}
    - {module: 3, address: "` + node.BoardGPU3 + `"}
plugin: {fabric: {enabled: true}}
deviceClasses: {gpu-x2: {enabled: true}}`
	// partitionsView is a line for each device of two GPUs.
	partitionsView = `jsonpath={range .items[*].spec.devices[?(@.attributes.fabricSize.int==2)]}{.name}{"\tfabricSize="}{.attributes.fabricSize.int}` +
		`{"\tboundary="}{.attributes.boundary.string}{"\n"}{end}`
)

// versionSelector is the example's for Fabric Manager's version. Nothing of the lab has one.
var versionSelector = regexp.MustCompile(`(?m)^ +selectors:\n +- cel:\n +expression: .*\n`)

// partition gives a pod two GPUs that NVLink joins.
func (s *story) partition(ctx context.Context) error {
	s.title("A partition: two GPUs that NVLink joins, as one device in one VM: " + s.joined)
	s.say("(a program stands in for NVIDIA's Fabric Manager. Two of the lab's displays have the ids of an H100's GPUs on the node)")
	if err := s.node.UseVMs(ctx, true); err != nil {
		return err
	}
	s.say("$ cat values.yaml\n%s\n$ helm upgrade kata-vfio %s --namespace %s --values values.yaml", boardValues, s.chart, node.PluginNamespace)
	if err := s.node.InstallPlugin(ctx, s.chart, node.BoardSettings()...); err != nil {
		return err
	}
	if err := s.node.StartBoard(ctx); err != nil {
		return err
	}
	if err := s.partitionIsPublished(ctx); err != nil {
		return err
	}
	example, err := s.withoutVersion()
	if err != nil {
		return err
	}
	if err := s.applyText(ctx, s.joined, example, joinedPod); err != nil {
		return err
	}
	s.say("(the VM sees both stand-ins, by the ids in their registers)")
	if err := s.showLog(ctx, joinedPod); err != nil {
		return err
	}
	if err := s.partitionIs(ctx, "active: team-a/"); err != nil {
		return err
	}
	if err := s.show(ctx, "delete", "pod", joinedPod, "--namespace", "team-a", "--grace-period=1"); err != nil {
		return err
	}
	if err := s.partitionIs(ctx, "free"); err != nil {
		return err
	}
	return s.node.StopBoard(ctx)
}

// partitionIsPublished waits until the partition is published as one that anybody may have.
func (s *story) partitionIsPublished(ctx context.Context) error {
	err := s.until(ctx, node.BoardPartition+" is published", func(ctx context.Context) error {
		out, err := s.kubectl(ctx, "kata-vfio", "devices")
		if err == nil && !strings.Contains(out, node.BoardPartition) {
			err = errors.New("it is none of the devices")
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.show(ctx, "get", "resourceslices", "-o", partitionsView)
}

// withoutVersion returns the example without its selector for Fabric Manager's version.
func (s *story) withoutVersion() ([]byte, error) {
	text, err := os.ReadFile(s.joined)
	if err != nil {
		return nil, err
	}
	if !versionSelector.Match(text) {
		return nil, fmt.Errorf("%s has no selector for Fabric Manager's version, or not as it was", s.joined)
	}
	return versionSelector.ReplaceAll(text, nil), nil
}

// partitionIs has the plugin show the partitions, and checks how the one of both GPUs is used.
func (s *story) partitionIs(ctx context.Context, use string) error {
	said, err := s.says(ctx, statusCommand()...)
	if err != nil {
		return err
	}
	for line := range strings.Lines(said) {
		if strings.Contains(line, node.BoardPartition) && strings.Contains(line, use) {
			return nil
		}
	}
	return fmt.Errorf("%s is not %q", node.BoardPartition, use)
}

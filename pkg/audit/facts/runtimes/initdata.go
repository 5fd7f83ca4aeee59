package runtimes

import (
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
)

// initDataAnnotation is the pod's annotation by which Kata hands a confidential guest its
// init data: a TOML document, compressed by gzip, in base64.
const initDataAnnotation = "io.katacontainers.config.hypervisor.cc_init_data"

// maxInitData bounds what is unpacked: init data are policies and configuration.
const maxInitData = 4 << 20

// AgentPolicy says whether a sandbox was started with init data that hold a policy for
// the agent in its guest. The fact is the bundle that says so; it is not OK where that
// is not to be had.
func AgentPolicy(n *facts.Node, sandbox string) (has bool, seen facts.Fact) {
	for _, dir := range bundleDirs() {
		file := path.Join(dir, sandbox, "config.json")
		if !n.Exists(file).OK() {
			continue
		}
		seen = facts.Fact{Path: "/" + file, How: "read"}
		c, err := container(n, file)
		if err == nil && c.initData == "" {
			seen.Value = "no init data"
			return false, seen
		}
		if err == nil {
			has, err = holdsPolicy(c.initData)
		}
		if err != nil {
			seen.Status, seen.Err = facts.Broken, err.Error()
			return false, seen
		}
		seen.Value = "init data without policy.rego"
		if has {
			seen.Value = "init data with policy.rego"
		}
		return has, seen
	}
	return false, facts.Fact{Path: "/" + path.Join(bundleDirs()[0], sandbox), How: "read", Status: facts.Absent}
}

// holdsPolicy unpacks init data.
func holdsPolicy(data string) (bool, error) {
	zipped, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)))
	if err != nil {
		return false, fmt.Errorf("unpack init data: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(zipped, maxInitData+1))
	switch {
	case err != nil:
		return false, fmt.Errorf("unpack init data: %w", err)
	case len(text) > maxInitData:
		return false, errors.New("unpack init data: they are too long")
	}
	return strings.Contains(string(text), "policy.rego"), nil
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Annotations by which containerd tells a shim what it creates (containerd, internal/cri/annotations).
const (
	containerType    = "io.kubernetes.cri.container-type"
	sandboxID        = "io.kubernetes.cri.sandbox-id"
	sandboxName      = "io.kubernetes.cri.sandbox-name"
	sandboxNamespace = "io.kubernetes.cri.sandbox-namespace"

	typeSandbox = "sandbox"
)

// create gives a sandbox its VM, or fits a container to the VM of its sandbox.
func (n node) create(ctx context.Context, c call) error {
	path := filepath.Join(cmp.Or(c.bundle, "."), "config.json")
	spec, err := readSpec(path)
	if err != nil {
		return err
	}
	if spec.Annotations[containerType] == typeSandbox {
		return n.createSandbox(ctx, n.vm(c.id), spec)
	}
	if err := n.fit(spec); err != nil {
		return err
	}
	return writeSpec(path, spec)
}

// createSandbox boots the VM with the pod's devices. A VM that does not come up is ended; one that is there already is
// another's, and runs on.
func (n node) createSandbox(ctx context.Context, v vm, spec *specs.Spec) error {
	names, err := n.deviceNames(ctx, spec.Annotations)
	if err != nil {
		return err
	}
	devices, err := n.resolve(names)
	if err != nil {
		return err
	}
	endpoints, err := n.endpoints(ctx, spec)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		devices = append(devices, e.Group)
	}
	if err := v.make(devices, endpoints); err != nil {
		return fmt.Errorf("make the VM's directory: %w", err)
	}
	if err := n.boot(v); err != nil {
		return errors.Join(err, v.stop())
	}
	return nil
}

func readSpec(path string) (*specs.Spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, fmt.Errorf("read the bundle %s: %w", path, err)
	}
	return &spec, nil
}

func writeSpec(path string, spec *specs.Spec) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode the bundle: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}

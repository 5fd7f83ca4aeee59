//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/test/e2e/kata"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
)

// katasView is what Kata's Go runtime says of its own settings (`kata-runtime env --json`), as far as the audit looks at them.
type katasView struct {
	Hypervisor struct {
		ColdPlugVFIO, HotPlugVFIO string
		PCIeRootPort              int64
		SecurityInfo              struct{ EnableAnnotations []string }
	}
	Runtime struct {
		Config            struct{ Path string }
		SandboxCgroupOnly bool
	}
}

// auditReadsKatasSettings: the settings that `kata-vfio-audit handlers` shows are those that Kata works by, whatever drop-in says what.
func auditReadsKatasSettings(ctx context.Context, s *site) error {
	if err := s.auditAgreesWithKata(ctx); err != nil {
		return fmt.Errorf("with our drop-in: %w", err)
	}
	for _, dropIn := range []string{
		"[hypervisor.qemu]\npcie_root_port = 3\nenable_annotations = [\"kernel_params\"]\n[runtime]\nsandbox_cgroup_only = false\n",
		"[hypervisor.qemu]\npcie_root_port = 99\n", // more than Kata makes
		noPort,
	} {
		if err := s.withKataConfig(ctx, dropIn, func(ctx context.Context, s *site) error { return s.auditAgreesWithKata(ctx) }); err != nil {
			return fmt.Errorf("with the drop-in %q: %w", dropIn, err)
		}
	}
	return nil
}

func (s *site) auditAgreesWithKata(ctx context.Context) error {
	config := path.Join(s.kata.HandlerConfig(), "configuration.toml")
	said, err := s.output(ctx, path.Join(kata.Dir, "bin/kata-runtime")+" --config "+config+" env --json")
	if err != nil {
		return fmt.Errorf("ask Kata for its settings, which needs bin/kata-runtime in the installation: %w", err)
	}
	var its katasView
	if err := json.Unmarshal([]byte(said), &its); err != nil {
		return err
	}
	read, err := s.output(ctx, path.Join(node.Dir, "bin", auditProgram)+" handlers -o json")
	if err != nil {
		return err
	}
	var ours audit.Handlers
	if err := json.Unmarshal([]byte(read), &ours); err != nil {
		return err
	}
	if len(ours.Handlers) != 1 || ours.Handlers[0].Damaged != "" {
		return fmt.Errorf("want one handler that is understood, got %+v", ours.Handlers)
	}
	h := ours.Handlers[0]
	var seen katasView
	seen.Hypervisor.ColdPlugVFIO, seen.Hypervisor.HotPlugVFIO, seen.Hypervisor.PCIeRootPort = h.ColdPlug, h.HotPlug, h.RootPorts
	seen.Hypervisor.SecurityInfo.EnableAnnotations = h.Annotations
	seen.Runtime.Config.Path, seen.Runtime.SandboxCgroupOnly = h.Config, h.InPodsCgroup
	if diff := cmp.Diff(its, seen); diff != "" {
		return errors.New("the audit reads other settings than Kata (-Kata +audit):\n" + diff)
	}
	return nil
}

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/test/e2e/kata"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
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
	s.log("kata-runtime env: %s", said)
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

// auditKnowsKatasVMs: by Kata's own files, the audit says which pod's VM runs, by which process, and where its device is in the guest; and of the whole
// node it finds what the lab lacks, and nothing worse.
func auditKnowsKatasVMs(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, templates+vmPod("known", gpuOfTemplate)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "known"); err != nil {
		return err
	}
	report, err := s.checkVM(ctx, "known")
	if err != nil {
		return err
	}
	found, err := s.audit(ctx)
	if err != nil {
		return err
	}
	want := slices.DeleteFunc(slices.Collect(maps.Keys(labLacks())), func(name string) bool { return name == standInFinding })
	slices.Sort(want)
	return errors.Join(asExpected("a node with Kata", want, found), s.auditSeesTheVM(ctx, report), s.deletePods(ctx, "known"))
}

// auditSeesTheVM compares what the audit says of the pod's VM with the node's processes and with what the VM sees.
func (s *site) auditSeesTheVM(ctx context.Context, report *protocol.Report) error {
	read, err := s.output(ctx, path.Join(node.Dir, "bin", auditProgram)+" sandboxes "+tenant+"/known -o json")
	if err != nil {
		return err
	}
	s.log("the audit sees %s", read)
	var seen audit.Sandboxes
	if err := json.Unmarshal([]byte(read), &seen); err != nil {
		return err
	}
	pid, err := s.output(ctx, "pgrep qemu-system")
	if err != nil {
		return err
	}
	if len(seen.Sandboxes) != 1 || len(seen.Sandboxes[0].Devices) != 1 {
		return fmt.Errorf("want one sandbox with one device, got %+v", seen)
	}
	vm, d := seen.Sandboxes[0], seen.Sandboxes[0].Devices[0]
	if strconv.Itoa(vm.PID) != pid || !vm.Running || d.Address.String() != topology.GPU0 || len(d.Claims) != 1 {
		return fmt.Errorf("want process %s, %s and its claim, got %+v", pid, topology.GPU0, vm)
	}
	slot, rest, _ := strings.Cut(d.GuestPath, "/")
	port := "0000:00:" + slot + ".0"
	isPort := func(f protocol.Function) bool { return f.Address == port && strings.HasPrefix(f.Class, "0604") }
	if rest != "00" || !slices.ContainsFunc(report.Functions, isPort) {
		return fmt.Errorf("the guest path is %q, and the VM has no bridge at %s: %+v", d.GuestPath, port, report.Functions)
	}
	return nil
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// gpuSettings are the chart's for a board with a fabric, as deploy/guides/hgx.md has them, and for slices of GPUs: vGPUs, and VFs of the GPU
// that a PF is taken for.
func gpuSettings(context.Context, *site) ([]string, error) {
	const slice = "nodeConfig.gpuSlices"
	return append(node.BoardSettings(),
		"nodeConfig.devices[1].name=others", "nodeConfig.devices[1].match.types={gpu,vf,gpuvf}",
		slice+"[0].name=vgpus", slice+"[0].match.vendors={10de}", slice+"[0].nvidia.vgpuType="+vgpuType, slice+"[0].nvidia.instances=4",
		slice+"[1].name=amd", slice+"[1].match.addresses={"+topology.PF0+"}",
	), nil
}

// boardTemplates are for a partition of two GPUs, and for one of the GPUs.
const boardTemplates = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: pair}
spec: {spec: {devices: {requests: [{name: pair, exactly: {deviceClassName: gpu-x2.kata-vfio.dev}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.kata-vfio.dev, selectors: [` +
	`{cel: {expression: "device.attributes['resource.kubernetes.io'].?pciBusID.orValue('') == '` + node.BoardGPU1 + `'"}}]}}]}}}
`

// fabricPartition: the plugin publishes a partition of two GPUs that Fabric Manager lists, a pod has both in one VM while the partition is
// active, and nobody else gets one of them meanwhile.
func fabricPartition(ctx context.Context, s *site) error {
	after := context.WithoutCancel(ctx)
	err := s.node.StartBoard(ctx)
	if err == nil {
		err = s.assignPartition(ctx)
	}
	// The pods are gone first: a GPU of theirs can't leave vfio-pci.
	for _, namespace := range []string{tenant, trusted} {
		_, deleteErr := s.plane.Kubectl(after, "delete", "pods", "--all", "--namespace", namespace, "--grace-period=1")
		err = errors.Join(err, deleteErr)
	}
	return errors.Join(err, s.node.StopBoard(after))
}

func (s *site) assignPartition(ctx context.Context) error {
	if err := s.awaitPartition(ctx, ""); err != nil {
		return err
	}
	if err := s.apply(ctx, tenant, boardTemplates+vmPod("pair", "{name: pair, resourceClaimTemplateName: pair}")); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "pair"); err != nil {
		return err
	}
	if err := errors.Join(s.pairIsInOneVM(ctx), s.awaitActive(ctx, "0")); err != nil {
		return err
	}
	// One of the two by itself is not to be had, by whoever asks.
	if err := s.apply(ctx, tenant, vmPod("single", gpuOfTemplate)); err != nil {
		return err
	}
	if err := s.awaitEvent(ctx, tenant, "single", "FailedScheduling", "cannot allocate all claims"); err != nil {
		return err
	}
	if err := s.restartFabricManager(ctx); err != nil {
		return err
	}
	return s.singleFollowsPair(ctx)
}

// awaitPartition waits until the partition is published, with a value of its taint, or with "" without a taint.
func (s *site) awaitPartition(ctx context.Context, taint string) error {
	return s.until(ctx, fmt.Sprintf("%s is published with the taint %q", node.BoardPartition, taint), nodeLimit, func(ctx context.Context) error {
		devices, err := s.published(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(devices, func(d resourcev1.Device) bool { return d.Name == node.BoardPartition })
		if i < 0 {
			var names []string
			for _, d := range devices {
				names = append(names, d.Name)
			}
			return fmt.Errorf("the devices are %q", names)
		}
		if size := devices[i].Attributes["fabricSize"].IntValue; size == nil || *size != 2 {
			return fmt.Errorf("it has the attributes %+v", devices[i].Attributes)
		}
		taints := devices[i].Taints
		has := slices.ContainsFunc(taints, func(t resourcev1.DeviceTaint) bool { return t.Value == taint })
		if has != (taint != "") || taint == "" && len(taints) > 0 {
			return fmt.Errorf("it has the taints %+v", taints)
		}
		return nil
	})
}

// pairIsInOneVM checks that the pod's claim has both GPUs, and its VM both stand-ins, whose own ids it reads from their
// registers.
func (s *site) pairIsInOneVM(ctx context.Context) error {
	held, err := s.held(ctx, "pair")
	if err != nil {
		return err
	}
	slices.Sort(held)
	if want := []string{node.BoardGPU3, node.BoardGPU1}; !slices.Equal(held, want) {
		return fmt.Errorf("the claim has %v, want %v", held, want)
	}
	report, err := s.report(ctx, "pair")
	if err != nil {
		return err
	}
	s.log("the VM of pair has %v and sees %+v", held, *report)
	first, second := strings.Fields(node.BoardIDs1), strings.Fields(node.BoardIDs3)
	if !sees(report, first[0], first[1], first[2]) || !sees(report, second[0], second[1], second[2]) || len(report.Displays) != 1 {
		return fmt.Errorf("want a display that works and an ati-vga, the VM sees %+v", *report)
	}
	return nil
}

// awaitActive waits until the partitions that Fabric Manager has as active are these.
func (s *site) awaitActive(ctx context.Context, want string) error {
	return s.until(ctx, fmt.Sprintf("the active partitions are %q", want), nodeLimit, func(ctx context.Context) error {
		answer, err := s.output(ctx, strings.Join(node.AskFabricManager("partitions"), " "))
		if err != nil {
			return err
		}
		var active []string
		for line := range strings.Lines(answer) {
			if words := strings.Fields(line); len(words) > 2 && words[2] == "1" {
				active = append(active, words[1])
			}
		}
		if got := strings.Join(active, " "); got != want {
			return fmt.Errorf("they are %q, by the answer\n%s", got, answer)
		}
		return nil
	})
}

// restartFabricManager ends it under the VM. The partition is tainted as long as it is away. It comes back with all partitions inactive, as
// NVIDIA's does with --restart, and hears from the plugin within a minute which one the VM uses: otherwise it ends, and the node with it.
func (s *site) restartFabricManager(ctx context.Context) error {
	if err := s.node.StopService(ctx, node.FabricManager); err != nil {
		return err
	}
	if err := s.awaitPartition(ctx, "FabricNotReady"); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.node.StartFabricManager("-resume"); err != nil {
		return err
	}
	err := s.awaitActive(ctx, "0")
	s.log("Fabric Manager has the active partition %.1fs after its restart", time.Since(begin).Seconds())
	return errors.Join(err, s.awaitPartition(ctx, ""))
}

// singleFollowsPair: the partition is inactive after its pod, and the pod that waited has the partition of one GPU.
func (s *site) singleFollowsPair(ctx context.Context) error {
	if err := s.node.UseVMs(ctx, false); err != nil { // one of the two is enough to look at
		return err
	}
	if _, err := s.plane.Kubectl(ctx, "delete", "pod", "pair", "--namespace", tenant, "--grace-period=1"); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "single"); err != nil {
		return err
	}
	if err := s.awaitActive(ctx, "1"); err != nil {
		return err
	}
	return errors.Join(s.deletePods(ctx, "single"), s.awaitActive(ctx, ""))
}

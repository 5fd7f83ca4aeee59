//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// A busy example's limits are more than the lab has.
var (
	exampleImage = regexp.MustCompile(`image: \S+(\n +command: .*)?`)
	exampleCPU   = regexp.MustCompile(`cpu: "\d+"`)
	exampleRAM   = regexp.MustCompile(`memory: \d+[MG]i`)
)

// example reads one of deploy/examples, to run here.
func example(name string) (string, error) {
	text, err := os.ReadFile("../../deploy/examples/" + name + ".yaml")
	small := exampleRAM.ReplaceAll(exampleCPU.ReplaceAll(text, []byte("cpu: 50m")), []byte("memory: 64Mi"))
	return string(exampleImage.ReplaceAll(small, []byte("image: "+node.ShowImage))), err
}

// gpuAndVF is the example's pod whose GPU and VF must sit below one root.
const gpuAndVF = "gpu-and-vf"

// runsExamples runs the examples beside each other: each must have its own devices. They do so without VMs, of which a few
// slow the emulated node down beyond bearing.
func runsExamples(ctx context.Context, s *site) error {
	// The first has a constraint, and chooses before the others take its choices away.
	files := []string{"gpu-and-vf-same-root", "gpu-pod", "vf-pod", "extended-resource"}
	pods := []string{gpuAndVF, "gpu", "vf", "extended-resource"}
	taken := map[string]string{}
	for i, pod := range pods {
		if err := errors.Join(s.applyExample(ctx, files[i]), s.awaitRunning(ctx, vmPodLimit, pod)); err != nil {
			return err
		}
		if err := s.checkExample(ctx, pod, taken); err != nil {
			return err
		}
	}
	return s.deletePods(ctx, pods...)
}

// runsExampleInVM runs the example with a GPU and a VF of one root in a VM. VMHasGPUAndVFAndTwoEndpoints has such a VM by a manifest of its own.
func runsExampleInVM(ctx context.Context, s *site) error {
	if err := errors.Join(s.applyExample(ctx, "gpu-and-vf-same-root"), s.awaitRunning(ctx, vmPodLimit, gpuAndVF)); err != nil {
		return err
	}
	return errors.Join(s.checkGPUAndVF(ctx), s.deletePods(ctx, gpuAndVF))
}

func (s *site) applyExample(ctx context.Context, file string) error {
	text, err := example(file)
	if err != nil {
		return err
	}
	return s.apply(ctx, tenant, text)
}

// checkExample checks that none of a pod's functions is among those that others have taken.
func (s *site) checkExample(ctx context.Context, pod string, taken map[string]string) error {
	held, err := s.held(ctx, pod)
	if err != nil {
		return err
	}
	for _, address := range held {
		if taken[address] != "" {
			return fmt.Errorf("%s has %s, and so has %s", pod, address, taken[address])
		}
		taken[address] = pod
	}
	return nil
}

// checkGPUAndVF checks that both are in the pod's VM, and come from one root.
func (s *site) checkGPUAndVF(ctx context.Context) error {
	held, err := s.held(ctx, gpuAndVF)
	if err != nil {
		return err
	}
	report, err := s.checkVM(ctx, gpuAndVF)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(report.Functions, isDisplay) || len(report.Interfaces) != 1 || report.Interfaces[0].Driver != "igbvf" {
		return fmt.Errorf("want a display and a VF with its driver, the VM sees %+v", report)
	}
	return s.checkSameRoot(ctx, held)
}

func isDisplay(f protocol.Function) bool { return strings.HasPrefix(f.Class, "03") }

// checkSameRoot checks, by the kernel's own paths, that a GPU and a VF sit below one PCIe root.
func (s *site) checkSameRoot(ctx context.Context, functions []string) error {
	roots := map[string]bool{}
	for _, address := range functions {
		path, err := s.output(ctx, "readlink -f /sys/bus/pci/devices/"+address)
		if err != nil {
			return err
		}
		below, _ := strings.CutPrefix(path, "/sys/devices/") // pci0000:20/0000:20:00.0/...
		root, _, _ := strings.Cut(below, "/")
		roots[root] = true
	}
	if len(roots) != 1 {
		return fmt.Errorf("%v are below %v; want one root", functions, roots)
	}
	s.log("%v are below %v", functions, roots)
	return nil
}

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/e2e/node"
)

// withKataConfig does something while the handler's Kata has a drop-in more, which comes after ours.
func (s *site) withKataConfig(ctx context.Context, text string, do func(context.Context, *site) error) error {
	file := path.Join(s.kata.HandlerConfig(), "config.d", "70-case.toml")
	if _, err := s.output(ctx, "printf '%s' '"+text+"' >"+file); err != nil {
		return fmt.Errorf("change Kata's configuration: %w", err)
	}
	err := do(ctx, s)
	_, removeErr := s.output(context.WithoutCancel(ctx), "rm "+file)
	return errors.Join(err, removeErr)
}

// Our drop-in's place among a handler's, and where it is kept while another one has that.
const (
	ourDropIn  = "50-kata-gpu.toml"
	keptDropIn = "/run/" + ourDropIn
)

// hotPlugged: with our drop-in for hot plug in place of the one for cold plug, and a plugin that knows of it, a VM gets a VF when
// its container is made.
func hotPlugged(ctx context.Context, s *site) error {
	text, err := os.ReadFile("../../runtimeclass/kata/50-kata-gpu-hotplug.toml")
	if err != nil {
		return err
	}
	if err := s.node.InstallPlugin(ctx, chart, "plugin.extraArgs={--hot-plug}"); err != nil {
		return err
	}
	file := path.Join(s.kata.HandlerConfig(), "config.d", ourDropIn)
	write := s.node.Command(ctx, "sh", "-c", "mv "+file+" "+keptDropIn+" && cat >"+file)
	write.Stdin = bytes.NewReader(text)
	if out, err := write.CombinedOutput(); err != nil {
		return fmt.Errorf("change to hot plug: %w: %s", err, out)
	}
	err = errors.Join(s.largeIsRefused(ctx), s.podHasHotPluggedVF(ctx))
	after := context.WithoutCancel(ctx)
	_, backErr := s.output(after, "mv "+keptDropIn+" "+file)
	return errors.Join(err, backErr, s.node.InstallPlugin(after, chart))
}

// largeIsRefused: the GPU stand-in's BAR of 16 MiB does not fit below a port of a VM that runs. Its taint keeps pods away, and Prepare
// refuses one that tolerates it.
func (s *site) largeIsRefused(ctx context.Context) error {
	claim := strings.Replace(directClaim, "deviceClassName:", "tolerations: [{operator: Exists}], deviceClassName:", 1)
	if err := s.apply(ctx, trusted, claim+vmPod("large", gpuDirect)); err != nil {
		return err
	}
	err := s.awaitEvent(ctx, trusted, "large", "HotPlugWindowTooSmall", "16 MiB")
	_, deleteErr := s.plane.Kubectl(ctx, "delete", "pod/large", "resourceclaim/direct", "--namespace", trusted, "--grace-period=1")
	return errors.Join(err, deleteErr)
}

func (s *site) podHasHotPluggedVF(ctx context.Context) error {
	if err := s.apply(ctx, tenant, templates+vmPod("hot", vfOfTemplate)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "hot"); err != nil {
		return err
	}
	report, err := s.checkVM(ctx, "hot")
	if err == nil && (len(report.Interfaces) != 1 || report.Interfaces[0].Driver != "igbvf") {
		err = fmt.Errorf("want a network interface that works, the VM sees %+v", report)
	}
	return errors.Join(err, s.deletePods(ctx, "hot"))
}

// A careless administrator's settings: all of a pod's annotations reach Kata, and Kata believes them.
const (
	carelessKata       = "[hypervisor.qemu]\nenable_annotations = [\".*\"]\n"
	carelessContainerd = `version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata-gpu]
pod_annotations = ["io.katacontainers.*", "cdi.k8s.io/*"]
container_annotations = ["io.katacontainers.*", "cdi.k8s.io/*"]
`
	carelessFile = "/etc/containerd/conf.d/z-careless.toml" // read after ours
)

// refusesAnnotations tries, in a namespace that the admission policies don't look at, what annotations do to a VM: with
// our configuration, and with a careless one.
func refusesAnnotations(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, directClaim+vmPod("holder", gpuDirect)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "holder"); err != nil {
		return err
	}
	heldCDI, err := s.output(ctx, `sed -n 's/.*"name": *"\([^"]*\)".*/\1/p' /var/run/cdi/kata-vfio.dev-vfio_*.json | head -n 1`)
	if err != nil {
		return err
	}
	attacks := annotationAttacks("kata-vfio.dev/vfio=" + heldCDI)
	if err := s.refusedInTurns(ctx, attacks, 1); err != nil {
		return fmt.Errorf("with our configuration: %w", err)
	}
	err = s.whileCareless(ctx, func(ctx context.Context, s *site) error { return s.refusedInTurns(ctx, attacks, 1) })
	if err != nil {
		return fmt.Errorf("with a careless configuration: %w", err)
	}
	return s.awaitRunning(ctx, nodeLimit, "holder")
}

func annotationAttacks(heldCDI string) []attack {
	const inVM = "runtimeClassName: kata-gpu\ncontainers: [{name: main, image: '" + node.PauseImage + "', imagePullPolicy: Never}]"
	const refused = "AnnotationNotAllowed"
	return []attack{
		{
			name: "annotation-mode", namespace: trusted, spec: inVM, reason: refused, text: "io.katacontainers.config.runtime.vfio_mode",
			annotations: "io.katacontainers.config.runtime.vfio_mode: vfio",
		}, {
			name: "annotation-params", namespace: trusted, spec: inVM, reason: refused, text: "io.katacontainers.config.hypervisor.kernel_params",
			annotations: "io.katacontainers.config.hypervisor.kernel_params: agent.debug_console",
		}, {
			name: "annotation-cdi", namespace: trusted, spec: inVM, reason: refused, text: "cdi.k8s.io/mine",
			annotations: "cdi.k8s.io/mine: " + heldCDI,
		},
	}
}

// whileCareless does something while containerd and Kata take every annotation.
func (s *site) whileCareless(ctx context.Context, do func(context.Context, *site) error) error {
	if _, err := s.output(ctx, "printf '%s' '"+carelessContainerd+"' >"+carelessFile); err != nil {
		return err
	}
	err := s.node.RestartContainerd(ctx)
	if err == nil {
		err = s.withKataConfig(ctx, carelessKata, do)
	}
	_, removeErr := s.output(context.WithoutCancel(ctx), "rm "+carelessFile)
	return errors.Join(err, removeErr, s.node.RestartContainerd(context.WithoutCancel(ctx)))
}

// lowMemlock is much less than the VM's memory.
const lowMemlock = "1048576"

// memlockIsLow starts a VM whose memory is larger than containerd's limit of locked memory, which its QEMU inherits.
func memlockIsLow(ctx context.Context, s *site) error {
	if _, err := s.output(ctx, "prlimit --memlock="+lowMemlock+":"+lowMemlock+" --pid $(pgrep -x containerd)"); err != nil {
		return err
	}
	err := podHasGPU(ctx, s)
	_, backErr := s.output(context.WithoutCancel(ctx), "prlimit --memlock=unlimited:unlimited --pid $(pgrep -x containerd)")
	return errors.Join(err, backErr)
}

// noPort is a Kata that plugs nothing, neither cold nor hot.
const noPort = "[hypervisor.qemu]\ncold_plug_vfio = \"no-port\"\nhot_plug_vfio = \"no-port\"\n"

// portlessIsRefused: a pod whose handler's Kata has no port for devices doesn't run without its device.
func portlessIsRefused(ctx context.Context, s *site) error {
	return s.withKataConfig(ctx, noPort, func(ctx context.Context, s *site) error {
		if err := s.apply(ctx, tenant, directClaim+vmPod("portless", gpuDirect)); err != nil {
			return err
		}
		err := s.awaitEvent(ctx, tenant, "portless", "NotInSandbox", "")
		return errors.Join(err, s.neverStarted(ctx, attack{name: "portless", namespace: tenant}), s.deletePods(ctx, "portless"))
	})
}

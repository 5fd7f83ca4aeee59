//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/internal/compile"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

const guestnetImage = "localhost/" + guestnet + ":lab"

// guestnetImages has the image of the init container that works in a VM, made from this tree.
func guestnetImages(t *testing.T) ([]node.Image, error) {
	t.Helper()
	program := filepath.Join(t.TempDir(), guestnet)
	err := compile.Static(t.Context(), "github.com/kata-vfio/kata-vfio/cmd/"+guestnet, program)
	return []node.Image{{
		Name: guestnetImage, Programs: map[string]string{"/usr/bin/" + guestnet: program}, Entrypoint: []string{"/usr/bin/" + guestnet},
	}}, err
}

// variable is one that device plugins tell a container the address of its function by.
const variable = "PCIDEVICE_KATA_VFIO_DEV_VF"

// initContainerConfiguresVF: the example's init container gives the VF in its VM the claim's address, by what the kubelet has mounted for it, and the
// node reaches it. A variable that names another function of the guest's changes nothing.
func initContainerConfiguresVF(ctx context.Context, s *site) error {
	text, err := guestnetPod()
	if err != nil {
		return err
	}
	text = strings.Replace(text, "    securityContext:", "    env: [{name: "+variable+", value: '0000:00:01.0'}]\n    securityContext:", 1)
	_, err = s.output(ctx, "for pf in "+topology.PF0+" "+topology.PF1+"; do ip link set $(ls /sys/bus/pci/devices/$pf/net) up; done; "+
		"ip address replace "+nodeAddress+"/24 dev $(ls /sys/bus/pci/devices/"+topology.PF0+"/net)")
	if err != nil {
		return err
	}
	err = s.configuredVFIsReached(ctx, text)
	_, flushErr := s.output(context.WithoutCancel(ctx), "ip address flush dev $(ls /sys/bus/pci/devices/"+topology.PF0+"/net)")
	return errors.Join(err, flushErr)
}

// guestnetPod is the example with the init container, and networkedPod its pod.
func guestnetPod() (string, error) {
	text, err := example("vf-pod-network")
	text = strings.ReplaceAll(text, "cpu: 50m", "cpu: 600m") // the limit holds for its QEMU, too
	return strings.Replace(text, node.ShowImage, guestnetImage, 1), err
}

const networkedPod = "vf-network"

// linklessVFIsExplained: while the PFs are down the guest's driver chooses a MAC address, so that the init container does not find the VF. The pod's
// event names the PF, and the container's log the claim's condition.
func linklessVFIsExplained(ctx context.Context, s *site) error {
	text, err := guestnetPod()
	if err != nil {
		return err
	}
	if _, err := s.output(ctx, "for pf in "+topology.PF0+" "+topology.PF1+"; do ip link set $(ls /sys/bus/pci/devices/$pf/net) down; done"); err != nil {
		return err
	}
	if err := s.apply(ctx, tenant, text); err != nil {
		return err
	}
	if err := s.awaitEvent(ctx, tenant, networkedPod, "PFDown", "random MAC address"); err != nil {
		return err
	}
	err = s.until(ctx, "the init container says why it finds no VF", vmPodLimit, func(ctx context.Context) error {
		log, err := s.client.CoreV1().Pods(tenant).GetLogs(networkedPod, &corev1.PodLogOptions{Container: guestnet}).DoRaw(ctx)
		if err == nil && (!strings.Contains(string(log), "no interface for") || !strings.Contains(string(log), "LinkUp")) {
			err = fmt.Errorf("its log is %q", log)
		}
		return err
	})
	return errors.Join(err, s.deletePods(ctx, networkedPod))
}

func (s *site) configuredVFIsReached(ctx context.Context, text string) error {
	if err := s.apply(ctx, tenant, text); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, networkedPod); err != nil {
		return err
	}
	report, err := s.checkVM(ctx, networkedPod)
	if err != nil {
		return err
	}
	if len(report.Interfaces) != 1 || report.Interfaces[0].Name != "net1" || !slices.Contains(report.Interfaces[0].Addresses, endpointAddress+"/24") {
		return fmt.Errorf("want an interface net1 with %s, the VM sees %+v", endpointAddress, report.Interfaces)
	}
	if out, err := s.output(ctx, "ping -c 3 -W 10 "+endpointAddress); err != nil {
		return fmt.Errorf("ping the VM: %w: %s", err, out)
	}
	return s.deletePods(ctx, networkedPod)
}

// variableHasHostsAddress: Kata 4.1.0 leaves the address on the host in a container's variable, and translates it for processes that are executed later.
// When this fails because the container's is the guest's, what cmd/kata-vfio-guestnet and deploy/kata-upstream.md say of it is out of date.
func variableHasHostsAddress(ctx context.Context, s *site) error {
	host := topology.VF(topology.PF0, 0)
	claim := strings.NewReplacer("gpu.kata-vfio.dev", "vf.kata-vfio.dev", topology.GPU0, host).Replace(directClaim)
	pod := strings.Replace(vmPod("addressed", gpuDirect), "resources:", "env: [{name: "+variable+", value: '"+host+"'}], resources:", 1)
	if err := s.apply(ctx, tenant, claim+pod); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "addressed"); err != nil {
		return err
	}
	return errors.Join(s.variableIsTranslatedLater(ctx, host), s.deletePods(ctx, "addressed"))
}

func (s *site) variableIsTranslatedLater(ctx context.Context, host string) error {
	report, err := s.checkVM(ctx, "addressed")
	if err != nil {
		return err
	}
	if len(report.Interfaces) != 1 {
		return fmt.Errorf("want one interface, the VM sees %+v", report.Interfaces)
	}
	for process, want := range map[string]string{"1": host, "self": report.Interfaces[0].Address} {
		out, err := s.plane.Kubectl(ctx, "exec", "--namespace", tenant, "addressed", "--", "/container", "environ", "/proc/"+process+"/environ")
		if err != nil {
			return fmt.Errorf("read the environment of process %s: %w", process, err)
		}
		if !slices.Contains(strings.Fields(string(out)), variable+"="+want) {
			return fmt.Errorf("want %s=%s for process %s, its environment is\n%s", variable, want, process, out)
		}
	}
	return nil
}

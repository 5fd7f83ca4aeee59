package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/test/internal/await"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// The node's services.
const (
	containerd = "containerd"
	kubelet    = "kubelet"
)

// askCRI is the program that asks containerd whether it is ready for the kubelet, and fails if it is not. The kubelet would end
// if it found no CRI.
const askCRI = "askcri"

const (
	// startLimit is for the daemons to come up. Some fifteen seconds are usual.
	startLimit = 3 * time.Minute
)

// prepareMachine does what an init system would: mounts are shared, so that those of a pod can reach the host, and each
// PF has VFs. The audio function beside a GPU has another vendor's id than the GPU, since QEMU has no other, so the plugin
// would leave it with a driver of the host. Without a driver it goes along with its group.
const prepareMachine = `set -e
mount --make-rshared /
mkdir -p /etc/cdi /run/cdi /run/nri
for pf in ` + topology.PF0 + ` ` + topology.PF1 + `; do
	echo 3 >/sys/bus/pci/devices/$pf/sriov_numvfs
done
audio=` + topology.GPU1Audio + `
if [ -e /sys/bus/pci/devices/$audio/driver ]; then echo $audio >/sys/bus/pci/devices/$audio/driver/unbind; fi`

// importImages imports what stage has left. The labels are what the kubelet's own pulls would give them, and keep the
// kubelet from collecting them.
const importImages = `set -e
for archive in ` + Dir + `/images/*.tar; do ctr -n k8s.io images import --local "$archive"; done
for name in $(ctr -n k8s.io images list -q); do
	ctr -n k8s.io images label "$name" io.cri-containerd.image=managed io.cri-containerd.pinned=pinned
done`

// startDaemons starts containerd and the kubelet, and waits until the API server has the node as ready.
func (n *Node) startDaemons(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("the node is not ready after %s", startLimit))
	defer cancel()
	if err := n.script(ctx, "prepare the machine", prepareMachine); err != nil {
		return err
	}
	if err := n.installKata(ctx); err != nil {
		return err
	}
	if err := n.StartService(containerd, "containerd", "--config", n.containerdConfig()); err != nil {
		return err
	}
	if err := n.awaitContainerd(ctx); err != nil {
		return err
	}
	err := n.StartService(kubelet, "kubelet", "--config="+Dir+"/etc/kubelet.yaml", "--v=2",
		"--kubeconfig="+Dir+"/etc/kubelet.kubeconfig", "--hostname-override="+n.config.Name)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return n.script(ctx, "import the images", importImages) })
	group.Go(func() error {
		// After a reboot the API server has the node as ready from before.
		if err := n.until(ctx, "the kubelet serves", n.kubeletServes); err != nil {
			return err
		}
		return n.until(ctx, "the node is ready", n.isReady)
	})
	return group.Wait()
}

// containerdConfig is the configuration that containerd starts with. With Kata it is the file that bootstrap has added our handler to.
func (n *Node) containerdConfig() string {
	if n.config.Kata != nil {
		return "/etc/containerd/config.toml"
	}
	return Dir + "/" + containerdFile
}

// Reboot cuts the node's power, boots it and waits until it is ready. Its images and volumes survive, its sandboxes do
// not, and the pods that are bound to it start again.
func (n *Node) Reboot(ctx context.Context) error {
	n.mu.Lock()
	for _, s := range n.services {
		s.told = true
	}
	n.mu.Unlock()
	if err := n.machine.HardReset(ctx); err != nil {
		return fmt.Errorf("reboot node %s: %w", n.config.Name, err)
	}
	n.waitServices()
	return n.startDaemons(ctx)
}

// RestartKubelet restarts the kubelet and waits until it serves. Pods go on meanwhile.
func (n *Node) RestartKubelet(ctx context.Context) error {
	if err := n.RestartService(ctx, kubelet); err != nil {
		return err
	}
	return n.until(ctx, "the kubelet serves", n.kubeletServes)
}

// kubeletServes asks the kubelet through its forwarded port, because the API server does not lead to a node with a loopback
// address.
func (n *Node) kubeletServes(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/healthz", n.port), nil)
	if err != nil {
		return err
	}
	// Its certificate is of its own making.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // on this host
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close() // the status says all
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the kubelet says %s", answer.Status)
	}
	return nil
}

// RestartContainerd restarts containerd and waits until it serves. Containers and VMs go on meanwhile, and NRI plugins
// lose their connection.
func (n *Node) RestartContainerd(ctx context.Context) error {
	if err := n.RestartService(ctx, containerd); err != nil {
		return err
	}
	return n.awaitContainerd(ctx)
}

// CrashKubelet kills the kubelet, starts it again and waits until it serves.
func (n *Node) CrashKubelet(ctx context.Context) error {
	if err := n.CrashService(ctx, kubelet); err != nil {
		return err
	}
	return n.until(ctx, "the kubelet serves", n.kubeletServes)
}

// CrashContainerd kills containerd, starts it again and waits until it serves.
func (n *Node) CrashContainerd(ctx context.Context) error {
	if err := n.CrashService(ctx, containerd); err != nil {
		return err
	}
	return n.awaitContainerd(ctx)
}

// UseVMs sets whether sandboxes of Handler that are made from now on boot a VM, as they do at first. Everything else is the
// same without a VM, and shows better what a pod's start and end take besides its VM. Kata always boots one.
func (n *Node) UseVMs(ctx context.Context, use bool) error {
	if n.config.Kata != nil {
		return nil // it knows no other way
	}
	script := "touch /run/vm-off"
	if use {
		script = "rm -f /run/vm-off"
	}
	return n.script(ctx, "switch VMs on or off", script)
}

func (n *Node) awaitContainerd(ctx context.Context) error {
	return n.until(ctx, "containerd serves", func(ctx context.Context) error {
		return n.script(ctx, "ask containerd", askCRI+" /run/containerd/containerd.sock")
	})
}

// script runs a shell script in the machine and quotes it when it fails.
func (n *Node) script(ctx context.Context, what, text string) error {
	out, err := n.Command(ctx, "sh", "-c", text).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", what, err, bytes.TrimSpace(out))
	}
	return nil
}

// until tries until it works, ctx ends or the node is lost.
func (n *Node) until(ctx context.Context, what string, try func(context.Context) error) error {
	pace := await.Pace{Limit: time.Minute, Pause: 200 * time.Millisecond}
	if err := await.Until(ctx, pace, n.Lost, try); err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}

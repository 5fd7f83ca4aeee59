// Package node runs a Kubernetes node in a lab machine, for a control plane on this host: containerd, runc and the
// kubelet beside the lab's IOMMU and PCI functions, so that a pod gets a device as on a real node.
//
// The node has a RuntimeClass handler kata-gpu, whose sandboxes boot a nested VM with the devices of the pod; program
// runcvm, in the place of Kata's shim, says how far that goes. Pods reach what the machine reaches, and nothing leads to
// Services. The plugin's image, made from this tree, is on the node; InstallPlugin installs it.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/kata"
	"github.com/kata-vfio/kata-vfio/test/lab"
)

const (
	// DefaultName is a name that every host resolves to its loopback.
	DefaultName = "localhost"
	// Handler is the RuntimeClass handler of pods in VMs.
	Handler = "kata-gpu"
	// ShowImage has a program that prints what the VM of its pod sees, one JSON object of protocol.Report on a line,
	// and then waits to be ended.
	ShowImage = "localhost/show:1"
	// PauseImage has a program that waits to be ended: the node's sandboxes use it, and so may any container.
	PauseImage = "localhost/pause:1"
	// SanitizeImage runs kata-vfio-sanitize in the VM of its pod; its arguments are the program's. See Config.Sanitizer.
	SanitizeImage = "localhost/kata-vfio-sanitize:lab"
	// Dir is where the machine has the node's programs (in bin) and configuration.
	Dir = "/var/lib/node"
)

// memoryMiB is enough for the daemons and some four VMs.
const memoryMiB = 6144

// processors is one: with two the emulated machine's kernel took interrupts while it had them off, now and then, once
// VMs ran in it beside the daemons (1 in 3 VMs on some hosts; none in 20 with one).
const processors = 1

// Config says what node to start.
type Config struct {
	// Plane is the control plane that the node joins.
	Plane *controlplane.ControlPlane
	// Name is the node's; empty means DefaultName. The API server reaches the kubelet by it, so this host must resolve
	// it to 127.0.0.1: by the machine's own address it would leave this host. One node of a name runs at a time.
	Name string
	// Programs are further programs for Dir/bin, by their name there: paths of static binaries on this host.
	Programs map[string]string
	// Kata is what runs the pods of Handler; without one it is the stand-in runcvm.
	Kata *kata.Install
	// Sanitizer is the static binary of kata-vfio-sanitize. With it the node has SanitizeImage, and the VMs of the stand-in the program.
	Sanitizer string
	// Board says that the node has what StartBoard needs. The plugin's image then has a stub of NVIDIA's library, in the place
	// where an image of `make fabric-image` has the library.
	Board bool
	// Images are further images for pods, which must not be pulled (imagePullPolicy Never or IfNotPresent).
	Images []Image
	// Machine is the lab machine. Its State is the node's own and must be empty; its memory is 6 GiB unless
	// given, and it has one processor.
	Machine lab.Config
	// Progress takes lines for the person who waits; nil drops them.
	Progress io.Writer
}

// Node is a running node. Its methods may be called from several goroutines.
type Node struct {
	config  Config
	client  kubernetes.Interface // the administrator's
	machine *lab.Machine
	dir     string // of the services' logs
	port    int    // of the kubelet, here and in the machine
	ctx     context.Context
	cancel  context.CancelFunc // ends the services

	mu       sync.Mutex
	services map[string]*service
	stop     sync.Once
}

// Start builds what is not cached (minutes, the first time), boots a machine and waits until the node is ready, half a
// minute later. What an earlier node of that name has left in the cluster is deleted first, its pods included. The node
// lives until Stop or the end of ctx, and with this process, even if that is killed. A machine that is lost on the way
// is an error that matches lab.ErrLost.
func Start(ctx context.Context, c Config) (*Node, error) {
	n, err := newNode(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("start a node: %w", err)
	}
	if err := n.start(ctx); err != nil {
		err = fmt.Errorf("start node %s: %w", n.config.Name, n.explain(err))
		n.Stop() //nolint:contextcheck // ctx may be over, and the node is to be removed all the same
		return nil, err
	}
	context.AfterFunc(ctx, n.Stop)
	return n, nil
}

func newNode(ctx context.Context, c Config) (*Node, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	if c.Machine.State != "" {
		return nil, errors.New("the machine's State is set: it is the node's own")
	}
	if err := onLoopback(ctx, c.Name); err != nil {
		return nil, err
	}
	access, err := c.Plane.RESTConfig(controlplane.Admin())
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "kata-vfio-node-")
	if err != nil {
		return nil, err
	}
	n := &Node{config: c, client: client, dir: dir, services: map[string]*service{}}
	n.ctx, n.cancel = context.WithCancel(ctx)
	return n, nil
}

// onLoopback refuses a name unless it leads the API server to this host's loopback.
func onLoopback(ctx context.Context, name string) error {
	addresses, err := net.DefaultResolver.LookupIPAddr(ctx, name)
	if err != nil {
		return fmt.Errorf("resolve the node's name: %w", err)
	}
	for _, a := range addresses {
		if !a.IP.IsLoopback() {
			return fmt.Errorf("the node's name %s resolves to %s: the API server would look for the kubelet there", name, a.IP)
		}
	}
	return nil
}

func (n *Node) start(ctx context.Context) error {
	begin := time.Now()
	set, err := binaries.Ensure(ctx, binaries.Config{Modules: binaries.OfNode(), Progress: n.config.Progress})
	if err != nil {
		return err
	}
	if err := n.forget(ctx); err != nil {
		return err
	}
	if err := n.boot(ctx, set); err != nil {
		return err
	}
	if err := n.startDaemons(ctx); err != nil {
		return err
	}
	n.report("node %s ready after %.1fs, logs in %s", n.config.Name, time.Since(begin).Seconds(), n.dir)
	return nil
}

// boot boots the machine, with all that the node needs on the disk that becomes /var/lib.
func (n *Node) boot(ctx context.Context, set *binaries.Set) error {
	var err error
	if n.port, err = freePort(); err != nil {
		return err
	}
	begin := time.Now()
	state, err := os.MkdirTemp(n.dir, "state-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(state) // the machine's disk has it then
	if err := n.stage(ctx, set, filepath.Join(state, filepath.Base(Dir))); err != nil {
		return fmt.Errorf("make the machine's disk: %w", err)
	}
	n.report("the node's disk staged after %.1fs", time.Since(begin).Seconds())
	c := n.config.Machine
	c.State, c.Progress = state, n.config.Progress
	c.Forwards = append(c.Forwards, lab.Forward{Host: n.port, Machine: n.port})
	if c.CPUs == 0 {
		c.CPUs = processors
	}
	if c.MemoryMiB == 0 {
		c.MemoryMiB = memoryMiB
	}
	n.machine, err = lab.Start(n.ctx, c) //nolint:contextcheck // it lives until Stop, and n.ctx comes from the ctx of Start
	return err
}

// Machine is the lab machine that the node runs in.
func (n *Node) Machine() *lab.Machine { return n.machine }

// Name is the node's name in the cluster.
func (n *Node) Name() string { return n.config.Name }

// Stop ends the node at once, with its pods and VMs, and removes its files and the Node object. It may be called
// again.
func (n *Node) Stop() {
	n.stop.Do(func() {
		n.cancel()
		if n.machine != nil {
			n.machine.Stop()
		}
		n.waitServices()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(n.ctx), apiLimit)
		defer cancel()
		_ = n.forget(ctx)       // the next Start tells if it can't
		_ = os.RemoveAll(n.dir) // nothing refers to it any more
	})
}

// Lost returns nil while the machine and the node's services run. If the machine ended by itself, the error matches lab.ErrLost.
func (n *Node) Lost() error {
	err := n.servicesEnded()
	if err == nil {
		return n.machine.Lost()
	}
	return n.explain(err)
}

// breakLimit is for QEMU's end to become known after a connection broke.
const breakLimit = 10 * time.Second

// explain adds the machine's loss to an error that comes from it.
func (n *Node) explain(err error) error {
	if n.machine == nil {
		return err
	}
	return errors.Join(err, n.machine.LostWithin(breakLimit))
}

func (n *Node) report(format string, args ...any) {
	// The reader of progress is not part of the node.
	_, _ = fmt.Fprintf(n.config.Progress, format+"\n", args...)
}

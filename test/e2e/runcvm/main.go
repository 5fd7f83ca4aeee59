// Command runcvm stands where containerd's runc shim expects runc, and adds to a sandbox what Kata's shim would: a VM
// with the pod's devices. It is test code: the pod's containers stay containers, beside their VM.
//
// What it holds of Kata's contract (Kata 4.1, the Go runtime with cold plug): at the creation of a sandbox it asks the
// PodResources API at the socket of pod_resource_api_sock, reads device-plugin entries only, resolves each as the name
// of a CDI device, and plugs the VFIO nodes into the VM before it boots: of a group the first function that is not a bridge,
// and each function of iommufd with an object of its own, so that two functions of one group fail. What can't be
// resolved fails the sandbox, a socket that nobody serves too, while a socket that is not there leaves the choice to the
// sandbox's annotations. A container whose spec has a VFIO node that the VM does not have fails; the nodes that it has
// are taken out of the spec, as Kata does in its mode guest-kernel. A container's environment stays as it is: the agent
// rewrites addresses in PCIDEVICE_* variables for processes that are executed later only.
//
// Then it looks into the pod's network namespace: interfaces of PCI functions that have an address are physical
// endpoints. It binds their functions to vfio-pci, plugs them, and gives the address to the interface in the VM. When the
// sandbox ends well, they go back to their drivers, except the one of two that Kata's Go runtime leaves behind.
//
// A pod's containers see what their VM sees in /vm: report.json is nested.VM's report. By the socket control.sock there they
// have the VM do what they would do inside: access a device's memory, and run a program. VMs have the programs of the
// directory guest beside runcvm's own, in /bin.
//
// With the file /run/vm-off sandboxes have no VM, and all else is the same: for tests of what comes before and after.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// keeperCommand is the subcommand, unknown to runc, by which runcvm calls itself.
const keeperCommand = "keeper"

func main() {
	if len(os.Args) == 3 && os.Args[1] == keeperCommand {
		if err := keep(context.Background(), os.NewFile(readyFD, "ready"), vm{dir: os.Args[2]}.boot); err != nil {
			fmt.Fprintln(os.Stderr, "runcvm:", err)
			os.Exit(1)
		}
		return
	}
	c := parse(os.Args[1:])
	err := usual().handle(context.Background(), c)
	if err == nil {
		err = execRunc()
	}
	c.report(err)
	os.Exit(1)
}

// handle does what is ours of a call of runc, before runc does the rest.
func (n node) handle(ctx context.Context, c call) error {
	switch c.command {
	case "create":
		return n.create(ctx, c)
	case "delete":
		return n.delete(ctx, n.vm(c.id))
	default:
		return nil
	}
}

// execRunc becomes the runc beside this program, with the same arguments. It returns only if it can't.
func execRunc() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find runc: %w", err)
	}
	runc := filepath.Join(filepath.Dir(self), "runc")
	args := append([]string{runc}, os.Args[1:]...)
	return fmt.Errorf("run %s: %w", runc, syscall.Exec(runc, args, os.Environ()))
}

// report tells an error as runc does: in the file of --log, whose last error containerd makes the sandbox's or the
// container's, and on the standard error.
func (c call) report(failed error) {
	fmt.Fprintln(os.Stderr, "runcvm:", failed)
	if c.log == "" {
		return
	}
	f, err := os.OpenFile(c.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		line := map[string]string{
			"level": "error", "msg": "runcvm: " + failed.Error(), "time": time.Now().UTC().Format(time.RFC3339),
		}
		err = errors.Join(json.NewEncoder(f).Encode(line), f.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "runcvm: write the log:", err)
	}
}

// node is where things are on the node.
type node struct {
	// podResources is Kata's setting pod_resource_api_sock.
	podResources string
	// cdi are the directories that Kata reads CDI specs from; a later one has precedence.
	cdi []string
	// vms has a directory for each sandbox.
	vms string
	// sys is sysfs.
	sys string
	// takeEndpoints takes the physical endpoints in a network namespace.
	takeEndpoints func(ctx context.Context, netns string) ([]taken, error)
	// boot boots a VM; a test on a host has none to boot.
	boot func(v vm) error
	// patience is with the keepers of VMs.
	patience patience
}

func usual() node {
	return node{
		podResources: "/run/kata-vfio/pod-resources.sock", cdi: []string{"/etc/cdi", "/var/run/cdi"},
		vms: "/run/vm", sys: "/sys", takeEndpoints: takeEndpoints, boot: bootUnlessOff,
		// A boot's limit is below the kubelet's, so that the pod's event has our error and not only a deadline.
		patience: patience{boot: 4 * time.Minute, asked: 30 * time.Second, killed: 5 * time.Second},
	}
}

// vm is the VM of a sandbox. Without an ID it must not be the directory of all.
func (n node) vm(sandbox string) vm {
	return vm{dir: filepath.Join(n.vms, cmp.Or(sandbox, "none")), patience: n.patience}
}

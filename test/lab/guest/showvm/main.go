// Command showvm stands for Kata in the demo: it starts a VM with the devices that a CDI spec names, tells what the
// VM sees of them, pings through its network interface, and keeps it running until standard input ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/test/lab/nested"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// What the VM's owner puts into the VM for its network, and from where: an init container's part.
const (
	guestnetHere = "/host/kata-vfio-guestnet"
	guestnet     = "/bin/kata-vfio-guestnet"
	guestConfig  = "/etc/networks.json"
	network      = `[{"mac": "%s", "network": {"interface": "net1", "addresses": ["10.9.0.30/24"]}}]`
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: showvm CDI-SPEC MAC GATEWAY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "showvm:", err)
		os.Exit(1)
	}
}

func run(spec, mac, gateway string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	nodes, err := nodesOf(spec)
	if err != nil {
		return err
	}
	fmt.Println("starting a VM with", strings.Join(nodes, " and "))
	begin := time.Now()
	config := filepath.Join(os.TempDir(), filepath.Base(guestConfig))
	if err := os.WriteFile(config, fmt.Appendf(nil, network, mac), 0o600); err != nil {
		return err
	}
	defer os.Remove(config)
	vm, err := nested.Start(ctx, nested.Config{Nodes: nodes, Files: map[string]string{guestnet: guestnetHere, guestConfig: config}})
	if err != nil {
		return err
	}
	fmt.Printf("up after %.1f s; in the VM:\n", time.Since(begin).Seconds())
	err = show(ctx, vm, gateway)
	if err == nil {
		fmt.Println("the VM is waiting")
		_, err = io.Copy(io.Discard, os.Stdin)
	}
	return errors.Join(err, vm.Stop(context.WithoutCancel(ctx)))
}

// nodesOf returns the device nodes of a CDI spec.
func nodesOf(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var nodes []string
	for _, d := range spec.Devices {
		for _, n := range d.ContainerEdits.DeviceNodes {
			nodes = append(nodes, n.Path)
		}
	}
	return nodes, nil
}

// show prints what the VM sees, and pings.
func show(ctx context.Context, vm *nested.VM, gateway string) error {
	report, err := vm.Report(ctx)
	if err != nil {
		return err
	}
	for _, f := range report.Functions {
		if f.Driver != "" {
			fmt.Printf("  %s  %s:%s class %s  driver %s%s\n", f.Address, f.Vendor, f.Device, f.Class, f.Driver, children(report, f.Address))
		}
	}
	fmt.Println("$ kata-vfio-guestnet   (in the VM, as an init container does)")
	result, err := vm.Run(ctx, guestnet, "--config", guestConfig)
	if err != nil {
		return err
	}
	fmt.Print(result.Stdout)
	if result.Code != 0 {
		return fmt.Errorf("kata-vfio-guestnet ended with %d: %s", result.Code, result.Stderr)
	}
	ping, err := vm.Ping(ctx, gateway, 5)
	if err != nil {
		return err
	}
	fmt.Printf("  ping %s through the VF: %d of %d answered\n", gateway, ping.Received, ping.Sent)
	if ping.Received == 0 {
		return errors.New("nothing passes through the VF")
	}
	return nil
}

// children names what the VM's kernel made of a function.
func children(r protocol.Report, address string) string {
	var words []string
	for _, i := range r.Interfaces {
		if i.Address == address {
			words = append(words, i.Name+" "+i.MAC)
		}
	}
	for _, list := range [][]protocol.Node{r.Displays, r.Framebuffers, r.NVMe} {
		for _, n := range list {
			if n.Address == address {
				words = append(words, n.Name)
			}
		}
	}
	if len(words) == 0 {
		return ""
	}
	return "  (" + strings.Join(words, ", ") + ")"
}

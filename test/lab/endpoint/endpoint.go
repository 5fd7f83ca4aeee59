// Package endpoint does with a pod's network namespace what Kata does when it starts a sandbox (PhysicalEndpoint in
// virtcontainers/physical_endpoint.go and network_linux.go, Kata 4.1): it looks for interfaces of PCI functions that have
// an address, and takes their functions for the VM. It runs on the lab's node.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Endpoint is an interface that Kata would take, with what it configures in the guest.
type Endpoint struct {
	// Function is the PCI address, Driver the driver that it is on.
	Function, Driver string
	Name, MAC        string
	MTU              int
	// Addresses are in CIDR form; link-local ones are left out.
	Addresses []string
}

const functions = "/sys/bus/pci/devices"

// Scan returns the endpoints in the network namespace at a path. Interfaces of PCI functions without an address are
// passed over, as Kata does.
func Scan(path string) ([]Endpoint, error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("look at the pod's network namespace %s: %w", path, err)
	}
	defer ns.Close() // nothing was written to it
	handle, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	links, err := handle.LinkList()
	if err != nil {
		return nil, err
	}
	var found []Endpoint
	for _, l := range links {
		e, err := endpointOf(handle, l)
		if err != nil {
			return nil, err
		}
		if len(e.Addresses) > 0 {
			found = append(found, e)
		}
	}
	return found, nil
}

// endpointOf returns an interface's endpoint, without addresses where it is no PCI function's.
func endpointOf(handle *netlink.Handle, l netlink.Link) (Endpoint, error) {
	a := l.Attrs()
	e := Endpoint{Function: a.ParentDev, Name: a.Name, MAC: a.HardwareAddr.String(), MTU: a.MTU}
	if a.ParentDevBus != "pci" {
		return e, nil
	}
	driver, err := os.Readlink(filepath.Join(functions, e.Function, "driver"))
	if err != nil {
		return e, err
	}
	e.Driver = filepath.Base(driver)
	addresses, err := handle.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return e, err
	}
	for _, address := range addresses {
		if address.IP.IsGlobalUnicast() {
			e.Addresses = append(e.Addresses, address.IPNet.String())
		}
	}
	return e, nil
}

// Take binds the function to vfio-pci, and returns the node of its group for the VM.
func (e *Endpoint) Take(ctx context.Context) (string, error) {
	if err := e.bind(ctx, "vfio-pci"); err != nil {
		return "", err
	}
	group, err := os.Readlink(filepath.Join(functions, e.Function, "iommu_group"))
	if err != nil {
		return "", err
	}
	return "/dev/vfio/" + filepath.Base(group), nil
}

// GiveBack binds the function to the driver that it came from, as Kata does when the sandbox ends well.
func (e *Endpoint) GiveBack(ctx context.Context) error { return e.bind(ctx, e.Driver) }

// bind binds the function to a driver by driver_override.
func (e *Endpoint) bind(ctx context.Context, driver string) error {
	function := filepath.Join(functions, e.Function)
	if err := write(filepath.Join(function, "driver_override"), driver); err != nil {
		return err
	}
	if err := write(filepath.Join(function, "driver/unbind"), e.Function); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := write("/sys/bus/pci/drivers_probe", e.Function); err != nil {
		return err
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		now, err := os.Readlink(filepath.Join(function, "driver"))
		if err == nil && filepath.Base(now) == driver {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("bind %s to %s: it is on %q", e.Function, driver, now)
		}
		time.Sleep(10 * time.Millisecond) // the kernel says nothing of it
	}
}

// write writes an attribute of sysfs, which must be there.
func write(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

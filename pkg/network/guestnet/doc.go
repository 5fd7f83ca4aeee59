// Package guestnet configures the interfaces of a pod's VFs inside the pod's
// VM. Kata gives a VF to the guest as a bare PCI function: its driver there
// makes an interface of it that is down, has a name of the kernel's choice and
// no address. The command kata-vfio-guestnet, an init container with NET_ADMIN,
// finds that interface and does what the claim asks; all containers of the pod
// share the guest's network namespace, so that the others find it ready.
//
//	devices, err := guestnet.ReadMetadata("")
//	report, err := guestnet.Configure(ctx, devices, guestnet.Options{Wait: 30 * time.Second, Log: log})
//
// # What is asked
//
// [ReadMetadata] reads the device metadata files that DRA mounts into every
// container that names the claim (KEP-5304): of the devices of driver
// kata-vfio.dev, those that have networkData.hardwareAddress or the attribute
// guestNetwork. That attribute is a v1alpha1.GuestNetwork in JSON, read
// strictly. Without it, networkData.interfaceName and networkData.ips hold.
// [ReadConfig] takes the same from a file.
//
// # Which interface it is
//
// The one whose permanent or current MAC is the device's, which its PF has
// imposed. An InfiniBand VF has no such address: its interface is the one of
// IPoIB whose address ends with the port's GUID, the attribute portGUID of the
// metadata. Two interfaces that could be it, and one interface for two devices,
// are errors, and so is a device of which neither is known.
//
// A PCI address of the guest counts only in a config file, where a person says
// it. The plugin knows the host's alone, and no variable of the container tells
// the guest's: kata-agent 4.1.0 rewrites PCIDEVICE_* variables for a container in
// a copy that it drops (add_devices in src/agent/src/device/mod.rs: to_vec), and
// in earnest only for processes that are executed later (do_exec_process in
// src/agent/src/rpc.rs), and then for the functions of one device alone. What an
// init container has is the host's address, at which the guest may have another
// function.
//
// # What is done
//
// In this order, and nothing where it is so already: name, MTU, up, addresses,
// routes, rules; then it waits for the link and for the end of IPv6's duplicate
// address detection (RFC 4862), which needs the link. An interface that is up
// is taken down to rename it where the kernel is older than 6.2, and loses its
// IPv6 addresses and routes by that. Two devices may exchange their names.
//
// With a table of its own the interface's routes go there, with those to the
// networks of its addresses, since a neighbour is no further away because
// another table was asked. A rule of priority [RulePriority] sends there what
// comes from one of the addresses; link-local ones need none.
//
// Nothing is removed. Addresses and routes of the interface beyond what is
// asked are reported as unmanaged, without those that the kernel makes by
// itself. The one exception is an asked address whose detection failed: it is
// taken away and added again, which is how the detection is repeated.
//
// A crash leaves a part of the steps done; the next run does the rest.
package guestnet

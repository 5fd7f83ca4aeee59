package guestnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
	kjson "sigs.k8s.io/json"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// attrPCIBusID is the function's address on the host.
const attrPCIBusID resourceapi.QualifiedName = "resource.kubernetes.io/pciBusID"

// DefaultMetadataDir is where DRA mounts the metadata files.
const DefaultMetadataDir = metadata.ContainerDir

// ReadMetadata returns the devices that the metadata files in dir give to this
// container and that have a network, in the order of claim and request. An
// empty dir means [DefaultMetadataDir]. variables are the container's, as
// os.Environ has them.
//
// It is an [InputError] when a file can't be understood, a device has neither
// a MAC nor a known PCI address, or there is no such device at all.
func ReadMetadata(dir string, variables []string) ([]Device, error) {
	if dir == "" {
		dir = DefaultMetadataDir
	}
	entries, err := readEntries(dir)
	if err != nil {
		return nil, err
	}
	env := newEnvironment(variables)
	var devices []Device
	for i := range entries {
		if !entries[i].networked() {
			continue
		}
		d, err := entries[i].device(env, entries)
		if err != nil {
			return nil, inputErrorf("%s: %w", d.String(), err)
		}
		devices = append(devices, *d)
	}
	if len(devices) == 0 {
		return nil, inputErrorf("%s has %d devices of %s, none with a network; does the container name the VF's claim in resources.claims?",
			dir, len(entries), v1alpha1.DriverName)
	}
	return devices, nil
}

// entry is one of our devices as the metadata has it.
type entry struct {
	claim, request string
	index          int // among the devices of its request
	metadata.Device
}

// readEntries reads all of our devices below dir, which may be missing.
func readEntries(dir string) ([]entry, error) {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open metadata: %w", err)
	}
	defer root.Close() //nolint:errcheck // it was only read
	var entries []entry
	for _, kind := range []string{metadata.ResourceClaimsSubDir, metadata.ResourceClaimTemplatesSubDir} {
		files, err := fs.Glob(root.FS(), path.Join(kind, "*", "*", metadata.MetadataFileName(v1alpha1.DriverName)))
		if err != nil {
			return nil, fmt.Errorf("list metadata files in %s: %w", dir, err)
		}
		for _, file := range files {
			found, err := readFile(root, file)
			if err != nil {
				return nil, fmt.Errorf("metadata file %s: %w", path.Join(dir, file), err)
			}
			entries = append(entries, found...)
		}
	}
	return entries, nil
}

// readFile reads the metadata file <kind>/<claim>/<request>/<driver>-metadata.json.
func readFile(root *os.Root, file string) ([]entry, error) {
	f, err := root.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	var content metadata.DeviceMetadata
	if err := devicemetadata.DecodeMetadataFromStream(json.NewDecoder(f), &content); err != nil {
		return nil, &InputError{err}
	}
	var entries []entry
	for _, r := range content.Requests {
		request, _, _ := strings.Cut(r.Name, "/")
		for i, d := range r.Devices {
			if d.Driver == v1alpha1.DriverName {
				entries = append(entries, entry{claim: path.Base(path.Dir(path.Dir(file))), request: request, index: i, Device: d})
			}
		}
	}
	return entries, nil
}

// networked reports whether the device has a network to configure.
func (e *entry) networked() bool {
	_, asked := e.attribute(v1alpha1.AttrGuestNetwork)
	return asked || e.NetworkData != nil && e.NetworkData.HardwareAddress != ""
}

// attribute returns an attribute by its name or its name in our domain.
func (e *entry) attribute(name resourceapi.QualifiedName) (resourceapi.DeviceAttribute, bool) {
	if a, ok := e.Attributes[name]; ok {
		return a, true
	}
	a, ok := e.Attributes[v1alpha1.DriverName+"/"+name]
	return a, ok
}

// device makes a Device of the entry. With an error it has at least its names.
func (e *entry) device(env environment, all []entry) (*Device, error) {
	d := &Device{Claim: e.claim, Request: e.request, Name: e.Pool + "/" + e.Name}
	if err := e.network(&d.Network); err != nil {
		return d, err
	}
	if e.NetworkData != nil && e.NetworkData.HardwareAddress != "" {
		mac, err := parseMAC(e.NetworkData.HardwareAddress)
		if err != nil {
			return d, fmt.Errorf("networkData.hardwareAddress: %w", err)
		}
		d.MAC = mac
	}
	addr, err := env.address(e.seat(all))
	if err == nil {
		d.PCI = &addr
	}
	if d.MAC == nil && err != nil {
		return d, fmt.Errorf("there is no MAC, and no PCI address in the guest: %w; set the VF's MAC", err)
	}
	return d, nil
}

// network fills in what is asked of the device.
func (e *entry) network(n *v1alpha1.GuestNetwork) error {
	attr, ok := e.attribute(v1alpha1.AttrGuestNetwork)
	switch {
	case ok && attr.StringValue == nil:
		return fmt.Errorf("attribute %s is not a text", v1alpha1.AttrGuestNetwork)
	case ok:
		if err := decodeNetwork(*attr.StringValue, n); err != nil {
			return fmt.Errorf("attribute %s: %w", v1alpha1.AttrGuestNetwork, err)
		}
	case e.NetworkData != nil:
		n.Interface, n.Addresses = e.NetworkData.InterfaceName, e.NetworkData.IPs
	}
	return nil
}

// seat returns the entry's place in the variable of its request.
func (e *entry) seat(all []entry) seat {
	s := seat{request: e.request, index: e.index}
	if host := e.Attributes[attrPCIBusID].StringValue; host != nil {
		s.host = *host
	}
	claims := map[string]bool{}
	for i := range all {
		if other := &all[i]; variable(other.request) == variable(e.request) {
			claims[other.claim+"/"+other.request] = true
			s.devices++
		}
	}
	s.claims = len(claims)
	return s
}

// decodeNetwork reads one JSON object strictly.
func decodeNetwork(text string, n *v1alpha1.GuestNetwork) error {
	var read *v1alpha1.GuestNetwork
	strict, err := kjson.UnmarshalStrict([]byte(text), &read)
	if err := errors.Join(append(strict, err)...); err != nil {
		return err
	}
	if read == nil {
		return errors.New("null is no network")
	}
	*n = *read
	return nil
}

// parseMAC reads an Ethernet address that an interface may have.
func parseMAC(text string) (net.HardwareAddr, error) {
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf("%q is no MAC; want six bytes such as 02:00:5e:10:00:01", text)
	}
	const group = 1
	if mac[0]&group != 0 || mac.String() == "00:00:00:00:00:00" {
		return nil, fmt.Errorf("%q is no interface's MAC", text)
	}
	return mac, nil
}

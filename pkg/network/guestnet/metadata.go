package guestnet

import (
	"bytes"
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
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// DefaultMetadataDir is the directory in which DRA mounts the metadata files.
const DefaultMetadataDir = metadata.ContainerDir

// ReadMetadata returns the devices with a network that the metadata files in dir give to this container, in the order
// of claim and request. An empty dir means [DefaultMetadataDir].
//
// The error is an [InputError] if a file can't be parsed, a device has neither a MAC nor a port GUID, or no device has
// a network.
func ReadMetadata(dir string) ([]Device, error) {
	if dir == "" {
		dir = DefaultMetadataDir
	}
	entries, err := readEntries(dir)
	if err != nil {
		return nil, err
	}
	var devices []Device
	for i := range entries {
		if !entries[i].networked() {
			continue
		}
		d, err := entries[i].device()
		if err != nil {
			return nil, inputErrorf("%s: %w", d.String(), err)
		}
		devices = append(devices, *d)
	}
	if len(devices) == 0 {
		return nil, inputErrorf("%s has %s of %s, none with a network; does the container name the VF's claim in resources.claims?",
			dir, output.Count(len(entries), "device"), v1alpha1.DriverName)
	}
	return devices, nil
}

// entry is one of the driver's devices in the metadata.
type entry struct {
	claim, request string
	published      metadata.Device
}

// readEntries reads the driver's devices below dir, which may not exist.
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
		// A request with alternatives is named "request/subrequest".
		request, _, _ := strings.Cut(r.Name, "/")
		for _, d := range r.Devices {
			if d.Driver == v1alpha1.DriverName {
				entries = append(entries, entry{claim: path.Base(path.Dir(path.Dir(file))), request: request, published: d})
			}
		}
	}
	return entries, nil
}

// networked reports whether the device has a network to configure.
func (e *entry) networked() bool {
	_, asked := e.attribute(v1alpha1.AttrGuestNetwork)
	return asked || e.published.NetworkData != nil && e.published.NetworkData.HardwareAddress != ""
}

// attribute returns an attribute by its name, with or without the driver's domain.
func (e *entry) attribute(name resourceapi.QualifiedName) (resourceapi.DeviceAttribute, bool) {
	if a, ok := e.published.Attributes[name]; ok {
		return a, true
	}
	a, ok := e.published.Attributes[v1alpha1.DriverName+"/"+name]
	return a, ok
}

// device returns the entry's Device. With an error it has at least its names.
func (e *entry) device() (*Device, error) {
	d := &Device{Claim: e.claim, Request: e.request, Name: e.published.Pool + "/" + e.published.Name}
	if err := e.network(&d.Network); err != nil {
		return d, err
	}
	if e.published.NetworkData != nil && e.published.NetworkData.HardwareAddress != "" {
		mac, err := parseMAC(e.published.NetworkData.HardwareAddress)
		if err != nil {
			return d, fmt.Errorf("networkData.hardwareAddress: %w", err)
		}
		d.MAC = mac
	}
	if err := e.portGUID(d); err != nil {
		return d, err
	}
	if d.MAC == nil && d.PortGUID == nil {
		return d, errors.New("it has neither a MAC nor a port GUID, and Kata does not report a function's address in the guest to the container; " +
			"set the VF's mac or portGUID in its VFConfig, which its PF must be able to impose")
	}
	return d, nil
}

// portGUID sets the GUID of an InfiniBand port, if the device has one.
func (e *entry) portGUID(d *Device) error {
	attr, ok := e.attribute(v1alpha1.AttrPortGUID)
	switch {
	case !ok:
		return nil
	case attr.StringValue == nil:
		return fmt.Errorf("attribute %s is not a string", v1alpha1.AttrPortGUID)
	}
	guid, err := parseGUID(*attr.StringValue)
	if err != nil {
		return fmt.Errorf("attribute %s: %w", v1alpha1.AttrPortGUID, err)
	}
	d.PortGUID = guid
	return nil
}

// network sets the requested network of the device.
func (e *entry) network(n *v1alpha1.GuestNetwork) error {
	attr, ok := e.attribute(v1alpha1.AttrGuestNetwork)
	switch {
	case ok && attr.StringValue == nil:
		return fmt.Errorf("attribute %s is not a string", v1alpha1.AttrGuestNetwork)
	case ok:
		if err := decodeNetwork(*attr.StringValue, n); err != nil {
			return fmt.Errorf("attribute %s: %w", v1alpha1.AttrGuestNetwork, err)
		}
	case e.published.NetworkData != nil:
		n.Interface, n.Addresses = e.published.NetworkData.InterfaceName, e.published.NetworkData.IPs
	}
	return nil
}

// decodeNetwork reads one JSON object strictly.
func decodeNetwork(text string, n *v1alpha1.GuestNetwork) error {
	var read *v1alpha1.GuestNetwork
	strict, err := kjson.UnmarshalStrict([]byte(text), &read)
	if err := errors.Join(append(strict, err)...); err != nil {
		return err
	}
	if read == nil {
		return errors.New("null is not a network")
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
	// The lowest bit of the first byte marks an address of several stations (IEEE 802), which no interface sends from.
	const group = 1
	if mac[0]&group != 0 || mac.String() == "00:00:00:00:00:00" {
		return nil, fmt.Errorf("%q is not an interface's MAC", text)
	}
	return mac, nil
}

// parseGUID reads the GUID of an InfiniBand port.
func parseGUID(text string) (net.HardwareAddr, error) {
	guid, err := net.ParseMAC(text)
	if err != nil || len(guid) != guidSize {
		return nil, fmt.Errorf("%q is no GUID; want eight bytes such as 02:00:5e:10:00:00:00:01", text)
	}
	if text := guid.String(); text == "00:00:00:00:00:00:00:00" || text == "ff:ff:ff:ff:ff:ff:ff:ff" {
		return nil, fmt.Errorf("%q is not a port's GUID", text)
	}
	return guid, nil
}

// configEntry is one entry of a config file; PCI is the guest's address.
type configEntry struct {
	MAC      string                `json:"mac"`
	PortGUID string                `json:"portGUID"`
	PCI      *pci.Address          `json:"pci"`
	Network  v1alpha1.GuestNetwork `json:"network"`
}

// wantEntries says what a config file is to have.
const wantEntries = "want a list with an entry for each interface: {mac, portGUID or pci, and network}"

// ReadConfig returns the devices that a YAML or JSON file lists, each with mac,
// portGUID or pci (the address in the guest) and network, a v1alpha1.GuestNetwork:
//
//	[{"mac": "02:00:5e:10:00:01", "network": {"interface": "net1", "addresses": ["192.0.2.10/24"]}}]
//
// A file that can't be read or understood is an [InputError].
func ReadConfig(file string) ([]Device, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, inputErrorf("read config: %w", err)
	}
	raw, err := v1alpha1.YAMLToJSON(text)
	if err != nil {
		return nil, inputErrorf("config %s: %w", file, err)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		return nil, inputErrorf("config %s: it is not a list; %s", file, wantEntries)
	}
	var list []configEntry
	strict, err := kjson.UnmarshalStrict(raw, &list)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, inputErrorf("config %s: %w", file, err)
	}
	if len(list) == 0 {
		return nil, inputErrorf("config %s: the list is empty; %s", file, wantEntries)
	}
	devices := make([]Device, len(list))
	for i := range list {
		d := &devices[i]
		d.Name = fmt.Sprintf("%s[%d]", file, i)
		if err := list[i].fill(d); err != nil {
			return nil, inputErrorf("config %s: %w", d.Name, err)
		}
	}
	return devices, nil
}

// fill sets the device's fields from the entry.
func (e *configEntry) fill(d *Device) (err error) {
	d.PCI, d.Network = e.PCI, e.Network
	said := 0
	for _, is := range []bool{e.MAC != "", e.PortGUID != "", e.PCI != nil} {
		if is {
			said++
		}
	}
	switch {
	case said != 1:
		return errors.New("want one of mac, portGUID and pci")
	case e.MAC != "":
		d.MAC, err = parseMAC(e.MAC)
	case e.PortGUID != "":
		d.PortGUID, err = parseGUID(e.PortGUID)
	}
	return err
}

// Device is a VF of the pod, and the requested state of its interface in the guest. At least one of MAC, PortGUID and
// PCI is set.
type Device struct {
	// Claim and Request are the pod's names of the claim and request. They are empty for an entry of a config file.
	Claim, Request string
	// Name is "<pool>/<device>", or the entry's position in the config file.
	Name string
	// MAC is the VF's MAC address, or nil if it is unknown.
	MAC net.HardwareAddr
	// PortGUID is the GUID of an InfiniBand VF, or nil for any other.
	PortGUID net.HardwareAddr
	// PCI is the function's address in the guest, or nil if it is unknown. It is used if no interface has the MAC or
	// the port GUID.
	PCI *pci.Address
	// Network is the requested network.
	Network v1alpha1.GuestNetwork
}

// String names the device for a message: "device node-1/vf-0000-3b-02-1
// (claim nic, request vf)".
func (d *Device) String() string {
	if d.Claim == "" {
		return "device " + d.Name
	}
	return "device " + d.Name + " (claim " + d.Claim + ", request " + d.Request + ")"
}

// sought describes what the interface is searched by.
func (d *Device) sought() string {
	var by []string
	if d.MAC != nil {
		by = append(by, "MAC "+d.MAC.String())
	}
	if d.PortGUID != nil {
		by = append(by, "port GUID "+d.PortGUID.String())
	}
	if d.PCI != nil {
		by = append(by, "PCI address "+d.PCI.String())
	}
	return strings.Join(by, " or ")
}

package guestnet

import (
	"errors"
	"fmt"
	"os"

	kjson "sigs.k8s.io/json"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// configEntry is one entry of a config file; PCI is the guest's address.
type configEntry struct {
	MAC      string                `json:"mac"`
	PortGUID string                `json:"portGUID"`
	PCI      *pci.Address          `json:"pci"`
	Network  v1alpha1.GuestNetwork `json:"network"`
}

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
	var list []configEntry
	strict, err := kjson.UnmarshalStrict(raw, &list)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, inputErrorf("config %s: %w", file, err)
	}
	if len(list) == 0 {
		return nil, inputErrorf("config %s: the list is empty", file)
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

// fill sets what the entry says.
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

package dra

import (
	"encoding/json"

	resourceapi "k8s.io/api/resource/v1"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// networkData is what is told of a VF's network: its address, and what the
// guest is to make of it. Nil for a device that is no NIC.
func networkData(p *plan.Plan, d *plan.Device) *resourceapi.NetworkDeviceData {
	data := &resourceapi.NetworkDeviceData{}
	if fn, ok := p.Function(d.Address); ok && fn.VF != nil {
		data.HardwareAddress = fn.VF.Want.MAC
	}
	if d.Network != nil {
		data.InterfaceName, data.IPs = d.Network.Interface, d.Network.Addresses
	}
	if data.HardwareAddress == "" && d.Network == nil {
		return nil
	}
	return data
}

// applyNetwork is the data as it is applied: what is not known is left out.
func applyNetwork(data *resourceapi.NetworkDeviceData) *resourceac.NetworkDeviceDataApplyConfiguration {
	ac := resourceac.NetworkDeviceData().WithIPs(data.IPs...)
	if data.HardwareAddress != "" {
		ac.WithHardwareAddress(data.HardwareAddress)
	}
	if data.InterfaceName != "" {
		ac.WithInterfaceName(data.InterfaceName)
	}
	return ac
}

// guestMetadata returns what the standard data have no place for, by the attribute's
// name.
func guestMetadata(p *plan.Plan, d *plan.Device) map[string]string {
	told := map[string]string{}
	if text, ok := guestNetwork(d); ok {
		told[v1alpha1.AttrGuestNetwork] = text
	}
	if fn, ok := p.Function(d.Address); ok && fn.VF != nil && fn.VF.Want.PortGUID != "" {
		told[v1alpha1.AttrPortGUID] = fn.VF.Want.PortGUID
	}
	return told
}

// guestNetwork is the device's network as JSON, for kata-vfio-guestnet: the
// standard data have no place for routes and the MTU.
func guestNetwork(d *plan.Device) (string, bool) {
	if d.Network == nil {
		return "", false
	}
	text, err := json.Marshal(d.Network)
	return string(text), err == nil
}

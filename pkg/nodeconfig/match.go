package nodeconfig

import (
	"slices"
	"strconv"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// matches reports whether f is everything that m asks for.
func matches(m *v1alpha1.DeviceMatch, s *device.Snapshot, f *device.Function) bool {
	if f.IsBridge() && len(m.Addresses) == 0 {
		return false // a rule over a vendor or class doesn't mean the bridges among them
	}
	return among(m.Types, string(f.Type)) &&
		among(m.Vendors, f.Vendor) &&
		among(m.Devices, f.Device) &&
		among(m.Addresses, f.Address) &&
		amongClasses(m.Classes, f.Class) &&
		amongPFs(m.PFNames, s, f)
}

// among reports whether v is in the list. An empty list doesn't ask.
func among[T comparable](list []T, v T) bool {
	return len(list) == 0 || slices.Contains(list, v)
}

// amongClasses reports whether the code begins with the digits of one of the
// prefixes.
func amongClasses(prefixes []string, class pci.Class) bool {
	return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(prefix string) bool {
		digits, err := strconv.ParseUint(prefix, 16, 24)
		return err == nil && len(prefix) <= 6 && uint64(class)>>(24-4*len(prefix)) == digits
	})
}

// amongPFs reports whether f is a VF of a PF with one of the netdev names.
func amongPFs(netdevs []string, s *device.Snapshot, f *device.Function) bool {
	if len(netdevs) == 0 {
		return true
	}
	if f.VF == nil {
		return false
	}
	pf, ok := s.Function(f.VF.PF)
	return ok && slices.ContainsFunc(pf.Children.Net, func(netdev string) bool {
		return slices.Contains(netdevs, netdev)
	})
}

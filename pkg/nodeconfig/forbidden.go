package nodeconfig

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// forbidden returns why f must never be taken, whatever the config says, as
// [Choice.Why] puts it; empty when it may be.
func forbidden(s *device.Snapshot, f *device.Function) string {
	switch {
	case f.IsBridge():
		return "it is a bridge"
	case len(f.Uses) > 0:
		return uses(f)
	case f.PF != nil && f.PF.NumVFs > 0:
		return fmt.Sprintf("it is a PF with VFs enabled (%d), which binding it would destroy", f.PF.NumVFs)
	case f.VF != nil:
		return ofTenantsPF(s, f)
	}
	return ""
}

// uses lists what the node itself needs f for.
func uses(f *device.Function) string {
	phrases := make([]string, len(f.Uses))
	for i, use := range f.Uses {
		phrases[i] = use.String()
	}
	return strings.Join(phrases, ", ")
}

// ofTenantsPF returns why the VF f can't be given away when its PF may be in
// a VM: whoever has the PF controls the VF.
func ofTenantsPF(s *device.Snapshot, f *device.Function) string {
	pf, ok := s.Function(f.VF.PF)
	if !ok || !device.IsVFIO(pf.Driver) {
		return ""
	}
	return fmt.Sprintf("its PF %s is on %s and may be a tenant's", pf.Address, pf.Driver)
}

package plan

import (
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// taken is a function together with the reason why it is taken.
type taken struct {
	f    *device.Function
	role Role
}

// take returns every function that goes with f, in order of address.
func take(s *device.Snapshot, f *device.Function) []taken {
	fns := isolation.Taken(s, f)
	all := make([]taken, len(fns))
	for i, t := range fns {
		all[i] = taken{t, roleBeside(f, t)}
	}
	return all
}

// roleBeside returns the role of t, which is taken on account of f.
func roleBeside(f, t *device.Function) Role {
	switch {
	case t.Address == f.Address:
		return RoleDevice
	case t.Group != nil && f.Group != nil && *t.Group == *f.Group:
		return RoleGroupMate
	default:
		return RoleCompanion
	}
}

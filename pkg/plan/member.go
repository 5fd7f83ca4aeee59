package plan

import (
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// member is a function together with the reason why it is taken.
type member struct {
	f    *device.Function
	role Role
}

// assignmentSet returns every function that goes with f, in order of address.
func assignmentSet(s *device.Snapshot, f *device.Function) []member {
	fns := isolation.AssignmentSet(s, f)
	all := make([]member, len(fns))
	for i, t := range fns {
		all[i] = member{t, roleIn(f, t)}
	}
	return all
}

// roleIn returns the role of t, which is taken on account of f.
func roleIn(f, t *device.Function) Role {
	switch {
	case t.Address == f.Address:
		return RoleDevice
	case t.Group != nil && f.Group != nil && *t.Group == *f.Group:
		return RoleGroupMate
	default:
		return RoleCompanion
	}
}

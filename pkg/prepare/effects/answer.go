package effects

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// configHeader is how many bytes of a configuration space are enough to see whether the function answers.
const configHeader = 64

// CheckAnswer checks that the functions of a record with a shared device answer on their host drivers. The other DRA
// driver gives these functions to a container next, and a driver can break a device after the reset proved it clean.
func (set *Set) CheckAnswer(rec *journal.Record) error {
	if !slices.ContainsFunc(rec.Plan.Devices, plan.Device.IsShared) {
		return nil
	}
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		if set.isGone(fn) {
			continue
		}
		header, err := set.FS.ConfigHead(fn.Address, configHeader)
		if err != nil {
			return fmt.Errorf("claim %s: look whether %s answers on driver %s: %w", rec.Plan.Claim, fn.Address, fn.Original.Driver, err)
		}
		if pci.Dead(header, fn.VF != nil) {
			return fmt.Errorf("%s does not answer on driver %s: its configuration space reads all ones", fn.Address, fn.Original.Driver)
		}
	}
	return nil
}

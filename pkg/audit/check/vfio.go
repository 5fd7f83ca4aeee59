package check

import "slices"

// vfioChecks returns the checks of group VFIO: functions are with VFIO as they
// should be, and with the VMMs of their claims.
func vfioChecks() []Check {
	return slices.Concat(vfioModuleChecks(), vfioBindingChecks(), vfioHolderChecks(), vfioRegisterChecks(), vfioUdevChecks(), nodeOwnerChecks(),
		[]Check{vfioPinnedCheck()}, vfioKernelChecks(), vfioKataChecks())
}

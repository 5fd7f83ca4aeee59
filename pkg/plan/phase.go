package plan

// Phase is one kind of work on all functions or devices of a plan that need it. The lists of phases that [Preparation]
// and the other functions return are the only place that defines the order of effects: package prepare executes them,
// recovery resumes them, and a dry run prints their steps (see [Plan.StepsFor]).
type Phase string

// Phases. Those without steps change files or nothing.
const (
	// LoadModules loads the plan's kernel modules.
	LoadModules Phase = "loadModules"
	// Bind brings every function to its target.
	Bind Phase = "bind"
	// ResetBefore resets the functions that are not proven clean since an earlier tenant.
	ResetBefore Phase = "resetBefore"
	// ConfigureVFs makes the PFs apply the settings of the VFs.
	ConfigureVFs Phase = "configureVFs"
	// ApplySettings has the providers make the settings of functions; see [Setting]. Activate has them make the activations, and
	// Deactivate takes those back.
	ApplySettings Phase = "applySettings"
	Activate      Phase = "activate"
	Deactivate    Phase = "deactivate"
	// Measure records the registers against which the next reset is proven. It has no steps.
	Measure Phase = "measure"
	// TakeAddresses takes the addresses of VFs from their pools.
	TakeAddresses Phase = "takeAddresses"
	// BindEndpoints brings physical endpoints to their kernel drivers.
	BindEndpoints Phase = "bindEndpoints"
	// WriteSpec writes the CDI spec, RemoveSpec removes it. They have no steps.
	WriteSpec  Phase = "writeSpec"
	RemoveSpec Phase = "removeSpec"
	// RebindEndpoints brings physical endpoints back to their targets. UnbindEndpoints unbinds them from every driver.
	RebindEndpoints Phase = "rebindEndpoints"
	UnbindEndpoints Phase = "unbindEndpoints"
	// ResetAfter resets the functions that the tenant's VM could reach, and proves them clean.
	ResetAfter Phase = "resetAfter"
	// ResetForHost resets the same functions before a host driver gets them, without a proof.
	ResetForHost Phase = "resetForHost"
	// Restore brings every function back to its original binding, and its settings to their original values.
	Restore Phase = "restore"
	// ReturnAddresses returns addresses to their pools.
	ReturnAddresses Phase = "returnAddresses"
)

// Preparation returns the phases of a Prepare.
func Preparation() []Phase {
	// Resets follow Bind: a function is never reset below a host driver that uses it. Measure follows resets and
	// settings, because the reset after the tenant is compared with its values. WriteSpec ends the list: from then
	// on a VM can get the devices.
	// Activate follows Measure, since an activation may change registers, and a reset comes after its end.
	return []Phase{LoadModules, Bind, ResetBefore, ConfigureVFs, ApplySettings, Measure, TakeAddresses, BindEndpoints, Activate, WriteSpec}
}

// Undo returns the phases that undo a Prepare that did not complete. No tenant had the devices, so nothing is reset.
func Undo() []Phase {
	// RemoveSpec is first, so that no VM can get a device that is about to lose its driver. Addresses are last: nothing
	// uses them any more.
	return []Phase{RemoveSpec, Deactivate, UnbindEndpoints, Restore, ReturnAddresses}
}

// Cleaning returns the phases of an Unprepare up to the proof.
// RemoveSpec is first, as in Undo. RebindEndpoints takes endpoints from their kernel drivers, below which no function
// is reset. Deactivate is before the reset: the links of a partition, for example, must be down by then.
func Cleaning() []Phase { return []Phase{RemoveSpec, Deactivate, RebindEndpoints, ResetAfter} }

// GivingBack returns the phases after the devices are proven clean.
func GivingBack() []Phase { return []Phase{Restore, ReturnAddresses} }

// Renewal returns the phases between two sandboxes of one claim.
// ConfigureVFs is before BindEndpoints, because a VF's driver reads the MAC address when it binds.
func Renewal() []Phase {
	return []Phase{Deactivate, RebindEndpoints, ResetAfter, ConfigureVFs, ApplySettings, BindEndpoints, Activate}
}

// Reactivation returns the phases for a prepared claim whose activations were lost before its first sandbox. There is nothing to take back.
// A device is reset, as in Renewal: what made the activation may have started again, and left the device as it was.
func Reactivation() []Phase {
	return []Phase{RebindEndpoints, ResetAfter, ConfigureVFs, ApplySettings, BindEndpoints, Activate}
}

// ForHost returns the phases before [GivingBack] if a quarantine ends without a proof and a host driver gets a device.
func ForHost() []Phase { return []Phase{Deactivate, Bind, Measure, ResetForHost} }

// Retest returns the phases before [Cleaning] if the devices are quarantined.
func Retest() []Phase { return []Phase{Bind, Measure} }

// AfterReboot returns the phases for a claim of an earlier boot. The kernel has bound the functions at boot; only
// addresses remain from before.
func AfterReboot() []Phase { return []Phase{RemoveSpec, ReturnAddresses} }

// Place is where the functions of a plan are when a list of phases begins.
type Place int

// Places.
const (
	// AtOriginal is before the plan.
	AtOriginal Place = iota
	// AtTarget is on the drivers for the VM: bound, and without endpoints on kernel drivers.
	AtTarget
	// AtPrepared is where [Preparation] ends.
	AtPrepared
)

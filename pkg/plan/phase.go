package plan

// Phase is one kind of work on all functions or devices of a plan that need it. [Preparation] and the other functions
// below return lists of phases. These lists are the only place that defines the order of effects: package prepare
// executes them, recovery resumes them, and a dry run prints their steps (see [Plan.StepsFor]).
type Phase string

// Phases. A phase without steps only reads, or changes only files of the plugin.
const (
	// LoadModules loads the plan's kernel modules.
	LoadModules Phase = "loadModules"
	// Bind brings every function to its target.
	Bind Phase = "bind"
	// ResetBefore resets the functions that are not proven clean since an earlier tenant.
	ResetBefore Phase = "resetBefore"
	// ConfigureVFs makes the PFs apply the settings of the VFs.
	ConfigureVFs Phase = "configureVFs"
	// ApplySettings has the providers make those settings of functions that are not activations; see [Setting]. Activate
	// has them make the activations, and Deactivate has them take the activations back.
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
	// ResetForHost resets the functions of ResetAfter before a host driver gets them. It does not prove that they are
	// as before their tenant.
	ResetForHost Phase = "resetForHost"
	// Restore brings every function back to its original binding, and its settings to their original values.
	Restore Phase = "restore"
	// ReturnAddresses returns addresses to their pools.
	ReturnAddresses Phase = "returnAddresses"
)

// Preparation returns the phases of a Prepare.
func Preparation() []Phase {
	// ResetBefore follows Bind, because a function is never reset while a host driver uses it. Measure follows the
	// resets and the settings, because the registers after the tenant's reset are compared with the measured ones.
	// Activate follows Measure, because an activation may change registers, and it is taken back before that reset.
	// WriteSpec ends the list, because from then on a VM can get the devices.
	return []Phase{LoadModules, Bind, ResetBefore, ConfigureVFs, ApplySettings, Measure, TakeAddresses, BindEndpoints, Activate, WriteSpec}
}

// Undo returns the phases that undo a Prepare that did not complete. No tenant had the devices, so nothing is reset.
func Undo() []Phase {
	// RemoveSpec is first, so that no VM can get a device that is about to lose its driver. ReturnAddresses is last,
	// because nothing uses the addresses any more by then.
	return []Phase{RemoveSpec, Deactivate, UnbindEndpoints, Restore, ReturnAddresses}
}

// Cleaning returns the phases of an Unprepare up to the proof. RemoveSpec is first, as in [Undo]. Deactivate comes
// before the reset: the links of a partition, for example, must be down by then. RebindEndpoints takes endpoints from
// their kernel drivers, because a function is never reset while a host driver uses it.
func Cleaning() []Phase { return []Phase{RemoveSpec, Deactivate, RebindEndpoints, ResetAfter} }

// GivingBack returns the phases after the devices are proven clean.
func GivingBack() []Phase { return []Phase{Restore, ReturnAddresses} }

// Renewal returns the phases between two sandboxes of one claim. ConfigureVFs comes before BindEndpoints, because a
// VF's driver reads the MAC address when it binds.
func Renewal() []Phase {
	return []Phase{Deactivate, RebindEndpoints, ResetAfter, ConfigureVFs, ApplySettings, BindEndpoints, Activate}
}

// Reactivation returns the phases for a prepared claim whose activations were lost before its first sandbox. No
// activation has to be taken back. The devices are reset, as in [Renewal]: the program that made the activation may
// have restarted and left a device as it was.
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

// Place says on which bindings the functions of a plan are when a list of phases begins.
type Place int

// Places.
const (
	// AtOriginal is where the plan found the functions.
	AtOriginal Place = iota
	// AtTarget is on the drivers for the VM. Endpoints are on VFIO too, not on their kernel drivers.
	AtTarget
	// AtPrepared is where [Preparation] ends.
	AtPrepared
)

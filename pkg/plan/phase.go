package plan

// Phase is one kind of work on all functions or devices of a plan that need it.
// Lists of phases, as [Preparation] and the others return them, are the one order
// of effects: package prepare carries them out, recovery resumes them, and a dry
// run prints their steps (see [Plan.StepsOf]).
type Phase string

// Phases. Those without steps change files, or nothing at all.
const (
	// LoadModules loads the plan's kernel modules.
	LoadModules Phase = "loadModules"
	// Bind brings every function to its target.
	Bind Phase = "bind"
	// ResetBefore resets what is not proven clean since an earlier tenant.
	ResetBefore Phase = "resetBefore"
	// ConfigureVFs has the PFs set what the VFs are to have.
	ConfigureVFs Phase = "configureVFs"
	// Measure records the registers against which the next reset is proven. It has no steps.
	Measure Phase = "measure"
	// TakeAddresses takes the addresses of VFs from their pools.
	TakeAddresses Phase = "takeAddresses"
	// BindEndpoints brings physical endpoints to their kernel drivers.
	BindEndpoints Phase = "bindEndpoints"
	// WriteSpec writes the CDI spec, RemoveSpec removes it. They have no steps.
	WriteSpec  Phase = "writeSpec"
	RemoveSpec Phase = "removeSpec"
	// RebindEndpoints brings physical endpoints back to their targets, UnbindEndpoints
	// takes them from every driver.
	RebindEndpoints Phase = "rebindEndpoints"
	UnbindEndpoints Phase = "unbindEndpoints"
	// ResetAfter resets what the tenant's VM could reach, and proves it clean.
	ResetAfter Phase = "resetAfter"
	// ResetForHost resets the same before a host driver gets it, where no proof is asked for.
	ResetForHost Phase = "resetForHost"
	// Restore brings every function back to its original binding, a VF with the
	// settings that it had.
	Restore Phase = "restore"
	// ReturnAddresses returns addresses to their pools.
	ReturnAddresses Phase = "returnAddresses"
)

// Preparation returns the phases of a Prepare.
func Preparation() []Phase {
	return []Phase{LoadModules, Bind, ResetBefore, ConfigureVFs, Measure, TakeAddresses, BindEndpoints, WriteSpec}
}

// Undo returns the phases that take back a Prepare which did not end: no tenant
// had the devices, so nothing is reset.
func Undo() []Phase {
	return []Phase{RemoveSpec, UnbindEndpoints, Restore, ReturnAddresses}
}

// Cleaning returns the phases of an Unprepare up to the proof.
func Cleaning() []Phase { return []Phase{RemoveSpec, RebindEndpoints, ResetAfter} }

// GivingBack returns the phases that follow once the devices are clean.
func GivingBack() []Phase { return []Phase{Restore, ReturnAddresses} }

// Renewal returns the phases between two sandboxes of one claim.
func Renewal() []Phase { return []Phase{RebindEndpoints, ResetAfter, ConfigureVFs, BindEndpoints} }

// ForHost returns the phases before [GivingBack] where a quarantine ends without a
// proof and a host driver gets a device.
func ForHost() []Phase { return []Phase{Bind, Measure, ResetForHost} }

// Retest returns the phases that come before [Cleaning] where the devices are quarantined.
func Retest() []Phase { return []Phase{Bind, Measure} }

// AfterReboot returns the phases for a claim of an earlier boot. The node's start has
// put the functions where they are; only addresses outlive it.
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

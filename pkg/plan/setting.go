package plan

import "slices"

// Setting is a value that a provider sets for a claim, and takes back after it, such as the scheduling of a slice, the
// type of a vGPU, or the partition of a fabric. The driver of a function is not a setting. Package plan decides the
// setting, and the provider that it names carries it out; see [bind.Provider].
type Setting struct {
	// Provider is the provider's name.
	Provider string `json:"provider"`
	// Name is the name of the setting, and Want the wanted value, in the provider's words.
	Name string `json:"name"`
	Want string `json:"want"`
	// Applied is the value that was read back after Want was set; empty before. It may differ from Want, because the
	// device may round.
	Applied string `json:"applied,omitempty"`
	// Found is the value that Prepare found and that is set again after the claim. It is empty in a plan that is only
	// shown.
	Found string `json:"found,omitempty"`
	// Replaces is the only value that Want may replace; nil if it may replace any. If Prepare finds another value, it
	// leaves the setting out, or refuses the claim if the setting is an activation.
	Replaces *string `json:"replaces,omitempty"`
	// Activation says that the setting makes the device work. An activation is made last, and taken back before the
	// device is reset. Other settings are made before the registers are measured, and taken back when the function
	// returns to its driver.
	Activation bool `json:"activation,omitempty"`
}

// IsWanted reports whether a value is the wanted one, or what the device has made of it.
func (s *Setting) IsWanted(now string) bool {
	return now == s.Want || s.Applied != "" && now == s.Applied
}

// SetStep returns the step that brings the setting s of fn from one value to another.
func (fn *Function) SetStep(s *Setting, from, to string) Step {
	return Step{
		Operation: SetValue, Address: fn.Address, DriverBefore: fn.Target.Driver, DriverAfter: fn.Target.Driver,
		Provider: s.Provider, Setting: s.Name, Value: to, Former: from,
	}
}

// Providers returns the names of the providers that serve fn, each once, in order. It includes providers that have no
// setting for fn.
func (fn *Function) Providers() []string {
	var all []string
	for _, s := range fn.Settings {
		all = append(all, s.Provider)
	}
	all = append(all, fn.ServedBy...)
	slices.Sort(all)
	return slices.Compact(all)
}

// SelectSettings returns, in order, the settings of fn that are activations, or those that are not.
func (fn *Function) SelectSettings(activations bool) []*Setting {
	var all []*Setting
	for i := range fn.Settings {
		if fn.Settings[i].Activation == activations {
			all = append(all, &fn.Settings[i])
		}
	}
	return all
}

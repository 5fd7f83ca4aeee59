package sanitize

import (
	"fmt"
	"slices"
	"strings"
)

// FirmwarePolicy says what a change of a device's firmware leads to. Its values are those of v1alpha1.FirmwarePolicy, which operators
// write. It is a type of its own because the sanitizer in the guest links this package: it reads no documents of the API, and needs no
// YAML. A test in plugin holds the two together.
type FirmwarePolicy string

// Policies.
const (
	// Ignore compares nothing.
	Ignore FirmwarePolicy = ""
	// Record reports changes, and leaves the verdict as it is.
	Record FirmwarePolicy = "Record"
	// Require makes a device with a change Dirty until an operator accepts the change. A result without a measurement makes
	// it Unknown.
	Require FirmwarePolicy = "Require"
)

// Change is a difference between the measurement that is accepted for a device and the one of a result.
type Change struct {
	// Name is the piece of firmware.
	Name string `json:"name"`
	// Was is nil if the piece had not been measured before.
	Was *Measurement `json:"was,omitempty"`
	// Is is nil if the result lacks a measurement that is accepted: whether the firmware changed can't be said.
	Is *Measurement `json:"is,omitempty"`
}

// Added reports whether the piece was measured for the first time. As with the device's first measurement, nothing is
// known that it could be compared with.
func (c Change) Added() bool { return c.Was == nil }

// String returns "vbios: version 1.0, was version 0.9".
func (c Change) String() string {
	switch {
	case c.Was == nil:
		return fmt.Sprintf("%s: %s, not measured before", c.Name, c.Is.value())
	case c.Is == nil:
		return fmt.Sprintf("%s: not measured, was %s", c.Name, c.Was.value())
	}
	return fmt.Sprintf("%s: %s, was %s", c.Name, c.Is.value(), c.Was.value())
}

// value returns the measurement without its name.
func (m *Measurement) value() string { return string(m.Algorithm) + " " + m.Value }

// Compare returns the differences between the accepted measurements of a device and those of a result, sorted by name. A
// value of another algorithm can't be compared, and is a change. Without accepted measurements there is no difference:
// those of the result are the device's first.
func Compare(accepted, measured []Measurement) []Change {
	if len(accepted) == 0 {
		return nil
	}
	was, is := byName(accepted), byName(measured)
	var changes []Change
	for name, old := range was {
		if now := is[name]; now == nil || *now != *old {
			changes = append(changes, Change{Name: name, Was: old, Is: now})
		}
	}
	for name, now := range is {
		if was[name] == nil {
			changes = append(changes, Change{Name: name, Is: now})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return changes
}

// Accumulate returns the changes since the accepted measurements, from those before a result and those of the result. A piece that
// has its accepted value again has none. The first measurement of a piece does not count, and a piece that the result lacks keeps the change
// that it had.
func Accumulate(before, now []Change, measured []Measurement) []Change {
	all := slices.Clone(before)
	for _, c := range now {
		isKnown := slices.ContainsFunc(before, func(earlier Change) bool { return earlier.Name == c.Name })
		if !isKnown && !c.Added() {
			all = append(all, c)
		}
	}
	is := byName(measured)
	for i := range all {
		if m := is[all[i].Name]; m != nil {
			all[i].Is = m
		}
	}
	// Was is not nil: the loop above leaves out first measurements, and so did earlier calls.
	all = slices.DeleteFunc(all, func(c Change) bool { return c.Is != nil && *c.Was == *c.Is })
	slices.SortFunc(all, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func byName(measurements []Measurement) map[string]*Measurement {
	names := make(map[string]*Measurement, len(measurements))
	for _, m := range measurements {
		names[m.Name] = &m
	}
	return names
}

// Merge returns the measurements of a result, and those accepted before that the result lacks, sorted by name.
func Merge(accepted, measured []Measurement) []Measurement {
	merged := slices.Concat(measured, Lacking(accepted, measured))
	slices.SortFunc(merged, func(a, b Measurement) int { return strings.Compare(a.Name, b.Name) })
	return merged
}

// Lacking returns the accepted measurements of which a result has none of the same name.
func Lacking(accepted, measured []Measurement) []Measurement {
	is := byName(measured)
	return slices.DeleteFunc(slices.Clone(accepted), func(old Measurement) bool { return is[old.Name] != nil })
}

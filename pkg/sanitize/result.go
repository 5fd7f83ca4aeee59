// Package sanitize is the contract between a sanitizer, the program that wipes and measures a device in a VM between two
// tenants, and the plugin: the document that a sanitizer writes, and what the plugin concludes from it.
package sanitize

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// The version and kind of a [Result].
const (
	APIVersion = "kata-vfio.dev/v1alpha1"
	Kind       = "SanitizeResult"
)

// MaxMessage is the size of the longest result in bytes. The kubelet keeps no more of a termination message
// (MaxContainerTerminationMessageLength in pkg/kubelet/container/runtime.go of Kubernetes).
const MaxMessage = 4096

// Exit codes of a sanitizer. The exit code and the verdict of its result must agree.
const (
	ExitClean   = 0
	ExitUsage   = 2
	ExitDirty   = 3
	ExitUnknown = 4
)

// Verdict says what is known of a device after a sanitizer's run.
type Verdict string

// Verdicts. A result never has Interrupted, which is a verdict of [Decide].
const (
	// Clean: each check has found the device clean.
	Clean Verdict = "Clean"
	// Dirty: data or firmware of a former tenant may be in the device.
	Dirty Verdict = "Dirty"
	// Unknown: the device could not be wiped, or whether it is clean could not be checked.
	Unknown Verdict = "Unknown"
	// Interrupted: something that is neither the device's nor the sanitizer's fault ended the run. Run the sanitizer again.
	Interrupted Verdict = "Interrupted"
)

// ExitCode returns the exit code of a sanitizer whose result has the verdict.
func (v Verdict) ExitCode() int {
	switch v {
	case Clean:
		return ExitClean
	case Dirty:
		return ExitDirty
	default:
		return ExitUnknown
	}
}

// Worse returns the verdict that counts if a device gets both: Dirty before Unknown before Clean.
func (v Verdict) Worse(other Verdict) Verdict {
	switch {
	case v == Dirty || other == Dirty:
		return Dirty
	case v == Clean && other == Clean:
		return Clean
	default:
		return Unknown
	}
}

// Result is what a sanitizer writes. [Parse] reads it, and [Result.Encode] writes it.
type Result struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Verdict    Verdict `json:"verdict"`
	// Reason is one line. It may be empty only if the verdict is Clean.
	Reason string `json:"reason,omitempty"`
	// Device is the device that the sanitizer worked on. Only a result with the verdict Unknown may lack it.
	Device *Device `json:"device,omitempty"`
	// Checks are what was done. Only a result with the verdict Unknown may lack them.
	Checks []Check `json:"checks,omitempty"`
	// Firmware is what was measured.
	Firmware []Measurement `json:"firmware,omitempty"`
}

// Device names a device by what it says of itself.
type Device struct {
	// Vendor and Device are ids in the form of sysfs: "0x10de".
	Vendor string `json:"vendor"`
	Device string `json:"device"`
	// Serial is empty for a device without a serial number.
	Serial string `json:"serial,omitempty"`
}

// NewDevice returns the device with the ids.
func NewDevice(vendor, device pci.ID) Device {
	return Device{Vendor: "0x" + vendor.String(), Device: "0x" + device.String()}
}

// sameModel reports whether the ids are the same.
func (d Device) sameModel(other Device) bool {
	return d.Vendor == other.Vendor && d.Device == other.Device
}

// Check is one thing that a sanitizer did to a part of the device, and what it found.
type Check struct {
	// Name is the part: "bar0", "namespace1".
	Name string `json:"name"`
	// Method is how it was wiped and checked: "FillVerifyZeroVerify".
	Method  string  `json:"method"`
	Verdict Verdict `json:"verdict"`
	// Bytes is how much was wiped.
	Bytes uint64 `json:"bytes"`
	// Pattern describes what was written, and is empty if nothing was.
	Pattern string  `json:"pattern,omitempty"`
	Seconds float64 `json:"seconds"`
	// Reason is one line. It may be empty only if the verdict is Clean.
	Reason string `json:"reason,omitempty"`
}

// Algorithm says what the value of a measurement is.
type Algorithm string

// Algorithms: the version that the firmware states of itself, or a hash of its bytes in lower-case hexadecimal digits.
const (
	Version Algorithm = "version"
	SHA256  Algorithm = "sha256"
	SHA384  Algorithm = "sha384"
	SHA512  Algorithm = "sha512"
)

// digits returns the number of hexadecimal digits of the algorithm's values, 0 if they are none, and false for an unknown
// algorithm.
func (a Algorithm) digits() (int, bool) {
	switch a {
	case Version:
		return 0, true
	case SHA256:
		return 64, true
	case SHA384:
		return 96, true
	case SHA512:
		return 128, true
	}
	return 0, false
}

// Measurement is the state of one piece of firmware.
type Measurement struct {
	// Name is the piece: "vbios", "slot1".
	Name      string    `json:"name"`
	Algorithm Algorithm `json:"algorithm"`
	Value     string    `json:"value"`
}

package ledger

// Sanitization is what a sanitizing stage did with a device and found, in a [Sanitize] event.
type Sanitization struct {
	// Profile is the sanitizer's name in the configuration, and Image its digest as the runtime pulled it.
	Profile string `json:"profile"`
	Image   string `json:"image,omitempty"`
	// Verdict is Clean, Dirty, Unknown or Interrupted.
	Verdict string `json:"verdict"`
	// After is the claim of the tenant whose data was to be wiped; nil if none is known.
	After    *Claim                `json:"after,omitempty"`
	Checks   []SanitizeCheck       `json:"checks,omitempty"`
	Firmware []FirmwareMeasurement `json:"firmware,omitempty"`
	// Changes are the firmware's changes since it was measured before, one line each.
	Changes []string `json:"changes,omitempty"`
}

// SanitizeCheck is one part of the device that was wiped and checked.
type SanitizeCheck struct {
	Name    string  `json:"name"`
	Method  string  `json:"method"`
	Verdict string  `json:"verdict"`
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Reason  string  `json:"reason,omitempty"`
}

// FirmwareMeasurement is the state of one piece of firmware: the version that it states, or a hash.
type FirmwareMeasurement struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Value     string `json:"value"`
}

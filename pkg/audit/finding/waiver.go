package finding

// Waiver accepts a failure for a time. The check still runs.
type Waiver struct {
	// Rule is the rule's id, and Scope the device address or object that the
	// waiver is for; "*" is all.
	Rule  string `json:"rule"`
	Scope string `json:"scope"`
	// Until is the last day, "2027-03-31".
	Until  string `json:"until"`
	Reason string `json:"reason"`
	Author string `json:"author"`
	// Expired is set where Until has passed: the failure counts again.
	Expired bool `json:"expired,omitempty"`
}

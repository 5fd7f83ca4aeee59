package finding

import "github.com/kata-vfio/kata-vfio/pkg/isolation"

// Profile says what a node is for, and so what its findings weigh.
type Profile struct {
	Name string `json:"name"`
	// About is a sentence for people.
	About string `json:"about"`
	// Severities replaces those of rules; [Off] drops the rule (it becomes
	// notapplicable, and says so).
	Severities map[string]isolation.Severity `json:"severities,omitempty"`
}

// Off in a profile's Severities drops a rule.
const Off isolation.Severity = "off"

// Names of profiles.
const (
	MultiTenant  = "multi-tenant"
	SingleTenant = "single-tenant"
	Confidential = "confidential"
	Lab          = "lab"
)

package rule

import "slices"

// Severity is the severity of a failure. Conditions of isolation and checks of the audit use the same scale.
type Severity string

// Severities, worst first.
const (
	Critical Severity = "critical"
	High     Severity = "high"
	Medium   Severity = "medium"
	Low      Severity = "low"
	// Info is a fact that no configuration changes, or that is not a fault.
	Info Severity = "info"
)

// Severities returns all severities, worst first.
func Severities() []Severity { return []Severity{Critical, High, Medium, Low, Info} }

// rank orders severities, worst first.
func (s Severity) rank() int { return slices.Index(Severities(), s) }

// Compare orders severities, worst first. It suits slices.SortFunc.
func (s Severity) Compare(other Severity) int { return s.rank() - other.rank() }

// Severity returns the severity of a verdict with the code for the isolation of tenants; empty if the code is not about
// isolation. A check of the audit for the same fault has the same severity.
func (c Code) Severity() Severity {
	switch c {
	case NoIOMMUGroup, NoIOMMUMode, NoInterruptRemapping, UnsafeInterruptsAllowed, NoReset:
		return Critical
	case GroupNotViable, PeerToPeerPossible, ConfigSpaceDead, DirectMappedRegion, ATSEnabled, WeakReset:
		return High
	case IdentityDefaultDomain, ACSUnproven:
		return Medium
	case Bridge, GroupMates, ACSUnreadable:
		return Low
	default:
		return ""
	}
}

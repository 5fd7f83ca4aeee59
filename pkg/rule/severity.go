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

// Refusal is the severity of a code that refuses a claim, pod or request, and endangers nobody. Only texts of codes have it.
const Refusal Severity = "refusal"

// Severities returns all severities, worst first.
func Severities() []Severity { return []Severity{Critical, High, Medium, Low, Info} }

// rank orders severities, worst first.
func (s Severity) rank() int { return slices.Index(Severities(), s) }

// Compare orders severities, worst first. It suits slices.SortFunc.
func (s Severity) Compare(other Severity) int { return s.rank() - other.rank() }

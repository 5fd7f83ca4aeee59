package isolation

import "cmp"

// IdleUnsafeInterrupts is the severity of [UnsafeInterrupts] while interrupts are remapped, so that it has no effect.
const IdleUnsafeInterrupts = Medium

// severities says what a reason or a note with a code weighs.
func severities() map[Code]Severity {
	return map[Code]Severity{
		NoGroup:              Critical,
		NoIOMMU:              Critical,
		NotViable:            High,
		NoInterruptRemapping: Critical,
		UnsafeInterrupts:     Critical,
		PeerToPeer:           High,
		NoReset:              Critical,
		Dead:                 High,
		DirectRegion:         High,
		IsBridge:             Low,
		ATSEnabled:           High,
		IdentityDomain:       Medium,
		GroupMates:           Low,
		ACSUnproven:          Medium,
		ACSUnreadable:        Low,
		WeakReset:            High,
	}
}

// SeverityOf returns what a reason or a note with the code weighs. A check of the audit that asks for the same weighs
// the same.
func SeverityOf(code Code) Severity { return severities()[code] }

// Codes returns all codes with their severities.
func Codes() map[Code]Severity { return severities() }

// weighed returns the reason with the severity of its code, unless it has one of its own.
func weighed(r Reason) Reason {
	r.Severity = cmp.Or(r.Severity, SeverityOf(r.Code))
	return r
}

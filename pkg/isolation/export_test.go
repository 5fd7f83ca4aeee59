package isolation

import "github.com/kata-vfio/kata-vfio/pkg/rule"

// FixAt is fixAt for tests.
func FixAt(code rule.Code, placeholder, value string) string { return fixAt(code, placeholder, value) }

// ACSAtBootBy is acsAtBootBy for tests.
func ACSAtBootBy(value string) string { return acsAtBootBy(value) }

// OtherSlotFix is otherSlotFix for tests.
func OtherSlotFix(device string) string { return otherSlotFix(device) }

package sanitize

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Limits of a result.
const (
	maxChecks       = 32
	maxMeasurements = 32
	maxName         = 63
	maxValue        = 256
	// MaxReason is the size of the longest reason in bytes.
	MaxReason = 1024
)

// validate checks what the types of the fields don't say.
func (r *Result) validate() error {
	if err := checkVerdict("", r.Verdict, r.Reason); err != nil {
		return err
	}
	if err := r.Device.validate(r.Verdict); err != nil {
		return err
	}
	if err := r.checkChecks(); err != nil {
		return err
	}
	return r.checkFirmware()
}

// checkVerdict checks the verdict and the reason of the result, or of a check whose path with a dot is the prefix.
func checkVerdict(prefix string, v Verdict, reason string) error {
	switch {
	case v == "":
		return fmt.Errorf("%sverdict is missing", prefix)
	case v != Clean && v != Dirty && v != Unknown:
		return fmt.Errorf("%sverdict is %s, want Clean, Dirty or Unknown", prefix, show(string(v)))
	case v != Clean && strings.TrimSpace(reason) == "":
		return fmt.Errorf("%sreason is missing, and the verdict is %s", prefix, v)
	case len(reason) > MaxReason:
		return fmt.Errorf("%sreason has %d bytes, want at most %d", prefix, len(reason), MaxReason)
	case strings.ContainsFunc(reason, unprintable):
		return fmt.Errorf("%sreason is %s, want one line of printable characters", prefix, show(reason))
	}
	return nil
}

// unprintable reports whether a reason must not have the character: it would break the line, or reorder it on a terminal.
func unprintable(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }

// validate checks the device of a result with the verdict.
func (d *Device) validate(v Verdict) error {
	if d == nil {
		if v == Unknown {
			return nil
		}
		return errors.New("device is missing")
	}
	for _, id := range []struct{ name, value string }{{"vendor", d.Vendor}, {"device", d.Device}} {
		if digits, ok := strings.CutPrefix(id.value, "0x"); !ok || len(digits) != 4 || !isHex(digits) {
			return fmt.Errorf("device.%s is %s, want 0x and four lower-case hexadecimal digits", id.name, show(id.value))
		}
	}
	if !isValue(d.Serial) {
		return fmt.Errorf("device.serial is %s, want at most %d printable ASCII characters", show(d.Serial), maxValue)
	}
	return nil
}

// checkChecks checks the checks, and that those of a clean device have found it clean.
func (r *Result) checkChecks() error {
	if len(r.Checks) == 0 && r.Verdict != Unknown {
		return fmt.Errorf("checks is missing or empty, and the verdict is %s", r.Verdict)
	}
	if len(r.Checks) > maxChecks {
		return fmt.Errorf("checks has %d entries, want at most %d", len(r.Checks), maxChecks)
	}
	names := map[string]bool{}
	for i, c := range r.Checks {
		prefix := fmt.Sprintf("checks[%d].", i)
		if err := c.validate(prefix, names); err != nil {
			return err
		}
		if r.Verdict != Clean {
			continue
		}
		if c.Verdict != Clean {
			return fmt.Errorf("%sverdict is %s, and the result's is Clean", prefix, c.Verdict)
		}
		if c.Bytes == 0 {
			return fmt.Errorf("%sbytes is 0: the check has looked at nothing, and the result's verdict is Clean", prefix)
		}
	}
	return nil
}

// validate checks a check whose name must be new.
func (c *Check) validate(prefix string, names map[string]bool) error {
	if err := checkName(prefix, c.Name, names); err != nil {
		return err
	}
	if c.Method == "" || !isValue(c.Method) {
		return fmt.Errorf("%smethod is %s, want 1 to %d printable ASCII characters", prefix, show(c.Method), maxValue)
	}
	if !isValue(c.Pattern) {
		return fmt.Errorf("%spattern is %s, want at most %d printable ASCII characters", prefix, show(c.Pattern), maxValue)
	}
	if c.Seconds < 0 {
		return fmt.Errorf("%sseconds is %v, want 0 or more", prefix, c.Seconds)
	}
	return checkVerdict(prefix, c.Verdict, c.Reason)
}

// checkFirmware checks the measurements.
func (r *Result) checkFirmware() error {
	if len(r.Firmware) > maxMeasurements {
		return fmt.Errorf("firmware has %d entries, want at most %d", len(r.Firmware), maxMeasurements)
	}
	names := map[string]bool{}
	for i, m := range r.Firmware {
		prefix := fmt.Sprintf("firmware[%d].", i)
		if err := checkName(prefix, m.Name, names); err != nil {
			return err
		}
		digits, ok := m.Algorithm.digits()
		if !ok {
			return fmt.Errorf("%salgorithm is %s, want version, sha256, sha384 or sha512", prefix, show(string(m.Algorithm)))
		}
		if m.Value == "" || !isValue(m.Value) {
			return fmt.Errorf("%svalue is %s, want 1 to %d printable ASCII characters", prefix, show(m.Value), maxValue)
		}
		if digits > 0 && (len(m.Value) != digits || !isHex(m.Value)) {
			return fmt.Errorf("%svalue is %s, want the %d lower-case hexadecimal digits of %s", prefix, show(m.Value), digits, m.Algorithm)
		}
	}
	return nil
}

// checkName checks a name, and that the list has no other entry with it.
func checkName(prefix, name string, names map[string]bool) error {
	allowed := func(r rune) bool {
		return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
	}
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !allowed(r) }) {
		return fmt.Errorf("%sname is %s, want 1 to %d of A-Z, a-z, 0-9, '.', '_' and '-'", prefix, show(name), maxName)
	}
	if names[name] {
		return fmt.Errorf("%sname is %s, the name of an entry before it", prefix, show(name))
	}
	names[name] = true
	return nil
}

// isValue reports whether s has printable ASCII characters only, and not too many.
func isValue(s string) bool {
	return len(s) <= maxValue && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

func isHex(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}

// maxShown is how much of a sanitizer's text an error quotes.
const maxShown = 80

// show quotes text of a sanitizer for an error. What isn't printable is escaped.
func show(text string) string {
	if len(text) <= maxShown {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q...", text[:maxShown])
}

// clip makes one short line of another package's error, which quotes the document.
func clip(message string) string {
	line := OneLine(message)
	if len(line) > 2*maxShown {
		line = strings.ToValidUTF8(line[:2*maxShown], "") + "..."
	}
	return line
}

// OneLine makes a reason of any text: one line of printable characters, at most [MaxReason] bytes.
func OneLine(text string) string {
	line := strings.Map(func(r rune) rune {
		if unprintable(r) {
			return ' '
		}
		return r
	}, text)
	line = strings.Join(strings.Fields(line), " ")
	if len(line) > MaxReason {
		line = strings.ToValidUTF8(line[:MaxReason-3], "") + "..."
	}
	return line
}

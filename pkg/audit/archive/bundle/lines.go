package bundle

import (
	"bytes"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// leftOutLine stands where a line of a ledger could not be read: names in it can't be
// found either.
const leftOutLine = "(a line that is no event is left out)\n"

// Readable returns a ledger's segment without the lines that are none of a ledger's.
func Readable(segment []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(segment) {
		if isLedgers(bytes.TrimSuffix(line, []byte("\n"))) {
			out.Write(line)
		} else {
			out.WriteString(leftOutLine)
		}
	}
	return out.Bytes()
}

// isLedgers reports whether a line is an event that this version knows all of, or one
// of those between events, which have no names.
func isLedgers(line []byte) bool {
	e, err := ledger.DecodeEvent(line)
	return err == nil && e.Version <= ledger.Version || bytes.HasPrefix(line, []byte(`{"checkpoint":`))
}

// NamesOf returns the names in an event that are tenants'.
func NamesOf(e *ledger.Event) []string {
	var names []string
	if e.Claim != nil {
		names = append(names, e.Claim.Namespace, e.Claim.Name)
	}
	for _, p := range e.Pods {
		names = append(names, p.Name)
	}
	return names
}

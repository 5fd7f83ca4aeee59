package report

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// identities returns a name for each finding that stays the same from one audit to
// the next, so that others can tell what is new: a hash of whose it is, its rule and
// what it is about. Of several that have these in common, the further ones are
// numbered.
func (d *Document) identities() []string {
	seen := map[string]int{}
	ids := make([]string, len(d.Findings))
	for i := range d.Findings {
		f := &d.Findings[i]
		key := strings.Join([]string{d.Subject.Kind, d.Subject.Name, f.ID, address(f), f.Object}, "\x00")
		seen[key]++
		sum := sha256.Sum256(fmt.Appendf([]byte(key), "\x00%d", seen[key]))
		ids[i] = hex.EncodeToString(sum[:16])
	}
	return ids
}

// address is the finding's device, empty where it has none.
func address(f *finding.Finding) string {
	if f.Device == nil {
		return ""
	}
	return f.Device.String()
}

// about names what a finding is about, in a few words.
func about(f *finding.Finding) string {
	switch {
	case f.Device != nil && f.Object != "":
		return f.Device.String() + " " + f.Object
	case f.Device != nil:
		return f.Device.String()
	case f.Object != "":
		return f.Object
	}
	return "node"
}

// addresses returns the blast radius as words.
func addresses(f *finding.Finding) []string {
	words := make([]string, len(f.Devices))
	for i, a := range f.Devices {
		words[i] = a.String()
	}
	return words
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

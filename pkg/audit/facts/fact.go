// Package facts is what an audit knows of a node: its PCI functions, who has
// which, what processes hold, and the files that say how the node is set up. It
// reads below one root, a live node's or that of a copy, and changes nothing.
package facts

import (
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// Status is how a read ended.
type Status int

// Statuses. Denied is for want of privilege; Broken is any other error.
const (
	Present Status = iota
	Absent
	Denied
	Broken
)

// Fact is what one read of the node gave.
type Fact struct {
	// Path is as on the node, with its leading slash.
	Path string
	// Value is the content without the space around it, and for a list the names
	// with spaces between them.
	Value  string
	Status Status
	// How is finding.Evidence's.
	How string
	// Err says what went wrong where Status is Denied or Broken.
	Err string
	// Needs is the privilege that such a read takes, where it is not for everybody.
	Needs string
}

// OK reports whether the value is there.
func (f Fact) OK() bool { return f.Status == Present }

// Known reports whether the node answered: the value, or that there is none.
func (f Fact) Known() bool { return f.Status == Present || f.Status == Absent }

// Is reports whether the value is one of the words.
func (f Fact) Is(words ...string) bool {
	for _, w := range words {
		if f.OK() && f.Value == w {
			return true
		}
	}
	return false
}

// On reports whether a boolean parameter is set, as kernels print them.
func (f Fact) On() bool {
	on, _ := kernelargs.Bool(f.Value)
	return f.OK() && f.Value != "" && on
}

// Words splits the value at spaces.
func (f Fact) Words() []string { return strings.Fields(f.Value) }

// NotThere is the error of evidence whose status is Absent.
const NotThere = "not there"

// maxEvidence is how much of a value goes into evidence.
const maxEvidence = 512

// Evidence returns the fact as evidence.
func (f Fact) Evidence() finding.Evidence {
	e := finding.Evidence{Path: f.Path, Value: f.Value, How: f.How, Error: f.Err, Needs: f.Needs}
	if len(e.Value) > maxEvidence {
		e.Value = strings.ToValidUTF8(e.Value[:maxEvidence], "") + "…"
	}
	if f.Status == Absent {
		e.Error = NotThere
	}
	if f.Status == Denied && e.Needs == "" {
		e.Needs = "root"
	}
	return e
}

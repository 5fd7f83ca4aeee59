package v1alpha1

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Problem is one fault in a user's document.
type Problem struct {
	// Line is the field's line, from one on; 0 if it is unknown, or if the problem is one of the whole document.
	Line int `json:"line,omitempty"`
	// Path leads to the field: "vlan", "devices[1].match.vendors[0]"; empty for
	// the document as a whole.
	Path string `json:"path,omitempty"`
	// Text has the value, the fault and the allowed values: "5000 is not a number from 0 to 4094".
	Text string `json:"text"`
}

// String returns line, path and text: "line 4: vlan: 5000 is not a number from 0 to 4094".
func (p Problem) String() string {
	text := p.Text
	if p.Path != "" {
		text = p.Path + ": " + text
	}
	if p.Line > 0 {
		text = fmt.Sprintf("line %d: %s", p.Line, text)
	}
	return text
}

// InvalidError refuses a document. It lists all problems in the document's order.
type InvalidError struct {
	// Kind is the document's kind, or the kind that the reader expects.
	Kind     string
	Problems []Problem
}

// Error returns the kind and the problems in one line. It stops after ten,
// since the text goes into Events, which hold 1 KiB.
func (e *InvalidError) Error() string {
	const most = 10
	var texts []string
	for _, p := range e.Problems[:min(len(e.Problems), most)] {
		texts = append(texts, p.String())
	}
	if rest := len(e.Problems) - most; rest > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", rest))
	}
	return e.Kind + ": " + strings.Join(texts, "; ")
}

// Code returns the code for conditions and Events.
func (e *InvalidError) Code() rule.Code { return rule.InvalidConfig }

// problems are the problems of one document.
type problems []Problem

// add adds a problem of the field at path.
func (p *problems) add(path, format string, args ...any) {
	*p = append(*p, Problem{Path: path, Text: fmt.Sprintf(format, args...)})
}

// err returns the problems as an [InvalidError], or nil if there are none.
func (p problems) err(kind string) error {
	if len(p) == 0 {
		return nil
	}
	return &InvalidError{Kind: kind, Problems: p}
}

// among adds a problem unless value is empty (unset) or one of the allowed values.
func among[T ~string](p *problems, path string, value T, allowed ...T) {
	names := make([]string, len(allowed))
	for i, a := range allowed {
		if value == a || value == "" {
			return
		}
		names[i] = string(a)
	}
	p.add(path, "%s is not one of %s", show(string(value)), strings.Join(names, ", "))
}

// within adds a problem unless value is nil (unset) or from 0 to most.
func (p *problems) within(path string, value *int, most int) {
	if value != nil && (*value < 0 || *value > most) {
		p.add(path, "%d is not a number from 0 to %d", *value, most)
	}
}

// show quotes a user's text, shortened for a message.
func show(text string) string {
	const most = 64
	if len(text) > most {
		return fmt.Sprintf("%q...", text[:most])
	}
	return fmt.Sprintf("%q", text)
}

// WeakensIsolationError refuses a claim that asks to weaken the isolation between tenants. The tenant writes the
// claim; only a DeviceClass, which the admin writes, may ask for it.
type WeakensIsolationError struct {
	Kind string
	// Settings are the fields of Kind at fault with their values: "trust: true".
	Settings []string
}

func (e *WeakensIsolationError) Error() string {
	return fmt.Sprintf("%s: not accepted from a ResourceClaim, since it weakens isolation: %s; "+
		"remove it, or have the cluster's admin put it into a DeviceClass", e.Kind, strings.Join(e.Settings, ", "))
}

// Code returns the code for conditions and Events.
func (e *WeakensIsolationError) Code() rule.Code { return rule.WeakensIsolation }

// weakening collects the parameters of one config that weaken isolation.
type weakening struct {
	kind     string
	settings []string
}

// add adds the field if it weakens isolation.
func (w *weakening) add(weakens bool, field string, value any) {
	if weakens {
		w.settings = append(w.settings, fmt.Sprintf("%s: %v", field, value))
	}
}

// err returns a [WeakensIsolationError], or nil if no parameter weakens isolation.
func (w *weakening) err() error {
	if len(w.settings) == 0 {
		return nil
	}
	return &WeakensIsolationError{Kind: w.kind, Settings: w.settings}
}

func isTrue(b *bool) bool { return b != nil && *b }

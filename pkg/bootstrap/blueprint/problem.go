package blueprint

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with what an operator wrote.
type Problem struct {
	// Line counts from one; 0 where the text as a whole is meant.
	Line int `json:"line,omitempty"`
	// Path leads to the field: "kernel.hugePages[0].size".
	Path string `json:"path,omitempty"`
	Text string `json:"text"`
}

// String returns "line 4: kernel.iommu: ...".
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

// InvalidError says that a blueprint can't be accepted, with everything that is
// wrong with it, in the document's order.
type InvalidError struct{ Problems []Problem }

func (e *InvalidError) Error() string {
	var texts []string
	for _, p := range e.Problems {
		texts = append(texts, p.String())
	}
	return Kind + ": " + strings.Join(texts, "; ")
}

package containers

import (
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

// wants collects what one part wants.
type wants struct {
	part string
	state.Wanted
}

// file wants a file that has the content.
func (w *wants) file(path string, content []byte, why string, then ...state.FollowUp) {
	w.Files = append(w.Files, state.File{
		Part: w.part, Path: below(path), Content: content, Mode: 0o644, Why: why, Then: then,
	})
}

// refuse has nothing changed on the node while there is the problem.
func (w *wants) refuse(path, text, fix string) { w.problem(true, path, text, fix) }

// warn names a problem that others may live with.
func (w *wants) warn(path, text, fix string) { w.problem(false, path, text, fix) }

func (w *wants) problem(fatal bool, path, text, fix string) {
	w.Problems = append(w.Problems, state.Problem{Part: w.part, Fatal: fatal, Path: below(path), Text: text, Fix: fix})
}

func (w *wants) fact(name, value, source string) {
	if source != "" {
		source = "/" + below(source)
	}
	w.Facts = append(w.Facts, state.Fact{Part: w.part, Name: name, Value: value, Source: source})
}

// refused reports whether there is a problem that forbids changes.
func (w *wants) refused() bool {
	for _, p := range w.Problems {
		if p.Fatal {
			return true
		}
	}
	return false
}

// below returns a path of the node without its leading slash.
func below(path string) string { return strings.TrimPrefix(path, "/") }

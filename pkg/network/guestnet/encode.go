package guestnet

import (
	"io"

	"github.com/kata-vfio/kata-vfio/pkg/cli/encode"
)

// WriteJSON writes the report as one indented JSON document.
func (r *Report) WriteJSON(w io.Writer) error { return encode.JSON(w, "report", r) }

// WriteYAML writes the report as YAML with the names of the JSON form.
func (r *Report) WriteYAML(w io.Writer) error { return encode.YAML(w, "report", r) }

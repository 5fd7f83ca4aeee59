package audit

import (
	"io"

	"github.com/kata-vfio/kata-vfio/pkg/cli/encode"
)

// WriteJSON writes the inventory as one indented JSON document.
func (inv *Inventory) WriteJSON(w io.Writer) error { return encode.JSON(w, "inventory", inv) }

// WriteYAML writes the inventory as YAML with the names of the JSON form.
func (inv *Inventory) WriteYAML(w io.Writer) error { return encode.YAML(w, "inventory", inv) }

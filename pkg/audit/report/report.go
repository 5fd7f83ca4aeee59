// Package report prints what an audit found, for people and for machines.
package report

import (
	"fmt"
	"io"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/encode"
	"github.com/kata-vfio/kata-vfio/pkg/finding"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
)

// Document is what is printed.
type Document struct {
	*finding.Report
	// Inventory has the functions, for formats that draw them; nil where there are
	// none, as for a cluster.
	Inventory *audit.Inventory `json:"-"`
	// Rules are the rules that were asked, by id.
	Rules []finding.Rule `json:"-"`
}

// Options say how to print.
type Options struct {
	// Show is the least severe failure that is shown in formats for people; the
	// rest is counted. Formats for machines leave out nothing but what is less
	// severe.
	Show  isolation.Severity
	Color bool
}

// Formats returns the names that [Write] knows, the default first.
func Formats() []string { return []string{"table", "json", "yaml"} }

// Write writes the document in the format.
func Write(w io.Writer, d *Document, format string, o Options) error {
	switch format {
	case "table":
		return writeTable(w, d, o)
	case "json":
		return encode.JSON(w, "report", d.Report)
	case "yaml":
		return encode.YAML(w, "report", d.Report)
	}
	return fmt.Errorf("no such format: %s", format)
}

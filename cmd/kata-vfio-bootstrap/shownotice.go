package main

import (
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// notice prints first what bootstrap can do on a system that keeps none of its files.
func notice(out *printer, p *bootstrap.Plan) {
	if p.Notice != "" {
		out.head(output.Yellow, strings.Join(out.wrap("! "+p.Notice, 2), "\n  ")+"\n")
	}
}

// talos prints what to apply to a node of Talos, each part to be copied as it is.
func (p *printer) talos(c *host.TalosConfig) {
	if c == nil {
		return
	}
	p.head(output.Bold, "Schematic for the Image Factory (-o json: .talos.schematic):")
	p.line("%s", c.Schematic)
	p.head(output.Bold, "Machine config, for `talosctl patch mc --patch @FILE` (-o json: .talos.machineConfig):")
	p.line("%s", c.MachineConfig)
}

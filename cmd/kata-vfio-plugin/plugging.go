package main

import (
	"github.com/spf13/pflag"

	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// plugging is how VMs of the RuntimeClass get their devices.
type plugging struct {
	hot       bool
	windowMiB uint32
}

func (p *plugging) register(f *pflag.FlagSet) {
	f.BoolVar(&p.hot, "hot-plug", false, "the RuntimeClass hot-plugs: accept a container whose sandbox booted without its device")
	f.Uint32Var(&p.windowMiB, "hot-plug-window", plan.FirmwareWindow>>20,
		"with --hot-plug: how many MiB a VM has for the 32-bit BARs of a function that it gets while it runs; larger ones are refused;\n0: no size of BARs is")
}

// window is how much memory space a VM has for a function's 32-bit BARs, in bytes; 0 where no size is judged.
func (p *plugging) window() uint64 {
	if !p.hot {
		return 0
	}
	return uint64(p.windowMiB) << 20
}

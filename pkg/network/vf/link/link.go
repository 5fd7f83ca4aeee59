package link

import "github.com/kata-vfio/kata-vfio/pkg/device"

// Link is a PF's network interface with its VFs.
type Link struct {
	Name string `json:"name"`
	// Parent is the address of the interface's function; empty on kernels that
	// don't say (before 5.15).
	Parent string `json:"parent,omitempty"`
	// Up is the administrative state, Carrier that of the wire.
	Up      bool `json:"up"`
	Carrier bool `json:"carrier"`
	// VFs are by index.
	VFs []State `json:"vfs,omitempty"`
}

// State is a VF as its PF knows it. Its counters are left out of JSON.
type State struct {
	Settings device.VFSettings `json:"settings"`
	Counters Counters          `json:"-"`
	// Port is where the VF is connected while its PF is in switchdev mode; nil
	// otherwise.
	Port *Port `json:"port,omitempty"`
}

// Representor returns the name of the interface that stands for the VF on the
// node; empty for none.
func (s *State) Representor() string {
	if s.Port == nil {
		return ""
	}
	return s.Port.Representor
}

// Counters are a VF's since it was enabled, in its own direction. All are 0 where
// the PF's driver counts nothing, which the kernel does not tell from no traffic.
type Counters struct {
	RxPackets, TxPackets uint64
	RxBytes, TxBytes     uint64
	RxDropped, TxDropped uint64
}

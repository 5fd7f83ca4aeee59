package facts

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Names of the files that the plugin writes below its run directory, for nobody
// but the audit.
const (
	BaselineFile  = "acs.json"
	PublishedFile = "published.json"

	runDir = "run/kata-vfio"
)

// Baseline is what the plugin writes to /run/kata-vfio/acs.json when it first
// starts in a boot: what decides over peer-to-peer requests, as firmware and
// kernel had left it. Nothing but a person or a tool changes it afterwards.
type Baseline struct {
	BootID string `json:"bootID"`
	// Functions are all but VFs, which come and go.
	Functions map[pci.Address]Registers `json:"functions"`
}

// Registers are one function's part of a [Baseline]. What the function doesn't
// have, or could not be read, is absent.
type Registers struct {
	// ACS is the control word of Access Control Services.
	ACS *uint16 `json:"acs,omitempty"`
	// ATS is whether address translation services were on. The kernel switches
	// them with the function's domain, so that a change is no drift by itself.
	ATS *bool `json:"ats,omitempty"`
}

// BaselineOf returns the baseline of a node as it is now.
func BaselineOf(s *device.Snapshot) *Baseline {
	b := &Baseline{BootID: s.Host.BootID, Functions: map[pci.Address]Registers{}}
	for i := range s.Functions {
		f := &s.Functions[i]
		if f.VF != nil {
			continue
		}
		var r Registers
		if acs := f.Capabilities.ACS; acs != nil {
			r.ACS = &acs.Control
		}
		if ats := f.Capabilities.ATS; ats != nil {
			r.ATS = &ats.Enabled
		}
		b.Functions[f.Address] = r
	}
	return b
}

// Baseline returns what the plugin kept of this boot, and the fact that says
// whether: Absent where there is none, or only that of another boot.
func (n *Node) Baseline() (*Baseline, Fact) {
	file := n.Read(path.Join(runDir, BaselineFile))
	if !file.OK() {
		return nil, file
	}
	var b Baseline
	if err := json.Unmarshal([]byte(file.Value), &b); err != nil {
		file.Status, file.Err, file.Value = Broken, fmt.Sprintf("decode: %v", err), ""
		return nil, file
	}
	file.Value = fmt.Sprintf("boot %s, %d functions", b.BootID, len(b.Functions))
	if b.BootID != n.Snapshot.Host.BootID {
		file.Status = Absent
		return nil, file
	}
	return &b, file
}

package victim

import (
	"context"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// PhaseSetting is the phase of the events between those of the plugin: a PF was told one setting of a VF.
const PhaseSetting effects.Phase = "setting"

// links are the node's interfaces, with a word after each setting.
type links struct {
	vf.Links
	wrote func()
}

// Write writes one setting.
func (l *links) Write(ctx context.Context, number, index int, s device.VFSetting, to *device.VFSettings) error {
	err := l.Links.Write(ctx, number, index, s, to)
	l.wrote()
	return err
}

package bootstrap

import (
	"context"
	"errors"
	"io/fs"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
)

// keepInUse returns the blueprint without functions that the running node needs, and a problem for each of them. An
// image does not show what it will use.
func (e *Engine) keepInUse(b *blueprint.Blueprint) (*blueprint.Blueprint, []state.Problem) {
	if !e.Live || len(b.VFIO.KeepOff) == 0 {
		return b, nil
	}
	snapshot, err := inventory.Scan(context.Background(), e.Tree)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return b, nil // without PCI functions, package host reports each one as missing
	case err != nil:
		none := *b
		none.VFIO.KeepOff = nil
		return &none, []state.Problem{{
			Part: "udev", Fatal: true, Text: "it is unknown whether the node uses the functions of vfio.keepOff: " + err.Error(),
			Fix: "run bootstrap as root on the node, or remove vfio.keepOff from the blueprint",
		}}
	}
	return host.KeepInUse(b, snapshot)
}

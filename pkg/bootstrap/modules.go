package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// ModulesFile is the map of modules, below the node's root. The plugin and the audit read it.
const ModulesFile = fabric.MapFile

// Modules returns the map of the node's board, which says which GPU is at which place, from the output of `nvidia-smi -q`. The
// map has the GPUs' serial numbers and the machine's name, so that nobody takes it for the map of another board. Each GPU of
// the node must be in the output.
func (e *Engine) Modules(ctx context.Context, output string) (*fabric.Map, error) {
	places, err := fabric.ParseModules(output)
	if err != nil {
		return nil, fmt.Errorf("read the output of nvidia-smi: %w", err)
	}
	snapshot, err := inventory.Scan(ctx, e.Tree)
	if err != nil {
		return nil, fmt.Errorf("look for the node's GPUs: %w", err)
	}
	m := &fabric.Map{Product: e.product(), Places: places}
	var present []fabric.Present
	for i := range snapshot.Functions {
		f := &snapshot.Functions[i]
		// The GPUs of a board drive no monitor, so their class is that of a 3D controller.
		if f.Type != device.GPU || f.Vendor != pci.VendorNVIDIA || f.VF != nil || f.Class.Sub() != pci.Class3D {
			continue
		}
		serial := snapshot.Identify(f).Serial
		present = append(present, fabric.Present{Address: f.Address, Serial: serial})
		at := slices.IndexFunc(m.Places, func(p fabric.Place) bool { return p.Address == f.Address })
		if at < 0 {
			return nil, fmt.Errorf("GPU %s is not in the output of nvidia-smi: NVIDIA's driver must have all GPUs of the board, and driver %q has this one", f.Address, f.Driver)
		}
		m.Places[at].Serial = serial
	}
	return m, m.Check(m.Product, present)
}

// product returns the machine's name in its firmware; empty if there is none.
func (e *Engine) product() string {
	text, err := e.Tree.ReadAtMost("sys/class/dmi/id/product_name", 4<<10)
	if err != nil {
		return "" // as on many Arm machines; without it, serial numbers alone tell boards apart
	}
	return strings.TrimSpace(string(text))
}

// SaveModules writes the map to the node, durably, and reports whether it differs from the map that the node had.
func (e *Engine) SaveModules(ctx context.Context, m *fabric.Map) (changed bool, err error) {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return false, err
	}
	text = append(text, '\n')
	err = e.locked(ctx, func() error {
		found, err := e.Files.Look(ModulesFile)
		if err != nil {
			return err
		}
		if changed = string(found.Content) != string(text); !changed {
			return nil
		}
		return errors.Join(e.makeDirs(ModulesFile), e.Files.Sweep(ModulesFile), e.Files.Write(ModulesFile, text, state.NewImage(0o600)))
	})
	if err != nil {
		return false, fmt.Errorf("save the map of modules: %w", err)
	}
	return changed, nil
}

// makeDirs makes the directories above a file of the plugin's state, which are root's alone below /var/lib.
func (e *Engine) makeDirs(name string) error {
	missing, err := e.Files.Missing(name)
	if err != nil {
		return err
	}
	for _, dir := range missing {
		mode := fs.FileMode(0o755) // /var/lib of an image, which all programs use
		if path.Dir(dir) != "var" && path.Dir(dir) != "." {
			mode = 0o700
		}
		if err := e.Files.MakeDir(dir, mode); err != nil {
			return err
		}
	}
	return nil
}

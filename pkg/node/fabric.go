package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/google/renameio/v2"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/manager"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// Programs that ask Fabric Manager, unless the config names another one.
const (
	defaultHelper = "/usr/bin/kata-vfio-fabric"
	defaultFMPM   = "/usr/bin/fmpm"
)

// fabricManager returns the client that the config asks for. A node without a fabric has that of the defaults: a claim from before the
// config changed needs one to end.
func (c *NodeConfig) fabricManager() *fabricClient {
	of := v1alpha1.Fabric{Address: v1alpha1.DefaultFabricAddress}
	if c.Node != nil && c.Node.Fabric != nil {
		of = *c.Node.Fabric
	}
	f := &fabricClient{state: filepath.Join(c.Root, fabric.StateFile), Manager: c.Fabric}
	switch {
	case f.Manager != nil:
	case of.Client == v1alpha1.FabricFMPM:
		f.Manager = &manager.FMPM{Program: cmp.Or(of.Program, defaultFMPM), Address: of.Address}
	default:
		f.Manager = &manager.Helper{Program: cmp.Or(of.Program, defaultHelper), Address: of.Address}
	}
	return f
}

// fabricClient writes each list that Fabric Manager answers to the node's file of it, for the inventory and the audit.
type fabricClient struct {
	fabric.Manager
	state string

	mu sync.Mutex // guards the file
}

// Partitions implements [fabric.Manager].
func (f *fabricClient) Partitions(ctx context.Context) (fabric.List, error) {
	l, err := f.Manager.Partitions(ctx)
	if err != nil {
		return nil, err
	}
	_, err = f.keep(func(s *fabric.State) { *s = fabric.State{Partitions: l} })
	return l, err
}

// away notes why Fabric Manager can't be asked. The partitions stay: they are there still.
func (f *fabricClient) away(why error) (changed bool, err error) {
	return f.keep(func(s *fabric.State) { s.Away = strings.Join(strings.Fields(why.Error()), " ") })
}

// keep changes the file, and reports whether it has another content now.
func (f *fabricClient) keep(change func(*fabric.State)) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, err := os.ReadFile(f.state)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	s, err := fabric.Parse[fabric.State](before)
	if err != nil {
		s = &fabric.State{} // none yet, or of another version: what is answered now counts
	}
	change(s)
	now, err := json.Marshal(s)
	if err != nil || bytes.Equal(before, now) {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(f.state), 0o700); err != nil {
		return false, err
	}
	if err := renameio.WriteFile(f.state, now, 0o600); err != nil {
		return false, fmt.Errorf("write what Fabric Manager answered: %w", err)
	}
	return true, nil
}

// AskFabric reads the partitions of the node's fabric, and reports whether the answer differs from the last one. If Fabric Manager waits
// for the list of active partitions after a restart, it gets the list first. It does nothing on a node whose config has no fabric. The
// error says why Fabric Manager can't be asked; claims with GPUs of the fabric are refused with it then.
func (n *Node) AskFabric(ctx context.Context) (changed bool, err error) {
	if n.Node == nil || n.Node.Fabric == nil || n.fabric == nil {
		return false, nil
	}
	before, _ := os.ReadFile(n.fabric.state) // another content, or none, is a change
	_, err = n.fabric.Partitions(ctx)
	if waits(err) {
		err = n.replay(ctx)
	}
	if err != nil && ctx.Err() == nil {
		_, keepErr := n.fabric.away(err)
		err = errors.Join(err, keepErr)
	}
	now, _ := os.ReadFile(n.fabric.state)
	return !bytes.Equal(before, now), err
}

// waits reports whether Fabric Manager may be waiting for the list of active partitions.
func waits(err error) bool {
	e, ok := errors.AsType[*fabric.CodeError](err)
	return ok && (e.Code == fabric.NotConfigured || e.Code == fabric.Uninitialized)
}

// replay tells Fabric Manager which partitions are active, and reads the list.
func (n *Node) replay(ctx context.Context) error {
	ids, err := n.activePartitions(ctx)
	if err != nil {
		return fmt.Errorf("Fabric Manager waits for the active partitions, and they are not known: %w", err)
	}
	if err := n.fabric.SetActivated(ctx, ids); err != nil {
		return err
	}
	_, err = n.fabric.Partitions(ctx)
	return err
}

// activePartitions returns the partitions that VMs may be using: those of the journal's prepared claims, and those that Fabric Manager
// listed last as active and that have a GPU that a process has open. One that is left out would cut off a running VM, so an error of any
// source is an error of the whole. Without a map of modules the journal's are all there are: no claim gets a partition then.
func (n *Node) activePartitions(ctx context.Context) ([]int, error) {
	snap, err := n.Parts.Inventory.Refresh(ctx, nil) // with the file as it is now
	if err != nil {
		return nil, err
	}
	records, errs := n.Parts.Journal.List()
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	ids := []int{}
	for _, rec := range records {
		if rec.BootID != snap.Host.BootID || rec.State != journal.Prepared && rec.State != journal.Releasing {
			continue
		}
		for i := range rec.Plan.Functions {
			for _, s := range rec.Plan.Functions[i].Settings {
				if id, _, ok := fabric.ParseValue(s.Want); ok && s.Provider == plan.ProviderFabric {
					ids = append(ids, id)
				}
			}
		}
	}
	board := nodeconfig.Select(n.Node, snap).Fabric().Board
	if board == nil {
		return compact(ids), nil
	}
	for _, p := range board.Partitions().Active() {
		held, err := n.isHeld(ctx, snap, board.Addresses(&p))
		if err != nil {
			return nil, err
		}
		if held {
			ids = append(ids, p.ID)
		}
	}
	return compact(ids), nil
}

// isHeld reports whether a process has a VFIO device of one of the functions open.
func (n *Node) isHeld(ctx context.Context, snap *device.Snapshot, addrs []pci.Address) (bool, error) {
	var nodes []string
	for _, a := range addrs {
		f, ok := snap.Function(a)
		if !ok {
			continue
		}
		nodes = append(nodes, vfio.Nodes(f)...)
	}
	holders, err := n.Parts.Holders.Find(ctx, nodes)
	return len(holders) > 0, err
}

func compact(ids []int) []int {
	slices.Sort(ids)
	return slices.Compact(ids)
}

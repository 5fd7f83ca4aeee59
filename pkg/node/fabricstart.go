package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// When Fabric Manager initializes the fabric for partitions, GPUs may still have the state from before: NVIDIA's driver container resets
// all GPUs at that point (pull request 909 of gpu-driver-container, for NVLink 5). So kata-vfio marks the GPUs for a reset. The plan of a
// claim that is made after the mark resets them first. A plan that was made earlier doesn't know the mark, so no partition is activated
// while one of its GPUs is marked. A Fabric Manager that is restarted with the list of active partitions initializes nothing, so no GPU is
// marked then.

// started returns the start of Fabric Manager that gave the latest answer. If it differs from the start of the previous answer, started
// marks the GPUs first.
func (f *fabricClient) started(ctx context.Context) (fabric.Start, error) {
	now := f.start()
	last, err := f.last()
	if err == nil && last.Start.Is(now) || f.begun == nil {
		return now, nil
	}
	if err := f.begun(ctx); err != nil {
		return now, fmt.Errorf("the GPUs, which must be reset since Fabric Manager has started, can't be marked: %w", err)
	}
	return now, nil
}

// start returns what distinguishes this start of Fabric Manager from other starts.
func (f *fabricClient) start() fabric.Start {
	var s fabric.Start
	if boot, err := os.ReadFile(filepath.Join(f.root, "proc/sys/kernel/random/boot_id")); err == nil {
		s.Boot = strings.TrimSpace(string(boot))
	}
	// The socket ends with Fabric Manager, so it can be missing right after an answer.
	if info, err := os.Stat(f.socket); err == nil {
		s.Socket = info.ModTime().UTC().Format("2006-01-02T15:04:05.000000000Z")
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			s.Socket = fmt.Sprintf("%d %s", stat.Ino, s.Socket)
		}
	}
	return s
}

// Activate implements [fabric.Manager]. It refuses a partition with a GPU that must be reset first. [bind.Fabric] then has the claim's GPUs
// reset, and tries again.
func (f *fabricClient) Activate(ctx context.Context, id int) error {
	if f.check != nil {
		if err := errors.Join(f.blocked(), f.check(ctx, id)); err != nil {
			return err
		}
	}
	return f.Manager.Activate(ctx, id)
}

// checkClean refuses the partition with the number id if one of its GPUs is marked for a reset.
func (n *Node) checkClean(ctx context.Context, id int) error {
	snap, err := n.Parts.Inventory.Refresh(ctx, nil) // the snapshot must have the partitions of the latest list
	if err != nil {
		return err
	}
	board := nodeconfig.Select(n.Node, snap).Fabric().Board
	if board == nil {
		return fmt.Errorf("partition %d: no map of modules says which GPUs it has", id)
	}
	p := board.Partitions().Numbered(id)
	if p == nil {
		return fmt.Errorf("partition %d: Fabric Manager does not have it now", id)
	}
	marks, err := n.Parts.Journal.NeedsReset()
	if err != nil {
		return err
	}
	marked := journal.NeedReset(marks, snap)
	for _, a := range board.Addresses(p) {
		if marked[a] {
			return fmt.Errorf("GPU %s of partition %s must be reset before, and was not", a, p)
		}
	}
	return nil
}

// resumed records that Fabric Manager resumed with the list of active partitions. It records nothing if this is the first start in a boot,
// which can't be a resumption.
func (f *fabricClient) resumed() error {
	now := f.start()
	_, err := f.keep(func(s *fabric.State) {
		if s.Start.Boot == now.Boot {
			s.Begun(now)
		}
	})
	return err
}

// blocked returns why no claim may get a partition, although Fabric Manager has answered.
func (f *fabricClient) blocked() error {
	last, err := f.last()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case last.Away != "":
		return errors.New(last.Away)
	}
	return nil
}

// markGPUs marks for a reset all GPUs that may be on the fabric and that no tenant has. It includes GPUs that are not published, because
// they may be published later in this boot.
func (n *Node) markGPUs(ctx context.Context) error {
	snap, err := n.Parts.Inventory.Snapshot(ctx)
	if err != nil {
		return err
	}
	var gpus []pci.Address
	for i := range snap.Functions {
		if f := &snap.Functions[i]; f.Type == device.GPU && f.IsOnNVLink() {
			gpus = append(gpus, f.Address)
		}
	}
	return n.Maintainer.MarkForReset(ctx, gpus, "Fabric Manager has initialized the NVLink fabric since")
}

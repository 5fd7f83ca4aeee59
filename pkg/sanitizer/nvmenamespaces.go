package sanitizer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
)

// unite returns the namespaces to erase. If the controller manages namespaces, it makes one of them over the whole
// capacity: a tenant may have made others, detached some, or left capacity out.
func unite(ctx context.Context, c nvmeController, info controllerInfo, log *slog.Logger) ([]uint32, error) {
	active, err := namespaceIDs(c, cnsActive)
	if err != nil {
		return nil, err
	}
	if info.admin&adminHasNamespaces == 0 {
		if len(active) == 0 {
			return nil, errors.New("the controller has no namespace, and can't create one")
		}
		return active, nil
	}
	allocated, err := namespaceIDs(c, cnsAllocated)
	if err != nil {
		return nil, err
	}
	if len(active) == 1 && slices.Equal(active, allocated) && info.unallocated == 0 {
		return active, nil
	}
	log.Info("make one namespace", slog.Int("attached", len(active)), slog.Int("allocated", len(allocated)), slog.Uint64("unallocatedBytes", info.unallocated))
	if len(allocated) > 0 {
		command := &nvmeCommand{opcode: adminNSManage, nsid: everyNamespace, cdw10: manageDelete, timeout: remaining(ctx)}
		if _, err := c.admin(command); err != nil {
			return nil, fmt.Errorf("delete all namespaces: %w", err)
		}
	}
	id, err := create(ctx, c)
	if err != nil {
		return nil, err
	}
	return confirm(c, id)
}

// Values of SEL, what the commands Namespace Management and Namespace Attachment do.
const (
	manageCreate = 0
	manageDelete = 1
	attach       = 0
)

// create creates a namespace over the capacity that is not allocated, and attaches it.
func create(ctx context.Context, c nvmeController) (uint32, error) {
	info, err := identifyController(c)
	if err != nil {
		return 0, err
	}
	common, err := identifyNamespace(c, everyNamespace)
	if err != nil {
		return 0, err
	}
	format, err := common.plain()
	if err != nil {
		return 0, err
	}
	if format.shift < 9 || info.unallocated>>format.shift == 0 {
		return 0, fmt.Errorf("create a namespace: %d bytes are not allocated, and a block has 2^%d", info.unallocated, format.shift)
	}
	data := make([]byte, identifySize)
	binary.LittleEndian.PutUint64(data[0:], info.unallocated>>format.shift) // NSZE
	binary.LittleEndian.PutUint64(data[8:], info.unallocated>>format.shift) // NCAP
	data[26] = formatBits(format)
	id, err := c.admin(&nvmeCommand{opcode: adminNSManage, cdw10: manageCreate, data: data, timeout: remaining(ctx)})
	if err != nil {
		return 0, fmt.Errorf("create a namespace over %d bytes: %w", info.unallocated, err)
	}
	controllers := make([]byte, identifySize)
	binary.LittleEndian.PutUint16(controllers[0:], 1)
	binary.LittleEndian.PutUint16(controllers[2:], info.id)
	if _, err := c.admin(&nvmeCommand{opcode: adminNSAttach, nsid: id, cdw10: attach, data: controllers}); err != nil {
		return 0, fmt.Errorf("attach namespace %d: %w", id, err)
	}
	return id, nil
}

// formatBits returns FLBAS for a format: its number in bits 3:0, and its upper half in bits 6:5.
func formatBits(f lbaFormat) uint8 { return f.number&0xf | f.number>>4<<5 }

// confirm checks that the namespace is the only one.
func confirm(c nvmeController, id uint32) ([]uint32, error) {
	if err := c.rescan(); err != nil {
		return nil, fmt.Errorf("look for namespace %d: %w", id, err)
	}
	for _, cns := range []uint32{cnsActive, cnsAllocated} {
		ids, err := namespaceIDs(c, cns)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(ids, []uint32{id}) {
			return nil, fmt.Errorf("the controller has the namespaces %v, and %d was to be the only one", ids, id)
		}
	}
	return []uint32{id}, nil
}

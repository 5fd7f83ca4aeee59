package sanitizer

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// Method is how an NVMe controller erases.
type Method string

// Methods.
const (
	// Auto takes the first of the others that the controller supports.
	Auto Method = "auto"
	// Crypto formats and lets the controller change its encryption key.
	Crypto Method = "crypto"
	// UserData formats and lets the controller erase all data.
	UserData Method = "user-data"
	// WriteZeroes writes zeros to all blocks. Blocks that the controller keeps for itself are not reached.
	WriteZeroes Method = "write-zeroes"
)

// Methods returns all methods.
func Methods() []Method { return []Method{Auto, Crypto, UserData, WriteZeroes} }

// NVMeOptions are the options of [NVMe].
type NVMeOptions struct {
	Options Options
	Method  Method
	// VerifyAll reads all blocks, also after a format.
	VerifyAll bool
}

// NVMe erases an NVMe controller's namespaces. If the controller manages namespaces, it has one over its whole capacity
// afterwards. Markers in some blocks show that what was written can be read before the erase, and can't be after it. The
// error is [ErrInterrupted].
func NVMe(ctx context.Context, o NVMeOptions) (*sanitize.Result, error) {
	return bounded(ctx, o.Options.Timeout, o.sanitize)
}

func (o *NVMeOptions) sanitize(ctx context.Context, p *progress) error {
	g, err := openGuest(o.Options.Root)
	if err != nil {
		return err
	}
	defer func() { _ = g.close() }() // nothing was written to its files that close could lose
	f, err := g.pick(o.Options.Device, func(f function) bool { return f.class.Sub() == pci.ClassNVMe })
	if err != nil {
		return err
	}
	p.update(func(r *sanitize.Result) { r.Device = f.id() })
	c, err := openNVMe(ctx, g, o.Options.Root, f)
	if err != nil {
		return err
	}
	defer c.close()
	return o.erase(ctx, p, c)
}

// erase erases all namespaces of a controller and notes a check for each.
func (o *NVMeOptions) erase(ctx context.Context, p *progress, c nvmeController) error {
	info, err := identifyController(c)
	if err != nil {
		return err
	}
	o.Options.Log.Info("found the controller", slog.String("model", info.model), slog.String("serial", info.serial), slog.String("firmware", info.firmware))
	p.update(func(r *sanitize.Result) {
		if r.Device != nil {
			r.Device.Serial = printable(info.serial)
		}
	})
	if err := measureNVMe(c, info, p); err != nil {
		return err
	}
	erasure, err := o.choose(info)
	if err != nil {
		return err
	}
	ids, err := unite(ctx, c, info, o.Options.Log)
	if err != nil {
		return err
	}
	// All namespaces are marked before one is erased: an erase can reach all of a controller's namespaces at once.
	var all []*erased
	for _, id := range ids {
		e := &erased{controller: c, info: info, method: erasure, all: o.VerifyAll || erasure == WriteZeroes, log: o.Options.Log}
		if err := e.mark(ctx, id); err != nil {
			return err
		}
		all = append(all, e)
	}
	for _, e := range all {
		if err := e.erase(ctx); err != nil {
			return err
		}
	}
	for _, e := range all {
		check, err := e.verify(ctx)
		if err != nil {
			return err
		}
		p.check(check)
	}
	return nil
}

// choose returns the method, if the controller supports it.
func (o *NVMeOptions) choose(info controllerInfo) (Method, error) {
	supported := map[Method]bool{
		Crypto:      info.admin&adminHasFormat != 0 && info.format&hasCryptoErase != 0,
		UserData:    info.admin&adminHasFormat != 0,
		WriteZeroes: info.commands&hasWriteZeroes != 0,
	}
	if o.Method != Auto {
		if !supported[o.Method] {
			return "", fmt.Errorf("the controller does not support the method %s (OACS 0x%x, FNA 0x%x, ONCS 0x%x)", o.Method, info.admin, info.format, info.commands)
		}
		return o.Method, nil
	}
	for _, m := range Methods() {
		if supported[m] {
			return m, nil
		}
	}
	return "", fmt.Errorf("the controller has neither Format NVM nor Write Zeroes (OACS 0x%x, ONCS 0x%x)", info.admin, info.commands)
}

// measureNVMe notes the revisions of the firmware: the one that runs, those of the slots, and which slot the next reset
// activates.
func measureNVMe(c nvmeController, info controllerInfo, p *progress) error {
	revisions, active, next, err := firmwareSlots(c)
	if err != nil {
		return err
	}
	p.measured("firmware", sanitize.Version, info.firmware)
	p.measured("active-slot", sanitize.Version, strconv.Itoa(active))
	p.measured("next-slot", sanitize.Version, strconv.Itoa(next))
	for slot := 1; slot <= firmwareSlotCount; slot++ {
		if r, ok := revisions[slot]; ok {
			p.measured("slot"+strconv.Itoa(slot), sanitize.Version, r)
		}
	}
	return nil
}

// remaining returns how long a command may take: until the deadline.
func remaining(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return time.Until(deadline)
}

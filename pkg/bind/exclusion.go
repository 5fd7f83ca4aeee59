package bind

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// Exclude keeps all other processes from opening functions through VFIO until end is called. hotReset resets all of the
// functions together below their bridge (vfio.Exclude). The error matches EBUSY if another process has one of the
// functions open.
type Exclude func(ctx context.Context, set []pci.Address) (hotReset func() error, end func(), err error)

// HostDriverError says that a function is not reset because it is on a host driver. Processes may use it there, and no
// driver expects that its device loses all state.
type HostDriverError struct {
	Address pci.Address
	Driver  string
}

func (e *HostDriverError) Error() string {
	return fmt.Sprintf("%s is on driver %s, and only functions on VFIO are reset: stop what moved it there, and try again", e.Address, e.Driver)
}

// An exclusion keeps other processes from the functions of one reset. It begins before the reset and ends after its
// proof.
type exclusion struct {
	set []pci.Address
	// places are the inodes of the functions' directories. Another function at the same address has another inode.
	places   []uint64
	hotReset func() error
	end      func()
	// kept says that an earlier call began the exclusion, and left it to the call that takes the result of the reset.
	kept bool
}

// shutOut keeps other processes from functions. It returns a [HostDriverError] if one of them is on a host driver. If
// the reset of an earlier call was interrupted, shutOut returns the exclusion of that call, which still holds: nobody
// has used the functions since.
func (e *Executor) shutOut(ctx context.Context, set []pci.Address) (*exclusion, error) {
	places, err := e.places(set)
	if err != nil {
		return nil, err
	}
	if x := e.take(set[0]); x != nil {
		if slices.Equal(x.set, set) && slices.Equal(x.places, places) {
			return x, nil
		}
		x.end()
	}
	x := &exclusion{set: slices.Clone(set), places: places}
	x.hotReset, x.end, err = e.exclude(ctx, set)
	return x, err
}

// keptFor is how long an exclusion lasts after the end of an interrupted reset. The kubelet asks again after about two
// minutes at most. Without the exclusion, the next call could not tell whether somebody has used the functions since
// the reset.
const keptFor = 3 * time.Minute

// letIn ends an exclusion. If the exclusion's reset is still in the kernel, letIn keeps the exclusion for the call that
// takes the result.
func (e *Executor) letIn(x *exclusion, result error) {
	if _, stuck := errors.AsType[*control.StuckError](result); !stuck {
		x.end()
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x.kept = true
	e.kept[x.set[0]] = x
	go e.expire(x)
}

// expire ends a kept exclusion that no call has taken.
func (e *Executor) expire(x *exclusion) {
	for e.kernel.AwaitResets(context.Background(), x.set) != nil {
		continue // it has waited as long as a reset may take
	}
	// The reset has ended. The next call can use its result only if nobody could use the functions in between.
	time.AfterFunc(keptFor, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.kept[x.set[0]] == x {
			delete(e.kept, x.set[0])
			x.end()
		}
	})
}

// Excludes reports whether this process keeps other processes from a function because a reset of the function was
// interrupted.
func (e *Executor) Excludes(a pci.Address) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.kept {
		if slices.Contains(x.set, a) {
			return true
		}
	}
	return false
}

// take removes and returns the exclusion of an earlier call; nil if there is none.
func (e *Executor) take(first pci.Address) *exclusion {
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.kept[first]
	delete(e.kept, first)
	return x
}

// places returns the inodes of functions that may be reset, or a [HostDriverError].
func (e *Executor) places(set []pci.Address) ([]uint64, error) {
	places := make([]uint64, len(set))
	for i, a := range set {
		var err error
		if places[i], err = e.place(a); err != nil {
			return nil, err
		}
	}
	return places, nil
}

func (e *Executor) place(a pci.Address) (inode uint64, err error) {
	f, err := e.Open(a)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	driver, err := f.dir.Driver(a)
	if err != nil {
		return 0, err
	}
	if driver != "" && !device.IsVFIO(driver) {
		serves, err := f.dir.HasVFIODevice() // a vendor's driver that serves VFIO itself
		if err != nil {
			return 0, err
		}
		if !serves {
			return 0, &HostDriverError{Address: a, Driver: driver}
		}
	}
	return f.Inode()
}

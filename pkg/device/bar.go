package device

// BAR is one populated base address register.
type BAR struct {
	Index int `json:"index"`
	// Start is the BAR's address in the node's memory or I/O space; 0 if it has none.
	Start uint64 `json:"-"`
	// Size is in bytes.
	Size         uint64 `json:"size"`
	IO           bool   `json:"io,omitempty"`
	Prefetchable bool   `json:"prefetchable,omitempty"`
	Is64         bool   `json:"is64,omitempty"`
	// Unassigned says that the kernel found no address for the BAR. The kernel does not enable a function with such a
	// BAR, so VFIO can't open it.
	Unassigned bool `json:"unassigned,omitempty"`
}

// Overlaps reports whether the BAR and a range of memory have a common part. Both ends belong to the range.
func (b BAR) Overlaps(start, end uint64) bool {
	return !b.IO && !b.Unassigned && b.Size > 0 && start <= b.Start+(b.Size-1) && b.Start <= end
}

// UnassignedBARs returns the numbers of the function's BARs that have no address.
func (f *Function) UnassignedBARs() []int {
	var numbers []int
	for _, b := range f.BARs {
		if b.Unassigned {
			numbers = append(numbers, b.Index)
		}
	}
	return numbers
}

// Memory returns the size in bytes that the function's BARs take from the two memory windows of the bridge above it.
// Prefetchable BARs of 64 bits are in one window, all others in the 32-bit window.
func (f *Function) Memory() (low, prefetchable uint64) {
	for _, b := range f.BARs {
		switch {
		case b.IO:
		case b.Prefetchable && b.Is64:
			prefetchable += b.Size
		default:
			low += b.Size
		}
	}
	return low, prefetchable
}

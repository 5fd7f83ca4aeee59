package device

// BAR is one populated base address register.
type BAR struct {
	Index int `json:"index"`
	// Size is in bytes.
	Size         uint64 `json:"size"`
	IO           bool   `json:"io,omitempty"`
	Prefetchable bool   `json:"prefetchable,omitempty"`
	Is64         bool   `json:"is64,omitempty"`
}

// Memory is how much the function's BARs take of the two memory windows of the bridge above it, in bytes: prefetchable ones that are 64
// bits wide of the one, all others of the 32-bit one.
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

package device

import "github.com/kata-vfio/kata-vfio/pkg/pci"

// Companions returns the functions of f's physical device that serve it and
// are of no use to anyone else: the audio, USB and UCSI functions beside a
// GPU, f not included. They go with the GPU even where ACS puts them into
// groups of their own, since they share its reset and power. Other types have
// none: the functions of a NIC are ports, and VFs that share a slot number are
// strangers.
func (s *Snapshot) Companions(f *Function) []*Function {
	if f.Type != GPU {
		return nil
	}
	var companions []*Function
	for _, c := range s.Slot(f) {
		if c.Address != f.Address && Serves(c.Class) && c.VF == nil {
			companions = append(companions, c)
		}
	}
	return companions
}

// Serves reports whether a class is one of those that GPUs carry beside
// their display function: audio, USB, and the serial controller of USB Type-C.
func Serves(class pci.Class) bool {
	switch class.Sub() {
	case pci.ClassAudio, pci.ClassUSB, pci.ClassSerialOther:
		return true
	}
	return false
}

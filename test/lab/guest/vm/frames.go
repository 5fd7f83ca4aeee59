package main

import (
	"github.com/kata-vfio/kata-vfio/test/lab/frames"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// listeners are the sockets for raw frames, by the MAC of their interface. They last as long as the VM.
type listeners map[string]*frames.Socket

// exchange sends frames and returns what came in.
func (l listeners) exchange(f protocol.Frames) ([]frames.Frame, error) {
	socket := l[f.MAC]
	if socket == nil {
		name, err := byMAC(f.MAC)
		if err != nil {
			return nil, err
		}
		if socket, err = frames.Open(name); err != nil {
			return nil, err
		}
		l[f.MAC] = socket
	}
	for _, frame := range f.Send {
		if err := socket.Send(frame); err != nil {
			return nil, err
		}
	}
	return socket.Heard()
}

package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
)

const (
	loopback = "127.0.0.1"
	// The ports to choose from are below those that Linux gives to outgoing connections, of which a control plane
	// has hundreds: none of them can take a chosen port before its component listens.
	lowestPort, portCount = 20000, 10000
	portTries             = 100
)

// port is a port of 127.0.0.1 that nobody else takes until it is released.
type port struct {
	number   int
	listener net.Listener
}

// ports are those of a control plane.
type ports struct {
	etcd, etcdPeer, apiServer, scheduler, controllerManager port
}

func choosePorts() (ports, error) {
	var p ports
	for _, one := range []*port{&p.etcd, &p.etcdPeer, &p.apiServer, &p.scheduler, &p.controllerManager} {
		var err error
		if *one, err = choosePort(); err != nil {
			p.release()
			return ports{}, err
		}
	}
	return p, nil
}

func choosePort() (port, error) {
	var err error
	for range portTries {
		number := lowestPort + rand.IntN(portCount)
		var l net.Listener
		l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", loopback, number))
		if err == nil {
			return port{number: number, listener: l}, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return port{}, fmt.Errorf("find a free port: %w", err)
}

// release lets a component have the port. It may be called again.
func (p port) release() {
	if p.listener != nil {
		_ = p.listener.Close() // nothing was accepted, and a second time is fine
	}
}

func (p ports) release() {
	for _, one := range []port{p.etcd, p.etcdPeer, p.apiServer, p.scheduler, p.controllerManager} {
		one.release()
	}
}

// url is the port's, for a scheme.
func (p port) url(scheme string) string {
	return fmt.Sprintf("%s://%s:%d", scheme, loopback, p.number)
}

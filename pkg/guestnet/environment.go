package guestnet

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Kata's agent rewrites addresses in variables that begin with
// variablePrefix, and those of ours begin with requestPrefix (package nri sets
// them). Variables that end in infoSuffix hold JSON.
const (
	variablePrefix = "PCIDEVICE_"
	requestPrefix  = variablePrefix + "KATA_VFIO_DEV_"
	infoSuffix     = "_INFO"
)

// environment holds the PCI addresses that a container's variables name.
type environment struct {
	lists map[string][]string // by variable
	total int                 // addresses in all of them
}

// newEnvironment reads variables in the form "NAME=value".
func newEnvironment(variables []string) environment {
	e := environment{lists: map[string][]string{}}
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, variablePrefix) || strings.HasSuffix(name, infoSuffix) || value == "" {
			continue
		}
		e.lists[name] = strings.Split(value, ",")
		e.total += len(e.lists[name])
	}
	return e
}

// variable returns the variable of a request, without its subrequest.
func variable(request string) string {
	return requestPrefix + strings.Map(func(c rune) rune {
		if c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '_'
	}, strings.ToUpper(request))
}

// seat is a device's place among those that one variable names.
type seat struct {
	request string
	index   int    // among the devices of the request
	devices int    // of the request
	claims  int    // that have a request of this name
	host    string // the device's address on the host, empty when not known
}

// address returns the guest's address of the device in the seat, or why the
// variables don't tell it.
func (e environment) address(s seat) (pci.Address, error) {
	name := variable(s.request)
	list := e.lists[name]
	switch {
	case len(list) == 0:
		return pci.Address{}, fmt.Errorf("%s is not set", name)
	case s.claims > 1:
		return pci.Address{}, fmt.Errorf("%s is that of %d claims with a request %q", name, s.claims, s.request)
	case len(list) != s.devices:
		return pci.Address{}, fmt.Errorf("%s has %d addresses for %d devices", name, len(list), s.devices)
	}
	addr, err := pci.ParseAddress(strings.TrimSpace(list[s.index]))
	if err != nil {
		return pci.Address{}, fmt.Errorf("%s: %w", name, err)
	}
	// Of several functions the agent keeps only the last one's guest address
	// (kata-containers src/agent/src/device/mod.rs); the others stay the host's,
	// which in the guest may be another function.
	if e.total > 1 && (s.host == "" || s.host == addr.String()) {
		return pci.Address{}, fmt.Errorf("%s has %s, which may still be the host's address: with several functions Kata translates one only", name, addr)
	}
	return addr, nil
}

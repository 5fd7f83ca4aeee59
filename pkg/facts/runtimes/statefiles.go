package runtimes

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// persistVersion is the newest version of the state's format that is known (virtcontainers/persist/api CurPersistVersion).
const persistVersion = 2

// goState has the needed fields of virtcontainers/persist/api SandboxState.
type goState struct {
	SandboxContainer string
	PersistVersion   *uint
	HypervisorState  struct {
		Type string
		Pid  int
	}
	Devices []struct {
		Type     string
		ColdPlug bool
		VFIODevs []goDevice
	}
	Network struct {
		Endpoints []struct {
			Physical *struct{ BDF string }
		}
	}
}

// goDevice has the needed fields of pkg/device/config VFIODev.
type goDevice struct {
	BDF, Bus     string
	Type         int
	GuestPciPath json.RawMessage
}

// adjunctProcessor is the type of a device of s390x that has no PCI address
// (VFIOAPDeviceMediatedType).
const adjunctProcessor = 3

// parseGo reads the state of the Go runtime.
func parseGo(text []byte) (KataSandbox, error) {
	var state goState
	if err := json.Unmarshal(text, &state); err != nil {
		return KataSandbox{}, fmt.Errorf("parse the state of Kata's Go runtime: %w", err)
	}
	if state.PersistVersion == nil || state.SandboxContainer == "" {
		return KataSandbox{}, errors.New("not a state file of Kata's Go runtime: PersistVersion or SandboxContainer is missing")
	}
	if *state.PersistVersion > persistVersion {
		return KataSandbox{}, fmt.Errorf("the form of the state is version %d, and the newest one known is %d: a newer Kata wrote it", *state.PersistVersion, persistVersion)
	}
	s := KataSandbox{ID: state.SandboxContainer, Runtime: KataGo, Hypervisor: state.HypervisorState.Type, PID: state.HypervisorState.Pid}
	for _, d := range state.Devices {
		for _, v := range d.VFIODevs {
			if err := s.addDevice(v, d.ColdPlug); err != nil {
				return KataSandbox{}, err
			}
		}
	}
	for _, e := range state.Network.Endpoints {
		if e.Physical == nil {
			continue
		}
		if err := s.addEndpoint(e.Physical.BDF); err != nil {
			return KataSandbox{}, err
		}
	}
	return s, nil
}

func (s *KataSandbox) addDevice(v goDevice, cold bool) error {
	if v.Type == adjunctProcessor {
		return nil
	}
	a, err := pci.ParseAddress(v.BDF)
	if err != nil {
		return fmt.Errorf("read a VFIO device of Kata's state: %w", err)
	}
	s.Devices = append(s.Devices, KataDevice{Address: a, Bus: v.Bus, GuestPath: guestPath(v.GuestPciPath), ColdPlugged: cold})
	return nil
}

// addEndpoint adds a physical endpoint. Kata lists its function among the devices too, because it plugs the function as a device.
func (s *KataSandbox) addEndpoint(address string) error {
	a, err := pci.ParseAddress(address)
	if err != nil {
		return fmt.Errorf("read a physical endpoint of Kata's state: %w", err)
	}
	i := slices.IndexFunc(s.Devices, func(d KataDevice) bool { return d.Address == a })
	if i < 0 {
		i, s.Devices = len(s.Devices), append(s.Devices, KataDevice{Address: a})
	}
	s.Devices[i].Endpoint = true
	return nil
}

// guestPath returns a path that the state has as text. Kata 4.1.0 writes an empty object instead, because the path's Go type has no
// exported field. The result is empty then.
func guestPath(written json.RawMessage) string {
	var path string
	if err := json.Unmarshal(written, &path); err != nil {
		return ""
	}
	return path
}

// rustState has the needed fields of runtime-rs' virt_container SandboxState.
type rustState struct {
	SandboxType string `json:"sandbox_type"`
	Resource    *struct {
		Endpoint []struct {
			Physical *struct {
				BDF string `json:"bdf"`
			} `json:"physical_endpoint"`
		} `json:"endpoint"`
	} `json:"resource"`
	Hypervisor *struct {
		Type string `json:"hypervisor_type"`
		PID  *int   `json:"pid"`
		ID   string `json:"id"`
	} `json:"hypervisor"`
}

// parseRust reads the state of the Rust runtime.
func parseRust(text []byte) (KataSandbox, error) {
	var state rustState
	if err := json.Unmarshal(text, &state); err != nil {
		return KataSandbox{}, fmt.Errorf("parse the state of Kata's Rust runtime: %w", err)
	}
	if state.SandboxType == "" || state.Hypervisor == nil || state.Hypervisor.ID == "" {
		return KataSandbox{}, errors.New("not a state file of Kata's Rust runtime: sandbox_type or hypervisor.id is missing")
	}
	s := KataSandbox{ID: state.Hypervisor.ID, Runtime: KataRust, Hypervisor: state.Hypervisor.Type}
	if state.Hypervisor.PID != nil {
		s.PID = *state.Hypervisor.PID
	}
	if state.Resource == nil {
		return s, nil
	}
	for _, e := range state.Resource.Endpoint {
		if e.Physical == nil {
			continue
		}
		if err := s.addEndpoint(e.Physical.BDF); err != nil {
			return KataSandbox{}, err
		}
	}
	return s, nil
}

package katastate

import (
	"encoding/json"
	"errors"
	"fmt"
)

// rustState is what is read of runtime-rs' virt_container SandboxState.
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
func parseRust(text []byte) (Sandbox, error) {
	var state rustState
	if err := json.Unmarshal(text, &state); err != nil {
		return Sandbox{}, fmt.Errorf("parse the state of Kata's Rust runtime: %w", err)
	}
	if state.SandboxType == "" || state.Hypervisor == nil || state.Hypervisor.ID == "" {
		return Sandbox{}, errors.New("it is no state of Kata's Rust runtime: sandbox_type or hypervisor.id is missing")
	}
	s := Sandbox{ID: state.Hypervisor.ID, Runtime: Rust, Hypervisor: state.Hypervisor.Type}
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
			return Sandbox{}, err
		}
	}
	return s, nil
}

package archive

import (
	"encoding/json"
	"path"
	"slices"
)

// isKataState reports whether a file is what Kata keeps of a sandbox: it has annotations
// of the pod and Kata's whole configuration.
func isKataState(place string) bool {
	dir := path.Dir(path.Dir(place))
	return dir == "run/vc/sbs" && path.Base(place) == "persist.json" || dir == "run/kata" && path.Base(place) == "state.json"
}

// censorKataState leaves of it what is judged: which VM runs, and with which functions.
// One that can't be read stays one that can't.
func censorKataState(data []byte) []byte {
	var state map[string]json.RawMessage
	if err := json.Unmarshal(data, &state); err != nil {
		return []byte("(not collected)")
	}
	judged := []string{
		"SandboxContainer", "PersistVersion", "State", "Devices", "HypervisorState", "Network", // virtcontainers/persist/api
		"sandbox_type", "resource", "hypervisor", // runtime-rs
	}
	for name := range state {
		if !slices.Contains(judged, name) {
			delete(state, name)
		}
	}
	var hypervisor map[string]json.RawMessage
	if json.Unmarshal(state["hypervisor"], &hypervisor) == nil && hypervisor != nil {
		delete(hypervisor, "config")
		if kept, err := json.Marshal(hypervisor); err == nil {
			state["hypervisor"] = kept
		}
	}
	kept, err := json.Marshal(state)
	if err != nil {
		return []byte("(not collected)")
	}
	return kept
}

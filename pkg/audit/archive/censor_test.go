package archive

import (
	"strings"
	"testing"
)

func TestCensorKeepsJudgedKataState(t *testing.T) {
	for place, c := range map[string]struct{ text, kept, lost string }{
		"run/vc/sbs/x/persist.json": {
			`{"SandboxContainer":"x","Devices":[{"VFIODevs":[{"BDF":"0000:21:10.0"}]}],"Config":{"ContainerConfigs":[{"Annotations":{"a":"hunter2"}}]}}`,
			"0000:21:10.0", "hunter2",
		},
		"run/kata/x/state.json": {
			`{"sandbox_type":"virt_container","hypervisor":{"id":"x","pid":7,"config":{"kernel_params":"hunter2"}}}`, `"pid":7`, "hunter2",
		},
		"run/kata-containers/shared/direct-volumes/L3ZvbHVtZXM=/mountInfo.json": {
			`{"volume-type":"block","device":"/dev/sda","options":["password=hunter2"],"metadata":{"key":"hunter2"}}`, `"device":"/dev/sda"`, "hunter2",
		},
	} {
		kept := string(censorKataState([]byte(c.text)))
		if !isKataState(place) || !strings.Contains(kept, c.kept) || strings.Contains(kept, c.lost) {
			t.Errorf("of %s is kept %s", place, kept)
		}
	}
	if kept := string(censorKataState([]byte("hunter2"))); strings.Contains(kept, "hunter2") {
		t.Errorf("of a damaged state is kept %s", kept)
	}
	if isKataState("run/vc/sbs/x/y/persist.json") || isKataState("etc/state.json") {
		t.Error("another file counts as a state")
	}
}

package facts

import "testing"

// TestPluginsWayOfPluggingIsPlannedWith: of a group's node a running VM gets more than one that boots.
func TestPluginsWayOfPluggingIsPlannedWith(t *testing.T) {
	for said, want := range map[string]bool{
		`{"bootID":"","devices":[]}`:                 false,
		`{"bootID":"","devices":[],"hotPlug":true}`:  true,
		`{"bootID":"","devices":[],"hotPlug":false}`: false,
	} {
		k, n := node(t)
		k.PutFile(publishedFile, said)
		n = New(n.fs, n.Snapshot)
		if planned, _ := n.Planned(); planned.HotPlug != want {
			t.Errorf("%s: hot plug %v, want %v", said, planned.HotPlug, want)
		}
	}
}

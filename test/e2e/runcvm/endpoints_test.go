package main

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/lab/endpoint"
)

// TestDetachedLeavesBehindWhatKataDoes: the orders are those of Kata's own loop, run by hand.
func TestDetachedLeavesBehindWhatKataDoes(t *testing.T) {
	for had, want := range map[string]string{
		"": "", "net1": "net1", "net1 net2": "net2", "net1 net2 net3": "net2 net3", "net1 net2 net3 net4": "net2 net4",
	} {
		var endpoints []taken
		for name := range strings.FieldsSeq(had) {
			endpoints = append(endpoints, taken{Endpoint: endpoint.Endpoint{Name: name}})
		}
		var got []string
		for _, e := range detached(endpoints) {
			got = append(got, e.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("of %q Kata detaches %q; want %q", had, got, want)
		}
	}
}

package main

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/golden"
)

// TestGoldenOutputs compares each command's output for the sample.
func TestGoldenOutputs(t *testing.T) {
	client := sample(t)
	for name, line := range map[string]string{
		"devices.txt": "devices", "devices-wide.txt": "devices --node worker-1 -o wide",
		"claims.txt": "claims -A", "claims-wide.txt": "claims -o wide",
		"topology.txt": "topology", "quarantine.txt": "quarantine",
		"audit.txt": "audit", "audit-wide.txt": "audit -o wide --node-report testdata/reports",
		"explain-claim.txt": "explain train-gpu", "explain-pod.txt": "explain pod/train", "explain-device.txt": "explain worker-2/0000:42:00.0",
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := ask(t, client, strings.Fields(line)...)
			want := 0
			if strings.HasPrefix(line, "audit") {
				want = exitFindings
			}
			if code != want {
				t.Errorf("exit code %d, want %d: %s", code, want, stderr)
			}
			golden.Compare(t, name, stdout)
		})
	}
}

package plugin

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// TestProcessIsAliveUntilItIsCertainlyGone: what can't be read is no end of a VM.
func TestProcessIsAliveUntilItIsCertainlyGone(t *testing.T) {
	const vmm = "4711 (qemu-system-x86 (1) S) S 1 4711 4711 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 3 0 8888 1 1\n"
	tests := map[string]struct {
		stat  string // "" for none
		dir   bool   // proc/4711 is there
		start uint64
		alive bool
	}{
		"the same":            {stat: vmm, dir: true, start: 8888, alive: true},
		"another of its PID":  {stat: vmm, dir: true, start: 7777},
		"gone":                {start: 8888},
		"it can't be read":    {dir: true, start: 8888, alive: true},
		"it is not a process": {stat: "4711\n", dir: true, start: 8888, alive: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "proc/4711")
			if tt.dir {
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if tt.stat != "" {
				if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(tt.stat), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			fs, err := sysfs.Open(root)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = fs.Close() }()
			if got := (nodeProcesses{fs}).IsAlive(journal.Process{PID: 4711, StartTime: tt.start}); got != tt.alive {
				t.Errorf("alive: %t, want %t", got, tt.alive)
			}
		})
	}
}

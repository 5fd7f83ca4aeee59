package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/lab/image"
)

func TestKernelLine(t *testing.T) {
	for _, tt := range []struct {
		name     string
		config   Config
		has, not string
	}{
		{"defaults", Config{}, " intel_iommu=on", "lab.vfio=legacy"},
		{"iommufd", Config{}, ",vfio-pci,vfio_iommu_type1,iommufd ", "lab.vfio=legacy"},
		{"legacy", Config{VFIO: image.Legacy}, "lab.vfio=legacy ", ",iommufd"},
		{"no IOMMU", Config{WithoutIOMMU: true}, " intel_iommu=off", "intel_iommu=on"},
		{"own drivers", Config{Drivers: []string{"igb"}}, "lab.modules=igb,vfio-pci,", "nvme"},
		{"added last", Config{KernelArgs: []string{"panic=5"}}, " intel_iommu=on panic=5", "\n"},
	} {
		line := tt.config.withDefaults().kernelLine() + " "
		if !strings.Contains(line, tt.has) || strings.Contains(line, tt.not) {
			t.Errorf("%s: the kernel's command line is %q; want %q in it, and %q not", tt.name, line, tt.has, tt.not)
		}
	}
}

func TestForward(t *testing.T) {
	const usernet = `Hub -1 (outside):
  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ
  TCP[HOST_FORWARD]  12       127.0.0.1 10250       10.0.2.15 10250     0     0
  TCP[HOST_FORWARD]  13       127.0.0.1 45541       10.0.2.15  2222     0     0
`
	if got := forward.FindStringSubmatch(usernet); len(got) != 2 || got[1] != "45541" {
		t.Errorf("the port found is %q", got)
	}
}

func TestLostTimerIsFound(t *testing.T) {
	const stalled = "[   23.6] rcu: rcu_preempt kthread timer wakeup didn't happen for 5251 jiffies! g-1147 f0x0\r\n[   23.7] rcu: stack"
	m := &Machine{dir: t.TempDir()}
	for _, tt := range []struct{ console, want string }{
		{"", ""},
		{"rcu: rcu_preempt self-detected stall on CPU", ""},
		{stalled, "a processor lost its timer: kthread timer wakeup didn't happen for 5251 jiffies! g-1147 f0x0"},
	} {
		if tt.console != "" {
			if err := os.WriteFile(filepath.Join(m.dir, consoleFile), []byte(tt.console), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := ""
		if err := m.lostTimer(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("console %q: got %q, want %q", tt.console, got, tt.want)
		}
	}
}

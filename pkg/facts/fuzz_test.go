package facts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// FuzzNode: whatever the journal, the command line and the configuration of a node
// hold, asking for them ends with an answer.
func FuzzNode(f *testing.F) {
	f.Add(`{"version":1,"kind":"claim"}`, "intel_iommu=on -- x", `GRUB_CMDLINE_LINUX="vfio.enable_unsafe_noiommu_mode=1"`, "options vfio a=1")
	f.Add(`{`, `"`, `=`, "options")
	f.Fuzz(func(t *testing.T, record, cmdline, grub, options string) {
		root := t.TempDir()
		for name, content := range map[string]string{
			"var/lib/kata-vfio/journal/x.json": record, "proc/cmdline": cmdline, "etc/default/grub": grub,
			"etc/modprobe.d/x.conf": options, "run/kata-vfio/published.json": record,
		} {
			file := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		fsys, err := sysfs.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = fsys.Close() }()
		n := facts.New(fsys, &device.Snapshot{})
		s := n.Parameter("vfio", "enable_unsafe_noiommu_mode")
		_, _ = s.Next()
		_ = n.Arguments("intel_iommu")
		_ = n.Records()
		_ = n.Tenants(pci.Address{})
		for _, damaged := range n.Damaged {
			_ = damaged.Evidence()
		}
	})
}

package check

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/board"
)

func TestCommandsOfModprobeAreNamed(t *testing.T) {
	for about, c := range map[string]struct{ content, want string }{
		"a command":                  {"# x\ninstall vfio-pci /usr/local/bin/override.sh\n", "/etc/modprobe.d/x.conf line 2 runs /usr/local/bin/override.sh"},
		"by the module's other name": {"install vfio_pci /bin/a b\n", "line 1 runs /bin/a b"},
		"of another module":          {"install vfio /bin/a\n", ""},
		"one that prevents loading":  {"install vfio-pci /bin/false\n", ""},
	} {
		tree := board.Server(t)
		tree.Put("etc/modprobe.d/x.conf", c.content)
		fsys, err := sysfs.Open(tree.Root())
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, f := range installCommands(facts.New(fsys, &device.Snapshot{})) {
			said += f.Text
		}
		if !strings.Contains(said, c.want) || c.want == "" && said != "" {
			t.Errorf("%s: %q, want %q", about, said, c.want)
		}
		_ = fsys.Close()
	}
}

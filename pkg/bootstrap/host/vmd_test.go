package host_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func TestDrivesBehindVMDAreNotForVMs(t *testing.T) {
	const drive, other = "sys/bus/pci/devices/10000:01:00.0/", "sys/bus/pci/devices/0000:41:00.0/"
	const head = "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\ndevices:\n"
	node := tree{
		drive + "class": "0x010802\n", drive + "vendor": "0x144d\n", drive + "device": "0xa824\n",
		other + "class": "0x010802\n", other + "vendor": "0x144d\n", other + "device": "0xa824\n",
	}
	// The tree lists directories of files only.
	node["sys/bus/pci/devices/10000:01:00.0"], node["sys/bus/pci/devices/0000:41:00.0"] = "", ""
	behind := pci.Address{Domain: 0x10000, Bus: 1}
	for name, c := range map[string]struct {
		keepOff []pci.Address
		config  string
		fatal   bool
		want    string
	}{
		"nothing is selected":           {},
		"keepOff of a drive behind VMD": {keepOff: []pci.Address{behind}, fatal: true, want: "vfio.keepOff names 10000:01:00.0, which is behind Intel VMD"},
		"keepOff of another drive":      {keepOff: []pci.Address{{Bus: 0x41}}},
		"the node config by vendor":     {config: head + "- {match: {vendors: ['144d']}}\n", want: "the node config selects 10000:01:00.0, which is behind Intel VMD"},
		"a node config of others":       {config: head + "- {match: {vendors: ['10de']}}\n"},
		"both name it once":             {keepOff: []pci.Address{behind}, config: head + "- {match: {vendors: ['144d']}}\n", fatal: true, want: "vfio.keepOff names 10000:01:00.0"},
	} {
		files := tree{}
		maps.Copy(files, node)
		if c.config != "" {
			files["etc/kata-vfio/node.yaml"] = c.config
		}
		b := blueprint.Default()
		b.VFIO.KeepOff = c.keepOff
		found := 0
		for _, p := range host.Wanted(files, b, &host.Platform{Systemd: true}).Problems {
			if !strings.Contains(p.Text, "VMD") {
				continue
			}
			found++
			if c.want == "" || !strings.HasPrefix(p.Text, c.want) || p.Fatal != c.fatal || !strings.Contains(p.Fix, "switch VMD off") {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if want := min(len(c.want), 1); found != want {
			t.Errorf("%s: %d problems, want %d", name, found, want)
		}
	}
}

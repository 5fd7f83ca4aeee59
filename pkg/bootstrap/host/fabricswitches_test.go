package host_test

import (
	"strings"
	"testing"
)

// TestFabricManagerOfManagedSwitches: where the NVSwitches are behind ConnectX functions, Fabric Manager's script starts nvlsm, and the modules
// that both need are loaded. Elsewhere they are not wanted. No unit is: NVIDIA has none for nvlsm.
func TestFabricManagerOfManagedSwitches(t *testing.T) {
	const dir, modules = "sys/bus/pci/devices/", "etc/modules-load.d/kata-vfio-fabric.conf"
	for _, c := range []struct {
		name, gpu, vpd string
		want           bool
	}{
		{"B200", "0x2901\n", "\x82Nvidia ConnectX-7\x90VA\x06SW_MNG", true},
		{"B200 with an ordinary NIC", "0x2901\n", "\x82Nvidia ConnectX-7", false},
		{"H100", "0x2330\n", "\x82Nvidia ConnectX-7\x90VA\x06SW_MNG", false},
	} {
		w := fabricWanted(tree{
			managerConfig: vendorConfig, dir + "0000:50:00.0": "", dir + "0000:58:00.0": "",
			dir + "0000:50:00.0/vendor": "0x10de\n", dir + "0000:50:00.0/device": c.gpu,
			dir + "0000:58:00.0/vendor": "0x15b3\n", dir + "0000:58:00.0/device": "0x1021\n", dir + "0000:58:00.0/vpd": c.vpd,
		})
		var files []string
		for _, f := range w.Files {
			if strings.Contains(f.Path, "nvlsm") {
				t.Errorf("%s: %s", c.name, f.Path)
			}
			if f.Path == modules {
				files = append(files, f.Path)
			}
		}
		if (len(files) == 1) != c.want {
			t.Errorf("%s: files %v, want the modules: %t", c.name, files, c.want)
		}
		if !c.want {
			continue
		}
		if got := content(t, w, modules); got != "mlx5_ib\nib_umad\n" {
			t.Errorf("%s: modules %q", c.name, got)
		}
	}
}

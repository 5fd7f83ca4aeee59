package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cdiDevice is a device of a CDI file, with its device nodes.
type cdiDevice struct {
	name  string
	nodes []device
}

// writeCDI writes a CDI file of kind kata-vfio.dev/vfio.
func writeCDI(t *testing.T, dir string, devices ...cdiDevice) {
	t.Helper()
	var text strings.Builder
	text.WriteString("cdiVersion: 0.5.0\nkind: kata-vfio.dev/vfio\ndevices:\n")
	for _, d := range devices {
		fmt.Fprintf(&text, "- name: %s\n  containerEdits:\n    env: [A=b]\n    deviceNodes:\n", d.name)
		for _, n := range d.nodes {
			fmt.Fprintf(&text, "    - {path: %s, type: c, major: %d, minor: %d}\n", n.Path, n.Major, n.Minor)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "kata-vfio.dev-vfio.yaml"), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

var (
	control = device{Path: "/dev/vfio/vfio", Major: 10, Minor: 196}
	cdev0   = device{Path: "/dev/vfio/devices/vfio0", Major: 510, Minor: 0}
	cdev1   = device{Path: "/dev/vfio/devices/vfio1", Major: 510, Minor: 1}
	group15 = device{Path: "/dev/vfio/15", Major: 511, Minor: 15}
	null    = device{Path: "/dev/null", Major: 1, Minor: 3}
)

func TestResolveTakesTheVFIONodesBehindTheNames(t *testing.T) {
	static, dynamic := t.TempDir(), t.TempDir()
	writeCDI(t, static, cdiDevice{"gpu", []device{group15}}, cdiDevice{"old", []device{group15}})
	writeCDI(t, dynamic,
		cdiDevice{"gpu", []device{cdev0}}, cdiDevice{"nic", []device{control, cdev1, null}},
		cdiDevice{"alias", []device{{Path: "/dev/vfio/devices/vfio9", Major: cdev0.Major, Minor: cdev0.Minor}}},
		cdiDevice{"control", []device{control}})
	n := node{cdi: []string{static, dynamic}}
	const kind = "kata-vfio.dev/vfio="
	for name, test := range map[string]struct {
		names []string
		want  []device
	}{
		"no names":                               {nil, nil},
		"one":                                    {[]string{kind + "gpu"}, []device{cdev0}},
		"the later directory has precedence":     {[]string{kind + "old", kind + "gpu"}, []device{group15, cdev0}},
		"a name that two containers share":       {[]string{kind + "gpu", kind + "gpu", kind + "nic"}, []device{cdev0, cdev1}},
		"one function under two paths":           {[]string{kind + "gpu", kind + "alias"}, []device{cdev0}},
		"what is no VFIO node is not plugged":    {[]string{kind + "nic"}, []device{cdev1}},
		"the container's control node is no one": {[]string{kind + "control"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := n.resolve(test.names)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNameThatIsNoDeviceFailsAll(t *testing.T) {
	n := node{cdi: []string{t.TempDir(), filepath.Join(t.TempDir(), "none")}}
	writeCDI(t, n.cdi[0], cdiDevice{"gpu", []device{cdev0}})
	for _, bad := range []string{"kata-vfio.dev/vfio=gone", "intel.com/sriov=0000:3b:00.4", "smarter-devices/fuse=0", "nonsense", ""} {
		got, err := n.resolve([]string{"kata-vfio.dev/vfio=gpu", bad})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("(not resolved: [%q])", bad)) {
			t.Errorf("resolve with %q = %v, %v; want an error that names it", bad, got, err)
		}
		if got != nil {
			t.Errorf("resolve with %q = %v and an error", bad, got)
		}
	}
}

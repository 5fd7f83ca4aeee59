package facts

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	cdispecs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// node returns the facts of a node without functions.
func node(tb testing.TB) (*sysfstest.Kernel, *Node) {
	tb.Helper()
	k := sysfstest.New(tb)
	fsys, err := sysfs.Open(k.Root())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = fsys.Close() })
	return k, New(fsys, &device.Snapshot{})
}

func TestSpecDirectories(t *testing.T) {
	k, n := node(t)
	k.PutFile("var/run/cdi/x.yaml", "kind: a.com/b\n")
	specs, dirs := n.SpecsIn([]string{"/var/run/other", "/etc/cdi/", "relative"})
	if len(specs) != 1 || specs[0].File.Path != "/var/run/cdi/x.yaml" || specs[0].Content.Kind != "a.com/b" {
		t.Errorf("specs: %+v", specs)
	}
	var paths []string
	for _, d := range dirs {
		paths = append(paths, d.Path)
	}
	if diff := cmp.Diff([]string{"/etc/cdi", "/run/cdi", "/var/run/cdi", "/var/run/other"}, paths); diff != "" {
		t.Errorf("directories (-want +got):\n%s", diff)
	}
}

func TestVFIOPath(t *testing.T) {
	k, n := node(t)
	k.PutFile("sys/class/vfio/15/dev", "235:15\n")
	for name, tt := range map[string]struct {
		device cdispecs.DeviceNode
		want   string
	}{
		"by path":                  {cdispecs.DeviceNode{Path: "/dev/vfio/7"}, "/dev/vfio/7"},
		"by number":                {cdispecs.DeviceNode{Path: "/dev/x", Type: "c", Major: 235, Minor: 15}, "/dev/vfio/15"},
		"the number decides":       {cdispecs.DeviceNode{Path: "/dev/vfio/7", Major: 235, Minor: 15}, "/dev/vfio/15"},
		"a block device":           {cdispecs.DeviceNode{Path: "/dev/x", Type: "b", Major: 235, Minor: 15}, ""},
		"by the host's path":       {cdispecs.DeviceNode{Path: "/dev/x", HostPath: "/dev/vfio/7"}, "/dev/vfio/7"},
		"by a path with detours":   {cdispecs.DeviceNode{Path: "/dev/x/../iommu"}, "/dev/iommu"},
		"another":                  {cdispecs.DeviceNode{Path: "/dev/nvidia0", Major: 195}, ""},
		"one that begins the same": {cdispecs.DeviceNode{Path: "/dev/vfio-user"}, ""},
	} {
		if got := n.vfioPath(&tt.device); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// Whatever a file in a spec directory holds, reading it ends, and in no panic.
func FuzzParseSpec(f *testing.F) {
	_, n := node(f)
	for _, seed := range []string{
		"", "kind: [", "devices: [null]", "containerEdits: {deviceNodes: [null], mounts: [null], hooks: [null]}",
		`{"kind":"a/b","devices":[{"name":"0","containerEdits":{"deviceNodes":[{"path":"/dev/vfio/1"}]}}]}`,
		"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c]\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := parseSpec(Fact{Path: "/etc/cdi/x.yaml", Value: text})
		for _, g := range n.Gives(&s) {
			if g.Path == "" {
				t.Error("a node without a path")
			}
		}
		parseUdev(Fact{Value: text})
	})
}

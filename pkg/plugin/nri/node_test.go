package nri_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/nri"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

const (
	boot    = "6f0b5c2e"
	longAgo = "2026-01-02T03:04:05Z"
)

// node is a journal, a CDI directory and what the kernel shows.
type node struct {
	t       testing.TB
	dir     string
	records *journal.Store
	specs   *cdi.Dir
	table   *podres.Table
	kernel  nri.Kernel
}

func newNode(t testing.TB) *node {
	t.Helper()
	n := &node{t: t, dir: t.TempDir()}
	var err error
	if n.records, err = journal.Open(filepath.Join(n.dir, "journal")); err != nil {
		t.Fatal(err)
	}
	if n.specs, err = cdi.Open(filepath.Join(n.dir, "cdi")); err != nil {
		t.Fatal(err)
	}
	n.table = podres.NewTable(podres.TableConfig{
		Journal: n.records, Specs: n.specs, BootID: boot, Node: "worker-1",
		JournalDir: filepath.Join(n.dir, "journal"), SpecsDir: filepath.Join(n.dir, "cdi"),
	})
	n.write("proc/devices", "Character devices:\n  1 mem\n 10 misc\n510 vfio-dev\n511 vfio\n\nBlock devices:\n  8 sd\n")
	n.write("sys/class/misc/vfio/dev", "10:196\n")
	n.write("sys/class/misc/iommu/dev", "10:121\n")
	fs, err := sysfs.Open(n.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	n.kernel = nri.Kernel{FS: fs, Files: nri.NewSourceFinder(n.dir, limit)}
	n.files()
	return n
}

// files makes what the containers of the tests mount.
func (n *node) files() {
	n.t.Helper()
	for _, dir := range []string{"run/containerd/sandboxes/s/shm", "dev/snd", "devices", volumes + "/data"} {
		if err := os.MkdirAll(filepath.Join(n.dir, dir), 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	n.write("var/lib/kubelet/pods/p/containers/app/0", "")
	n.write(volumes+"/file", "")
	for name, mode := range map[string]uint32{"block": unix.S_IFBLK, "character": unix.S_IFCHR, "fifo": unix.S_IFIFO, "socket": unix.S_IFSOCK} {
		if err := unix.Mknod(filepath.Join(n.dir, volumes, name), mode|0o600, int(unix.Mkdev(253, 7))); err != nil {
			n.t.Fatal(err)
		}
	}
	if err := os.Symlink("/"+volumes+"/block", filepath.Join(n.dir, volumes, "link")); err != nil {
		n.t.Fatal(err)
	}
}

// volumes are a pod's on the node.
const volumes = "var/lib/kubelet/pods/p/volumes"

func (n *node) write(name, text string) {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// process makes one that started at tick 4711.
func (n *node) process(pid string) {
	n.write("proc/"+pid+"/stat", pid+" (qemu (1) x) S "+strings.Repeat("0 ", 18)+"4711 0 0\n")
}

// device is a claim's device with its nodes.
type device struct {
	request string
	address pci.Address
	nodes   []cdi.Node
}

// The devices of the tests: one by its group, one by iommufd.
func gpu() device {
	return device{"gpu", pci.Address{Bus: 0x3b}, []cdi.Node{{Path: "/dev/vfio/15", Major: 511, Minor: 3}}}
}

func otherGPU() device {
	return device{"gpu", pci.Address{Bus: 0x5e}, []cdi.Node{{Path: "/dev/vfio/16", Major: 511, Minor: 4}}}
}

func nic() device {
	return device{"nic/fast", pci.Address{Bus: 0x21, Device: 0x10}, []cdi.Node{
		{Path: "/dev/vfio/devices/vfio7", Major: 510, Minor: 7},
		{Path: "/dev/iommu", Major: 10, Minor: 121},
	}}
}

// prepare enters a claim of a pod with its devices, in the sandbox if it is not
// empty, from now on, after change.
func (n *node) prepare(uid, podUID, sandbox string, change func(*journal.Record), devices ...device) {
	n.t.Helper()
	r := &journal.Record{Kind: journal.Claim, State: journal.Prepared, BootID: boot}
	r.Plan.Claim = plan.Ref{UID: uid, Namespace: "tenants", Name: "claim-" + uid, Pods: []claim.Pod{{UID: podUID, Name: "vm-" + podUID}}}
	if sandbox != "" {
		r.Sandbox = &journal.Sandbox{ID: sandbox, Since: longAgo, Ticks: journal.Ticks()}
	}
	var nodes [][]cdi.Node
	for _, d := range devices {
		r.Plan.Devices = append(r.Plan.Devices, plan.Device{Request: d.request, Pool: "worker-1/kata-vfio.dev", Name: name(d), Address: d.address})
		nodes = append(nodes, d.nodes)
		n.write(class(d.nodes[0].Path), number(d.nodes[0]))
	}
	spec, err := cdi.Spec(&r.Plan, nodes)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.specs.Write(uid, spec); err != nil {
		n.t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	if err := n.records.Save(r); err != nil {
		n.t.Fatal(err)
	}
}

func name(d device) string {
	return "dev-" + strings.NewReplacer(":", "-", ".", "-").Replace(d.address.String())
}

// cdiName is the CDI name of a claim's device.
func cdiName(uid string, d device) string { return cdi.QualifiedName(uid, name(d)) }

func class(path string) string {
	if rest, ok := strings.CutPrefix(path, "/dev/vfio/devices/"); ok {
		return "sys/class/vfio-dev/" + rest + "/dev"
	}
	return "sys/class/vfio/" + filepath.Base(path) + "/dev"
}

func number(n cdi.Node) string {
	return fmt.Sprintf("%d:%d\n", n.Major, n.Minor)
}

// pod is one of a tenant under the handler for VMs.
func pod(uid, sandbox string) *api.PodSandbox {
	return &api.PodSandbox{Id: sandbox, Uid: uid, Name: "vm-" + uid, Namespace: "tenants", RuntimeHandler: "kata-gpu", Pid: 4711}
}

// oci returns a node as CDI puts it into a container.
func oci(n cdi.Node) *api.LinuxDevice {
	return &api.LinuxDevice{Path: n.Path, Type: "c", Major: n.Major, Minor: n.Minor}
}

// with returns a container with the nodes of a device, as CDI makes it.
func with(uid string, d device) *api.Container {
	c := &api.Container{Id: "ctr", Name: "app", Linux: &api.LinuxContainer{Resources: &api.LinuxResources{}}}
	c.CDIDevices = []*api.CDIDevice{{Name: cdiName(uid, d)}}
	for _, n := range d.nodes {
		c.Linux.Devices = append(c.Linux.Devices, oci(n))
		c.Linux.Resources.Devices = append(c.Linux.Resources.Devices, allowRule(n.Major, n.Minor))
	}
	return c
}

// allowRule allows a character device, or all of a major for minor -1.
func allowRule(major, minor int64) *api.LinuxDeviceCgroup {
	r := &api.LinuxDeviceCgroup{Allow: true, Type: "c", Major: api.Int64(major), Access: "rw"}
	if minor >= 0 {
		r.Minor = api.Int64(minor)
	}
	return r
}

// plain returns a container with what containerd gives every one, after change.
func plain(change func(*api.Container)) *api.Container {
	c := &api.Container{Id: "ctr", Name: "app", Linux: &api.LinuxContainer{Resources: &api.LinuxResources{}}}
	c.Linux.Resources.Devices = []*api.LinuxDeviceCgroup{
		{Type: "a", Access: "rwm"},
		{Allow: true, Type: "c", Access: "m"},
		{Allow: true, Type: "c", Major: api.Int64(int64(1)), Minor: api.Int64(int64(3)), Access: "rwm"},
		{Allow: true, Type: "c", Major: api.Int64(int64(136)), Access: "rwm"},
	}
	c.Mounts = []*api.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/dev/shm", Type: "bind", Source: "/run/containerd/sandboxes/s/shm"},
		{Destination: "/dev/termination-log", Type: "bind", Source: "/var/lib/kubelet/pods/p/containers/app/0"},
	}
	if change != nil {
		change(c)
	}
	return c
}

// rules are those of a cluster with cold plug.
func rules() nri.Rules {
	return nri.Rules{AllowedHandlers: []string{"kata-gpu"}, ExemptNamespaces: []string{"kube-system"}, ColdPlug: true}
}

// broken is a journal that can't be read.
type broken struct{}

var errDamaged = errors.New("record of claim tenants/secret is damaged")

func (broken) View() (*podres.View, error) { return nil, errDamaged }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// code returns the code of a refusal, "" for none.
func code(r *rule.Verdict) rule.Code {
	if r == nil {
		return ""
	}
	return r.Code
}

package nri_test

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/nri"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
)

// host is a node whose paths lead to devices, or that does not answer for one.
type host struct {
	nri.Kernel
	devices map[string]nri.DeviceNode
	err     error
	asked   []string
	tenants []string
}

func (h *host) Devices(tenant string, paths []string) (map[string]nri.DeviceNode, error) {
	h.asked, h.tenants = append(h.asked, paths...), append(h.tenants, tenant)
	return h.devices, h.err
}

func volume(name string) string { return "/" + volumes + "/" + name }

// runsIn makes a pod one without claims, of a namespace and a handler.
func runsIn(namespace, handler string) func(*api.PodSandbox) {
	return func(p *api.PodSandbox) { p.Uid, p.Namespace, p.RuntimeHandler = "p9", namespace, handler }
}

// own adds a device of the container's spec to what it mounts.
func own(c *api.Container, kind string, major, minor int64) *api.Container {
	c.Linux.Devices = append(c.Linux.Devices, &api.LinuxDevice{Path: "/dev/own", Type: kind, Major: major, Minor: minor})
	return c
}

// A mount of a device node is refused, and every other kind of file is mounted.
func TestMounts(t *testing.T) {
	for name, tt := range map[string]struct {
		container *api.Container
		adjust    *api.ContainerAdjustment
		pod       func(*api.PodSandbox)
		want      rule.Code
	}{
		"of a directory":         {container: mountOf("bind", volume("data"))},
		"of a regular file":      {container: mountOf("bind", volume("file"))},
		"of a FIFO":              {container: mountOf("bind", volume("fifo"))},
		"of a socket":            {container: mountOf("bind", volume("socket"))},
		"of a block device":      {container: mountOf("bind", volume("block")), want: rule.MountNotAllowed},
		"of a character device":  {container: mountOf("bind", volume("character")), want: rule.MountNotAllowed},
		"of a link to a device":  {container: mountOf("bind", volume("link")), want: rule.MountNotAllowed},
		"with a detour":          {container: mountOf("bind", volume("data/..//block")), want: rule.MountNotAllowed},
		"of a device as a disk":  {container: mountOf("ext4", volume("block")), want: rule.MountNotAllowed},
		"of no type":             {container: mountOf("", volume("block")), want: rule.MountNotAllowed},
		"of what does not exist": {container: mountOf("bind", volume("none")), want: rule.Unverifiable},
		"of a relative path":     {container: mountOf("bind", "rootfs/dev"), want: rule.Unverifiable},
		"of a relative path with the option": {
			container: plain(func(c *api.Container) {
				c.Mounts = []*api.Mount{{Destination: "/x", Source: "x", Options: []string{"bind"}}}
			}), want: rule.Unverifiable,
		},
		"of a relative path with the other option": {
			container: plain(func(c *api.Container) {
				c.Mounts = []*api.Mount{{Destination: "/x", Source: "x", Options: []string{"ro", "rbind"}}}
			}), want: rule.Unverifiable,
		},
		"in a pod without claims":      {container: mountOf("bind", volume("block")), pod: runsIn("tenants", "kata-gpu"), want: rule.MountNotAllowed},
		"in an exempt namespace":       {container: mountOf("bind", volume("block")), pod: runsIn("kube-system", "kata-gpu"), want: rule.MountNotAllowed},
		"without a VM":                 {container: mountOf("bind", volume("block")), pod: runsIn("tenants", "runc")},
		"without a VM, of nothing":     {container: mountOf("bind", volume("none")), pod: runsIn("tenants", "runc")},
		"of the container's own disk":  {container: own(mountOf("bind", volume("block")), "b", 253, 7)},
		"of another disk":              {container: own(mountOf("bind", volume("block")), "b", 253, 8), want: rule.MountNotAllowed},
		"of a disk with its number":    {container: own(mountOf("bind", volume("block")), "c", 253, 7), want: rule.MountNotAllowed},
		"of its own character device":  {container: own(mountOf("bind", volume("character")), "c", 253, 7)},
		"of its own unbuffered device": {container: own(mountOf("bind", volume("character")), "u", 253, 7)},
		"of a character device's disk": {container: own(mountOf("bind", volume("character")), "b", 253, 7), want: rule.MountNotAllowed},
		"that another plugin adds": {
			container: plain(nil), adjust: &api.ContainerAdjustment{Mounts: []*api.Mount{{Destination: "/x", Type: "bind", Source: volume("block")}}}, want: rule.MountNotAllowed,
		},
		"that another plugin removes": {
			container: plain(nil), adjust: &api.ContainerAdjustment{Mounts: []*api.Mount{{Destination: "-/dev/shm", Type: "bind"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := tenants(t)
			r, p := rules(), pod("p1", "s1")
			if tt.pod != nil {
				tt.pod(p)
			}
			refused := r.Container(n.table, n.kernel, p, tt.container, tt.adjust)
			ruletest.RefusedAt(t, rule.AtContainer, code(refused))
			if code(refused) != tt.want {
				t.Errorf("Container = %v, want %q", refused, tt.want)
			}
		})
	}
}

// TestRefusedMountIsNamed by its place in the container: where it is on the node is not for the tenant.
func TestRefusedMountIsNamed(t *testing.T) {
	const source = "/node/place"
	for name, tt := range map[string]struct {
		host host
		want string
	}{
		"a device node": {host{devices: map[string]nri.DeviceNode{source: {Block: true, Major: 253, Minor: 7}}}, "a block device node"},
		"another":       {host{devices: map[string]nri.DeviceNode{source: {Major: 10, Minor: 7}}}, "a character device node"},
		"a hung volume": {host{err: &fs.PathError{Op: "look at", Path: source, Err: os.ErrDeadlineExceeded}}, "did not answer in time"},
		"too many hung": {host{err: &fs.PathError{Op: "look at", Path: source, Err: nri.ErrBusy}}, "did not answer in time"},
		"nothing there": {host{err: &fs.PathError{Op: "look at", Path: source, Err: unix.ENOENT}}, "does not exist on the node"},
		"a dead volume": {host{err: &fs.PathError{Op: "look at", Path: source, Err: unix.ESTALE}}, "can't be read"},
	} {
		t.Run(name, func(t *testing.T) {
			r := rules()
			n := newNode(t)
			tt.host.Kernel = n.kernel
			refused := r.Container(n.table, &tt.host, pod("p1", "s1"), mountOf("bind", source), nil)
			if refused == nil {
				t.Fatal("it is not refused")
			}
			text := errorOf(pod("p1", "s1"), "app", refused)
			for _, word := range []string{"container app of pod tenants/vm-p1", "/mnt", tt.want, "device node"} {
				if !strings.Contains(text, word) {
					t.Errorf("the refusal %q does not say %q", text, word)
				}
			}
			if strings.Contains(text, source) || strings.Contains(text, "253") || refused.Err == nil || refused.Object != "/mnt" {
				t.Errorf("the refusal %q tells the node's path or number, or has no cause for the log (%v) or no subject (%q)", text, refused.Err, refused.Object)
			}
		})
	}
}

// TestOnlySourcesInVMsAreLookedAt: others' volumes can't delay or refuse anything.
func TestOnlySourcesInVMsAreLookedAt(t *testing.T) {
	n, r := newNode(t), rules()
	for handler, want := range map[string]int{"kata-gpu": 3, "runc": 0} {
		h, p := &host{Kernel: n.kernel}, pod("p1", "s1")
		p.RuntimeHandler = handler
		if refused := r.Container(n.table, h, p, mountOf("bind", "/x"), nil); refused != nil || len(h.asked) != want || want > 0 && !slices.Equal(h.tenants, []string{"tenants"}) {
			t.Errorf("under %s: %v after a look at %q for %q, want %d paths for the tenant", handler, refused, h.asked, h.tenants, want)
		}
	}
}

func TestRuntimeRefusesMountsOfDeviceNodes(t *testing.T) {
	n, r := tenants(t), startRuntime(t)
	p, _ := n.run(r, nil)
	r.ready(p)
	claimless := pod("p9", "s9")
	if _, err := r.createContainer(claimless, mountOf("bind", volume("block"))); err == nil || !strings.Contains(err.Error(), "(MountNotAllowed)") {
		t.Errorf("CreateContainer with a device node mounted = %v", err)
	}
	if _, err := r.createContainer(claimless, mountOf("bind", volume("data"))); err != nil {
		t.Errorf("CreateContainer with a directory mounted = %v", err)
	}
	adjust := &api.ContainerAdjustment{}
	adjust.AddMount(&api.Mount{Destination: "/x", Type: "bind", Source: volume("character"), Options: []string{"bind"}})
	r.adjuster("10", adjust)
	if _, err := r.createContainer(claimless, plain(nil)); err == nil || !strings.Contains(err.Error(), "(MountNotAllowed)") {
		t.Errorf("CreateContainer with a device node that another plugin mounts = %v", err)
	}
}

// TestRunningMountsAreReported: of a device node and of what can't be looked at, and not of what has been deleted since.
func TestRunningMountsAreReported(t *testing.T) {
	n, r := tenants(t), newRuntime(t)
	n.process("4711")
	device, deleted, unread := mountOf("bind", volume("block")), mountOf("bind", volume("none")), mountOf("bind", volume("file/below"))
	device.PodSandboxId, deleted.PodSandboxId, unread.PodSandboxId = "s1", "s2", "s3"
	r.pods, r.containers = []*api.PodSandbox{pod("p1", "s1"), pod("p2", "s2"), pod("p3", "s3")}, []*api.Container{deleted, device, unread}
	r.start()
	reports := make(chan nri.Refusal, 10)
	p, _ := n.run(r, func(c *nri.Config) { c.Observer = observer(reports) })
	r.ready(p)
	for _, want := range []struct {
		code rule.Code
		uid  string
	}{{rule.MountNotAllowed, "p1"}, {rule.Unverifiable, "p3"}} {
		if got := <-reports; got.Verdict.Code != want.code || got.Pod.UID != want.uid {
			t.Errorf("a report is %v, want %s of %s", got.Err().Error(), want.code, want.uid)
		}
	}
}

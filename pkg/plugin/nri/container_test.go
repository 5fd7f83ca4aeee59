package nri_test

import (
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/nri"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
)

// device returns a container with one device node.
func deviceOf(path, kind string, major, minor int64) *api.Container {
	return plain(func(c *api.Container) {
		c.Linux.Devices = []*api.LinuxDevice{{Path: path, Type: kind, Major: major, Minor: minor}}
	})
}

func mountOf(kind, source string) *api.Container {
	return plain(func(c *api.Container) {
		c.Mounts = append(c.Mounts, &api.Mount{Destination: "/mnt", Type: kind, Source: source, Options: []string{"rbind"}})
	})
}

func ruleOf(r *api.LinuxDeviceCgroup) *api.Container {
	return plain(func(c *api.Container) { c.Linux.Resources.Devices = append(c.Linux.Resources.Devices, r) })
}

func cdiOf(names ...string) *api.Container {
	return plain(func(c *api.Container) {
		for _, name := range names {
			c.CDIDevices = append(c.CDIDevices, &api.CDIDevice{Name: name})
		}
	})
}

// The node has three claims: of pod p1 in sandbox s1, of p2 in s2, and of p3
// in s3 with a control node. The container is of p1 unless said otherwise.
func TestContainers(t *testing.T) {
	for name, tt := range map[string]struct {
		container *api.Container
		adjust    *api.ContainerAdjustment
		pod       func(*api.PodSandbox)
		rules     func(*nri.Rules)
		want      rule.Code
	}{
		"without devices":       {container: plain(nil)},
		"with the pod's device": {container: with("c1", gpu())},
		"with its device and a control node": {
			container: with("c3", nic()), pod: be("p3", "s3"),
		},
		"with the device metadata": {container: cdiOf("kata-vfio.dev/metadata=c2-gpu")},
		"with another vendor's":    {container: cdiOf("nvidia.com/gpu=0")},

		"with another pod's node":                            {container: deviceOf("/dev/vfio/16", "c", 511, 4), want: rule.NodeOfOthersClaim},
		"with a node of no claim":                            {container: deviceOf("/dev/vfio/17", "c", 511, 5), want: rule.NodeWithoutClaim},
		"of another pod with the node":                       {container: with("c1", gpu()), pod: be("p2", "s2"), want: rule.NodeOfOthersClaim},
		"of a pod without a UID":                             {container: with("c1", gpu()), pod: be("", "s1"), want: rule.NodeOfOthersClaim},
		"with a control node of others":                      {container: deviceOf("/dev/iommu", "c", 10, 121), want: rule.NodeOfOthersClaim},
		"with a control node of nobody":                      {container: deviceOf("/dev/vfio/vfio", "c", 10, 196), want: rule.NodeWithoutClaim},
		"with a renamed control node":                        {container: deviceOf("/dev/null2", "c", 10, 196), want: rule.NodeWithoutClaim},
		"with a detour in the path":                          {container: deviceOf("/dev/../dev/./vfio//16", "c", 511, 4), want: rule.NodeOfOthersClaim},
		"with a detour and another number":                   {container: deviceOf("/dev/../dev/vfio/16", "c", 1, 3), want: rule.NodeOfOthersClaim},
		"with its name on another major":                     {container: deviceOf("/dev/vfio/15", "c", 1, 3), want: rule.NodeMismatch},
		"with a detour out of the folder":                    {container: deviceOf("/dev/vfio/../null", "c", 1, 3), want: rule.NodeWithoutClaim},
		"with a path that is not rooted":                     {container: deviceOf("dev/vfio/16", "c", 511, 4), want: rule.NodeOfOthersClaim},
		"with a path marked for removal":                     {container: deviceOf("-/dev/vfio/16", "c", 511, 4), want: rule.NodeWithoutClaim},
		"with a renamed node":                                {container: deviceOf("/dev/null2", "c", 511, 4), want: rule.NodeWithoutClaim},
		"with its own node renamed":                          {container: deviceOf("/dev/null2", "c", 511, 3), want: rule.NodeWithoutClaim},
		"with a renamed cdev":                                {container: deviceOf("/dev/null2", "c", 510, 9), want: rule.NodeWithoutClaim},
		"with a renamed unbuffered node":                     {container: deviceOf("/dev/null2", "u", 511, 4), want: rule.NodeWithoutClaim},
		"with a renamed node of no type":                     {container: deviceOf("/dev/null2", "", 511, 4), want: rule.NodeWithoutClaim},
		"with a block device of the number":                  {container: deviceOf("/dev/sdz", "b", 511, 4)},
		"with a harmless node":                               {container: deviceOf("/dev/fuse", "c", 10, 229)},
		"with its name on another's number":                  {container: deviceOf("/dev/vfio/15", "c", 511, 4), want: rule.NodeMismatch},
		"with its name on a block device":                    {container: deviceOf("/dev/vfio/15", "b", 511, 3), want: rule.NodeMismatch},
		"with upper case in the path, which is another file": {container: deviceOf("/dev/VFIO/16", "c", 1, 3)},
		"with its node twice, the second with another's number": {
			container: plain(func(c *api.Container) {
				c.Linux.Devices = []*api.LinuxDevice{oci(gpu().nodes[0]), {Path: "/dev/vfio/15", Type: "c", Major: 511, Minor: 4}}
			}),
			want: rule.NodeMismatch,
		},

		"with a rule for another's number":       {container: ruleOf(allowRule(511, 4)), want: rule.NodeWithoutClaim},
		"with a rule for all of VFIO":            {container: ruleOf(allowRule(511, -1)), want: rule.NodeWithoutClaim},
		"with a rule for its own number":         {container: ruleOf(allowRule(511, 3))},
		"with a rule that denies VFIO":           {container: ruleOf(&api.LinuxDeviceCgroup{Type: "c", Major: api.Int64(int64(511))})},
		"with a rule for block devices":          {container: ruleOf(&api.LinuxDeviceCgroup{Allow: true, Type: "b", Major: api.Int64(int64(511))})},
		"with the rule of privileged containers": {container: ruleOf(&api.LinuxDeviceCgroup{Allow: true, Type: "a", Access: "rwm"})},

		"with the CDI name of another pod's": {container: cdiOf(cdiName("c2", otherGPU())), want: rule.NodeOfOthersClaim},
		"with a CDI name of no claim":        {container: cdiOf("kata-vfio.dev/vfio=c9-x"), want: rule.NodeWithoutClaim},
		"with its CDI name twice":            {container: cdiOf(cdiName("c1", gpu()), cdiName("c1", gpu()))},
		"with its CDI name and another's":    {container: cdiOf(cdiName("c1", gpu()), cdiName("c2", otherGPU())), want: rule.NodeOfOthersClaim},

		"with the host's /dev":              {container: mountOf("bind", "/dev"), want: rule.MountNotAllowed},
		"with the host's /dev/":             {container: mountOf("bind", "/dev/"), want: rule.MountNotAllowed},
		"with the host's /dev/vfio":         {container: mountOf("bind", "/dev/vfio"), want: rule.MountNotAllowed},
		"with its own node mounted":         {container: mountOf("bind", "/dev/vfio/15"), want: rule.MountNotAllowed},
		"with /dev/iommu mounted":           {container: mountOf("bind", "/dev/iommu"), want: rule.MountNotAllowed},
		"with a detour in the source":       {container: mountOf("bind", "/dev/../dev/vfio"), want: rule.MountNotAllowed},
		"with a mount that names no type":   {container: mountOf("", "/dev/vfio"), want: rule.MountNotAllowed},
		"with a devtmpfs":                   {container: mountOf("devtmpfs", "none"), want: rule.MountNotAllowed},
		"with something else in /dev":       {container: mountOf("bind", "/dev/snd")},
		"with a name that begins as /dev":   {container: mountOf("bind", "/devices")},
		"with the host's root, see exposes": {container: mountOf("bind", "/")},

		"with a CDI annotation": {
			container: plain(func(c *api.Container) { c.Annotations = map[string]string{"cdi.k8s.io/x": "vendor.com/net=0"} }),
			want:      rule.AnnotationNotAllowed,
		},
		"of a pod with a CDI annotation": {container: plain(nil), pod: annotate("cdi.k8s.io/x", "vendor.com/net=0"), want: rule.AnnotationNotAllowed},

		"in a sandbox without the device":               {container: with("c1", gpu()), pod: be("p1", "s7"), want: rule.DeviceNotClean},
		"in a sandbox that booted without it":           {container: with("c4", gpu4()), pod: be("p4", "s4"), want: rule.NotInSandbox},
		"in a sandbox that booted without it, hot plug": {container: with("c4", gpu4()), pod: be("p4", "s4"), rules: func(r *nri.Rules) { r.ColdPlug = false }},
		"under another handler": {
			container: with("c1", gpu()), pod: func(p *api.PodSandbox) { p.RuntimeHandler = "runc" }, want: rule.HandlerNotAllowed,
		},
		"with the device of a claim that is being released": {container: with("c5", gpu5()), pod: be("p5", "s5"), want: rule.NodeWithoutClaim},

		"in an exempt namespace with the host's devices": {
			container: plain(func(c *api.Container) {
				c.Mounts = append(c.Mounts, &api.Mount{Type: "bind", Source: "/dev"})
				c.Linux.Devices = []*api.LinuxDevice{{Path: "/dev/vfio/17", Type: "c", Major: 511, Minor: 5}}
			}),
			pod: system,
		},
		"in an exempt namespace with a CDI name of ours": {container: cdiOf(cdiName("c2", otherGPU())), pod: system, want: rule.NodeOfOthersClaim},
		"in an exempt namespace under a VM handler": {
			container: mountOf("bind", "/dev"), pod: func(p *api.PodSandbox) { p.Namespace = "kube-system" }, want: rule.MountNotAllowed,
		},
		"under runc elsewhere with the host's devices": {
			container: deviceOf("/dev/vfio/vfio", "c", 10, 196), pod: func(p *api.PodSandbox) { p.Uid, p.RuntimeHandler = "p9", "runc" }, want: rule.NodeWithoutClaim,
		},

		"adjusted with another's node":     {container: plain(nil), adjust: adjustDevice("/dev/vfio/16", 511, 4), want: rule.NodeOfOthersClaim},
		"adjusted with another's CDI name": {container: plain(nil), adjust: adjustCDI(cdiName("c2", otherGPU())), want: rule.NodeOfOthersClaim},
		"adjusted with its own CDI name":   {container: plain(nil), adjust: adjustCDI(cdiName("c1", gpu()))},
		"adjusted with a mount of /dev": {
			container: plain(nil), adjust: &api.ContainerAdjustment{Mounts: []*api.Mount{{Destination: "/x", Source: "/dev"}}}, want: rule.MountNotAllowed,
		},
		"adjusted with a rule": {
			container: plain(nil), want: rule.NodeWithoutClaim,
			adjust: &api.ContainerAdjustment{Linux: &api.LinuxContainerAdjustment{Resources: &api.LinuxResources{Devices: []*api.LinuxDeviceCgroup{allowRule(511, 4)}}}},
		},
		"adjusted with an annotation": {
			container: plain(nil), adjust: &api.ContainerAdjustment{Annotations: map[string]string{"cdi.k8s.io/x": "y"}}, want: rule.AnnotationNotAllowed,
		},
		"adjusted to remove another's node, which stays": {
			container: deviceOf("/dev/vfio/16", "c", 511, 4), adjust: adjustDevice("-/dev/vfio/16", 0, 0), want: rule.NodeOfOthersClaim,
		},
		"adjusted to remove its own node": {container: with("c1", gpu()), adjust: adjustDevice("-/dev/vfio/15", 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			n := tenants(t)
			r, p := rules(), pod("p1", "s1")
			if tt.rules != nil {
				tt.rules(&r)
			}
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

// tenants is a node with five claims.
func tenants(t testing.TB) *node {
	n := newNode(t)
	n.prepare("c1", "p1", "s1", nil, gpu())
	n.prepare("c2", "p2", "s2", nil, otherGPU())
	n.prepare("c3", "p3", "s3", nil, nic())
	n.prepare("c4", "p4", "", nil, gpu4())
	n.prepare("c5", "p5", "s5", func(r *journal.Record) { r.State = journal.Releasing }, gpu5())
	return n
}

func gpu4() device {
	d := gpu()
	d.address.Bus, d.nodes[0].Path, d.nodes[0].Minor = 0x86, "/dev/vfio/40", 40
	return d
}

func gpu5() device {
	d := gpu()
	d.address.Bus, d.nodes[0].Path, d.nodes[0].Minor = 0x87, "/dev/vfio/50", 50
	return d
}

func be(uid, sandbox string) func(*api.PodSandbox) {
	return func(p *api.PodSandbox) { p.Uid, p.Id = uid, sandbox }
}

func system(p *api.PodSandbox) { p.Uid, p.Namespace, p.RuntimeHandler = "p9", "kube-system", "runc" }

func adjustDevice(path string, major, minor int64) *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	a.AddDevice(&api.LinuxDevice{Path: path, Type: "c", Major: major, Minor: minor})
	return a
}

func adjustCDI(name string) *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	a.AddCDIDevice(&api.CDIDevice{Name: name})
	return a
}

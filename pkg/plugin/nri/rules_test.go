package nri_test

import (
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/nri"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
)

func TestSandboxes(t *testing.T) {
	for name, tt := range map[string]struct {
		record  func(*journal.Record)
		sandbox string // the record's
		rules   func(*nri.Rules)
		pod     func(*api.PodSandbox)
		want    rule.Code
	}{
		"with its device pass":           {sandbox: "s1"},
		"of another handler are refused": {sandbox: "s1", pod: func(p *api.PodSandbox) { p.RuntimeHandler = "runc" }, want: rule.HandlerNotAllowed},
		"of the default handler, which has no name, are refused": {
			sandbox: "s1", pod: func(p *api.PodSandbox) { p.RuntimeHandler = "" }, want: rule.HandlerNotAllowed,
		},
		"of a handler in other letters are refused": {
			sandbox: "s1", pod: func(p *api.PodSandbox) { p.RuntimeHandler = "Kata-GPU" }, want: rule.HandlerNotAllowed,
		},
		"of another handler are refused in exempt namespaces too": {
			sandbox: "s1", pod: func(p *api.PodSandbox) { p.Namespace, p.RuntimeHandler = "kube-system", "runc" }, want: rule.HandlerNotAllowed,
		},
		"that booted without the device are refused":        {want: rule.NotInSandbox},
		"that booted without the device pass with hot plug": {rules: func(r *nri.Rules) { r.ColdPlug = false }},
		"that booted without a physical endpoint are refused with hot plug too": {
			record: func(r *journal.Record) { r.Plan.Devices[0].Attachment = v1alpha1.AttachPhysicalEndpoint },
			rules:  func(r *nri.Rules) { r.ColdPlug = false }, want: rule.NotInSandbox,
		},
		"after one that is not cleaned up are refused": {sandbox: "s0", want: rule.DeviceNotClean},
		"after one that is not cleaned up are refused with hot plug": {
			sandbox: "s0", rules: func(r *nri.Rules) { r.ColdPlug = false }, want: rule.DeviceNotClean,
		},
		"handed the device under the shim's process alone are refused": {sandbox: "pid-12-34", want: rule.DeviceNotClean},
		"whose claim is being released are refused": {
			sandbox: "s1", record: func(r *journal.Record) { r.State = journal.Releasing }, want: rule.ClaimNotUsable,
		},
		"whose claim is quarantined are refused": {
			sandbox: "s1", record: func(r *journal.Record) { r.State = journal.Quarantined }, want: rule.ClaimNotUsable,
		},
		"whose claim is of an earlier boot are refused": {
			sandbox: "s1", record: func(r *journal.Record) { r.BootID = "older" }, want: rule.ClaimNotUsable,
		},
		"whose claim is allocated from another node's pool are refused": {
			sandbox: "s1", record: func(r *journal.Record) { r.Plan.Devices[0].Pool = "worker-2" }, want: rule.ClaimNotUsable,
		},
		"with a CDI annotation are refused": {
			sandbox: "s1", pod: annotate("cdi.k8s.io/x", "vendor.com/net=0"), want: rule.AnnotationNotAllowed,
		},
		"with a CDI annotation in other letters are refused": {
			sandbox: "s1", pod: annotate("CDI.K8s.io/x", "vendor.com/net=0"), want: rule.AnnotationNotAllowed,
		},
		"with a Kata annotation are refused": {
			sandbox: "s1", pod: annotate("io.katacontainers.config.runtime.vfio_mode", "vfio"), want: rule.AnnotationNotAllowed,
		},
		"with others' annotations pass": {sandbox: "s1", pod: annotate("io.kubernetes.cri.sandbox-id", "s1")},
		"without a claim pass under any handler": {
			pod: func(p *api.PodSandbox) { p.Uid, p.RuntimeHandler = "p9", "runc" },
		},
		"without a UID have no claim": {pod: func(p *api.PodSandbox) { p.Uid = "" }},
		"under runc may have others' CDI annotations": {
			pod: func(p *api.PodSandbox) {
				p.Uid, p.RuntimeHandler = "p9", "runc"
				annotate("cdi.k8s.io/x", "vendor.com/net=0")(p)
			},
		},
		"under runc may not have our CDI annotations": {
			pod: func(p *api.PodSandbox) {
				p.Uid, p.RuntimeHandler = "p9", "runc"
				annotate("cdi.k8s.io/x", "vendor.com/net=0,kata-vfio.dev/vfio=c1-gpu")(p)
			},
			want: rule.AnnotationNotAllowed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.prepare("c1", "p1", tt.sandbox, tt.record, gpu())
			r, p := rules(), pod("p1", "s1")
			if tt.rules != nil {
				tt.rules(&r)
			}
			if tt.pod != nil {
				tt.pod(p)
			}
			_, refused := r.Sandbox(n.table, p)
			ruletest.RefusedAt(t, rule.AtSandbox, code(refused))
			if code(refused) != tt.want {
				t.Errorf("Sandbox = %v, want %q", refused, tt.want)
			}
		})
	}
}

// TestWithdrawnAllocationRefusesTheSandbox and a container with the device, whatever sandbox
// has it.
func TestWithdrawnAllocationRefusesTheSandbox(t *testing.T) {
	n := newNode(t)
	n.prepare("c1", "p1", "s1", nil, gpu())
	r, p := rules(), pod("p1", "s1")
	n.table.Withdraw("c1", "its allocation was withdrawn")
	_, refused := r.Sandbox(n.table, p)
	if code(refused) != rule.ClaimNotUsable || !strings.Contains(refused.Sentence(), "its allocation was withdrawn") {
		t.Errorf("Sandbox = %v", refused)
	}
	n.table.Withdraw("c1", "")
	if _, refused = r.Sandbox(n.table, p); refused != nil {
		t.Errorf("Sandbox = %v", refused)
	}
}

func annotate(key, value string) func(*api.PodSandbox) {
	return func(p *api.PodSandbox) { p.Annotations = map[string]string{key: value} }
}

// What can't be verified is refused where it matters and passes elsewhere.
func TestDamagedJournalRefusesOnlyWhatMayHaveDevices(t *testing.T) {
	r, n := rules(), newNode(t)
	vm, runc := pod("p1", "s1"), pod("p9", "s9")
	runc.RuntimeHandler = "runc"
	for name, tt := range map[string]struct {
		pod  *api.PodSandbox
		want rule.Code
	}{"VM": {vm, rule.Unverifiable}, "other": {runc, ""}} {
		if _, refused := r.Sandbox(broken{}, tt.pod); code(refused) != tt.want {
			t.Errorf("sandbox of the %s: %v, want %q", name, refused, tt.want)
		}
	}
	for name, tt := range map[string]struct {
		container *api.Container
		want      rule.Code
	}{
		"node":     {plain(func(c *api.Container) { c.Linux.Devices = []*api.LinuxDevice{oci(gpu().nodes[0])} }), rule.Unverifiable},
		"CDI name": {plain(func(c *api.Container) { c.CDIDevices = []*api.CDIDevice{{Name: "kata-vfio.dev/vfio=c1-x"}} }), rule.Unverifiable},
		"nothing":  {plain(nil), ""},
	} {
		refused := r.Container(broken{}, n.kernel, runc, tt.container, nil)
		if code(refused) != tt.want {
			t.Errorf("container with %s: %v, want %q", name, refused, tt.want)
		}
		if refused != nil && strings.Contains(refused.Sentence(), "secret") {
			t.Errorf("the tenant reads of another's claim: %v", refused)
		}
	}
}

func TestUnreadableDeviceNumbersRefuseContainersWithDevices(t *testing.T) {
	r, n := rules(), newNode(t)
	n.write("proc/devices", "nonsense vfio\n")
	fuse := plain(func(c *api.Container) {
		c.Linux.Devices = []*api.LinuxDevice{{Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229}}
	})
	if refused := r.Container(n.table, n.kernel, pod("p9", "s9"), fuse, nil); code(refused) != rule.Unverifiable {
		t.Errorf("container with a device: %v, want %q", refused, rule.Unverifiable)
	}
	if refused := r.Container(n.table, n.kernel, pod("p9", "s9"), plain(nil), nil); refused != nil {
		t.Errorf("container without a device: %v", refused)
	}
}

// A refusal is read by a tenant in the pod's events.
func TestRefusalsSayWhatToDo(t *testing.T) {
	n, r := newNode(t), rules()
	n.prepare("c1", "p1", "s0", nil, gpu())
	_, refused := r.Sandbox(n.table, pod("p1", "s1"))
	want := "kata-vfio refuses pod tenants/vm-p1: the devices of claim tenants/claim-c1 (c1) were assigned to sandbox s0 and have not been reset; " +
		"wait until that sandbox ends: its devices are then reset, and the kubelet tries again; pods can't share a device (DeviceNotClean)"
	if got := errorOf(pod("p1", "s1"), "", refused); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	stolen := plain(func(c *api.Container) { c.Linux.Devices = []*api.LinuxDevice{oci(gpu().nodes[0])} })
	refused = r.Container(n.table, n.kernel, pod("p9", "s9"), stolen, nil)
	if text := errorOf(pod("p9", "s9"), "app", refused); refused == nil || !strings.Contains(refused.Err.Error(), "claim-c1") || strings.Contains(text, "claim-c1") {
		t.Errorf("a stolen node: %s, and for the log %v; want the claim in the log and not in the text", text, refused)
	}
}

// errorOf returns what the runtime is told; "" for no verdict.
func errorOf(p *api.PodSandbox, container string, v *rule.Verdict) string {
	if v == nil {
		return ""
	}
	refusal := nri.Refusal{Pod: nri.Pod{Namespace: p.GetNamespace(), Name: p.GetName(), UID: p.GetUid()}, Container: container, Verdict: *v}
	return refusal.Err().Error()
}

// TestDamagedRecordRefusesItsDevicesOnly: the device that no readable record explains may be that of the damaged one.
func TestDamagedRecordRefusesItsDevicesOnly(t *testing.T) {
	r, n := rules(), newNode(t)
	n.prepare("c1", "p1", "s1", nil, gpu())
	n.prepare("c2", "p2", "s2", nil, otherGPU())
	n.write("journal/c1.json", "{")
	with := func(d device) *api.Container {
		return plain(func(c *api.Container) { c.Linux.Devices = []*api.LinuxDevice{oci(d.nodes[0])} })
	}
	if refused := r.Container(n.table, n.kernel, pod("p2", "s2"), with(otherGPU()), nil); refused != nil {
		t.Errorf("container of another claim: %v", refused)
	}
	if _, refused := r.Sandbox(n.table, pod("p2", "s2")); refused != nil {
		t.Errorf("sandbox of another claim: %v", refused)
	}
	named := plain(func(c *api.Container) { c.CDIDevices = []*api.CDIDevice{{Name: "kata-vfio.dev/vfio=c1-x"}} })
	for what, c := range map[string]*api.Container{"node": with(gpu()), "CDI name": named} {
		if refused := r.Container(n.table, n.kernel, pod("p1", "s1"), c, nil); code(refused) != rule.Unverifiable {
			t.Errorf("container with the %s of the damaged claim: %v, want %q", what, refused, rule.Unverifiable)
		}
	}
}

package audit_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/candidatetest"
	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/writer"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/golden"
)

// bareNode is a board as its distribution, containerd and Kata were installed, before bootstrap. Its kernel drives no IOMMU.
type bareNode struct {
	*board.Tree
	aside string
}

func newBareNode(t *testing.T, b board.Board) *bareNode {
	t.Helper()
	n := &bareNode{b.Build(t), t.TempDir()}
	for _, name := range []string{"etc/containerd", "opt/kata", "etc/kata-containers", "var/lib/kata-vfio", "run/kata-vfio", "var/run/cdi", "run/cdi", "etc/cdi", "etc/systemd", "etc/modprobe.d", "etc/udev", "etc/modules-load.d"} {
		n.Delete(name)
	}
	for name, content := range map[string]string{
		"etc/os-release": "ID=debian\n", "etc/default/grub": "GRUB_CMDLINE_LINUX=\"\"\n", "boot/grub/grub.cfg": "x\n",
		"usr/sbin/grub-mkconfig": "default/grub.d\n", "usr/sbin/update-grub": "", "usr/lib/systemd/systemd": "", "run/systemd/system/.keep": "",
		"usr/bin/containerd": "", "usr/lib/systemd/system/containerd.service": "[Service]\nExecStart=/usr/bin/containerd\n", "etc/containerd/config.toml": "version = 3\n",
		"opt/kata/VERSION": "4.1.0\n", "opt/kata/bin/containerd-shim-kata-v2": "ELF", "opt/kata/libexec/virtiofsd": "ELF",
		"opt/kata/share/defaults/kata-containers/configuration-qemu-nvidia-gpu.toml": "[hypervisor.qemu]\ncold_plug_vfio = \"root-port\"\n" +
			"virtio_fs_daemon = \"/opt/kata/libexec/virtiofsd\"\n[agent.kata]\n[runtime]\n",
		"proc/cmdline": "root=/dev/sda1 quiet\n",
	} {
		n.Put(name, content)
	}
	n.evict()
	n.move(true)
	return n
}

// withoutSocket has the node's copy not vouch for the pod-resources socket, which only its systemd or its plugin makes.
func (n *bareNode) withoutSocket() {
	n.TB.Helper()
	kept := map[string]facts.Stat{}
	if err := json.Unmarshal([]byte(n.Text(facts.StatFile)), &kept); err != nil {
		n.TB.Fatal(err)
	}
	delete(kept, "/run/kata-vfio/pod-resources.sock")
	text, err := json.Marshal(kept)
	if err != nil {
		n.TB.Fatal(err)
	}
	n.Put(facts.StatFile, string(text))
}

// evict ends the VMs of the board's tenants, and leaves their functions without a driver.
func (n *bareNode) evict() {
	n.TB.Helper()
	for _, process := range n.glob("proc/[0-9]*") {
		if command, err := os.ReadFile(filepath.Join(process, "cmdline")); err == nil && strings.Contains(string(command), "qemu") {
			n.remove(process)
		}
	}
	for _, driver := range n.glob("sys/bus/pci/devices/*/driver") {
		if target, err := os.Readlink(driver); err != nil || filepath.Base(target) != "vfio-pci" {
			continue
		}
		uevent := filepath.Join(filepath.Dir(driver), "uevent")
		text, err := os.ReadFile(uevent)
		if err != nil {
			n.TB.Fatal(err)
		}
		if err := os.WriteFile(uevent, bytes.ReplaceAll(text, []byte("DRIVER=vfio-pci\n"), nil), 0o644); err != nil {
			n.TB.Fatal(err)
		}
		n.remove(driver)
	}
	for _, pattern := range []string{"dev/vfio/[0-9]*", "run/vc", "run/kata", "run/containerd/*/*"} {
		for _, name := range n.glob(pattern) {
			n.remove(name)
		}
	}
}

func (n *bareNode) glob(pattern string) []string {
	n.TB.Helper()
	found, err := filepath.Glob(n.Path(pattern))
	if err != nil {
		n.TB.Fatal(err)
	}
	return found
}

func (n *bareNode) remove(name string) {
	n.TB.Helper()
	if err := os.RemoveAll(name); err != nil {
		n.TB.Fatal(err)
	}
}

// move hides the IOMMU, as a kernel does that was started without it, or shows it again.
func (n *bareNode) move(away bool) {
	n.TB.Helper()
	for _, name := range []string{"sys/class/iommu", "sys/kernel/iommu_groups"} {
		from, to := n.Path(name), filepath.Join(n.aside, filepath.Base(name))
		if !away {
			from, to = to, from
		}
		if err := os.Rename(from, to); err != nil {
			n.TB.Fatal(err)
		}
	}
}

func (n *bareNode) open() *sysfs.FS {
	n.TB.Helper()
	fs, err := sysfs.Open(n.Root())
	if err != nil {
		n.TB.Fatal(err)
	}
	n.TB.Cleanup(func() { _ = fs.Close() })
	return fs
}

func options(t testing.TB) check.Options {
	t.Helper()
	profile, ok := finding.ProfileNamed("multi-tenant")
	if !ok {
		t.Fatal("no such profile")
	}
	return check.Options{Profile: profile, Today: "2026-11-25"}
}

func (n *bareNode) facts(fs *sysfs.FS) *facts.Node {
	n.TB.Helper()
	s, err := inventory.Scan(context.Background(), fs)
	if err != nil {
		n.TB.Fatal(err)
	}
	return facts.New(fs, s)
}

func (n *bareNode) audit() *finding.Report {
	n.TB.Helper()
	r := check.Run(n.facts(n.open()), checks(n.TB), options(n.TB))
	r.Subject = finding.Subject{Kind: "node", Name: "gpu-07", Time: "2026-11-25T08:00:00Z", Kernel: "6.12.0"}
	return r
}

func (n *bareNode) judge(b *blueprint.Blueprint) *audit.Candidate {
	n.TB.Helper()
	fs := n.open()
	plan, err := bootstrap.ReadOnly(fs).Plan(n.TB.Context(), b)
	if err != nil {
		n.TB.Fatal(err)
	}
	node := &audit.CandidateNode{FS: fs, Snapshot: n.facts(fs).Snapshot, Report: n.audit(), Checks: checks(n.TB), Plan: plan, Blueprint: "the default"}
	return audit.JudgeCandidate(context.Background(), node, options(n.TB), rule.High)
}

// done are tools that do nothing: the boot is played by [bareNode.boot].
type done struct{}

func (done) Run(context.Context, []string) error { return nil }

// apply is bootstrap's apply on the tree.
func (n *bareNode) apply() {
	n.TB.Helper()
	files, err := writer.OpenDisk(n.Root())
	if err != nil {
		n.TB.Fatal(err)
	}
	defer files.Close()
	attributes, err := control.NewWriter(n.Root())
	if err != nil {
		n.TB.Fatal(err)
	}
	defer attributes.Close()
	e := &bootstrap.Engine{Root: n.Root(), Live: true, Tree: n.open(), Files: files, Attributes: attributes, Tools: done{}, Parts: bootstrap.Parts(), Now: time.Now}
	if _, err := e.Apply(context.Background(), blueprint.Default(), ""); err != nil {
		n.TB.Fatal(err)
	}
}

// boot starts the kernel as bootstrap set the boot loader up.
func (n *bareNode) boot() {
	n.TB.Helper()
	if settings := n.Text("etc/default/grub.d/zz-kata-vfio.cfg"); !strings.Contains(settings, "intel_iommu=on") || !strings.Contains(settings, "iommu=nopt") {
		n.TB.Fatal("the boot loader would not switch the IOMMU on")
	}
	n.Put("proc/cmdline", "root=/dev/sda1 quiet intel_iommu=on iommu=nopt\n")
	n.Put("proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n")
	n.move(false)
}

// TestCandidateMatchesTheAuditAfterBootstrap audits a bare node, runs bootstrap, and audits again.
func TestCandidateMatchesTheAuditAfterBootstrap(t *testing.T) {
	for _, b := range board.All() {
		if b.Name != "server" && b.Name != "hgx" {
			continue
		}
		t.Run(b.Name, func(t *testing.T) {
			n := newBareNode(t, b)
			n.SetParameter("vfio_iommu_type1", "allow_unsafe_interrupts", "Y")
			c := n.judge(blueprint.Default())
			n.apply()
			n.boot()
			for _, violation := range candidatetest.Violations(c, n.audit()) {
				t.Error(violation)
			}
			said := candidatetest.Said(c)
			for id, want := range map[string]string{"IOM-001": "repaired", "IOM-006": "repaired", "IOM-013": "repaired", "IOM-026": "open", "RT-010": "remaining"} {
				if said[id] != want {
					t.Errorf("%s is %q, want %q", id, said[id], want)
				}
			}
			for part, id := range map[string]string{"kernel": "IOM-001", "modules": "IOM-006"} {
				if !slices.ContainsFunc(c.Changes, func(change audit.CandidateChange) bool {
					return change.Part == part && slices.Contains(change.Repairs, id)
				}) {
					t.Errorf("%s does not repair %s: %+v", part, id, c.Changes)
				}
			}
			if c.Verdict != audit.AfterReboot {
				t.Errorf("the node is %s", c.Verdict)
			}
		})
	}
}

func TestCandidateIsWritten(t *testing.T) {
	n := newBareNode(t, board.All()[0])
	c := n.judge(blueprint.Default())
	for name, o := range map[string]audit.CandidateOptions{"table": {}, "narrow": {Width: 60, Show: rule.Medium}} {
		var text bytes.Buffer
		if err := audit.WriteCandidate(&text, c, "table", o); err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, "candidate-"+name+".txt", text.String())
		for line := range strings.Lines(text.String()) {
			if utf8.RuneCountInString(line) > cmp.Or(o.Width, output.PageWidth)+1 && len(strings.Fields(line)) > 4 { // a label and one long word, which is not broken
				t.Errorf("%s: too long: %s", name, line)
			}
		}
	}
	for _, format := range []string{"json", "yaml"} {
		var text bytes.Buffer
		if err := audit.WriteCandidate(&text, c, format, audit.CandidateOptions{}); err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, "candidate-server."+format, text.String())
	}
}

// TestCandidateKeepsTheLinesOfAFix: a MachineConfig is copied from it.
func TestCandidateKeepsTheLinesOfAFix(t *testing.T) {
	n := newBareNode(t, board.All()[0])
	n.Put("etc/os-release", "NAME=\"Red Hat Enterprise Linux CoreOS\"\nID=rhcos\n")
	var text bytes.Buffer
	if err := audit.WriteCandidate(&text, n.judge(blueprint.Default()), "table", audit.CandidateOptions{Width: 80}); err != nil {
		t.Fatal(err)
	}
	const want = `
         kind: MachineConfig
         spec:
           kernelArguments:
           - intel_iommu=on
`
	if !strings.Contains(text.String(), want) || strings.Contains(text.String(), `\n`) {
		t.Errorf("want lines\n%s\ngot\n%s", want, text.String())
	}
}

// TestCandidateVerdicts plants what bootstrap can and can't change.
func TestCandidateVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		plant   func(*bareNode)
		verdict audit.CandidateVerdict
		said    map[string]string
		refused string
	}{
		"the firmware has no IOMMU": {
			func(n *bareNode) { n.Delete("sys/firmware/acpi/tables/DMAR") }, audit.Unfit,
			map[string]string{"IOM-001": "remaining", "IOM-002": "remaining"},
			"the kernel has no IOMMU",
		},
		"a file contradicts the blueprint": {
			func(n *bareNode) { n.Put("etc/modprobe.d/x.conf", "options vfio_pci disable_denylist=Y\n") }, audit.Unfit,
			map[string]string{"IOM-001": "repaired"},
			"disable_denylist",
		},
		"Kata is not installed": {
			func(n *bareNode) { n.Delete("opt/kata") }, audit.Unfit, map[string]string{"IOM-001": "repaired"}, "is not installed",
		},
		"the kernel's mitigations are off": {
			func(n *bareNode) { n.Put("proc/cmdline", "root=/dev/sda1 mitigations=off\n") }, audit.Unfit, map[string]string{"HOST-005": "remaining"}, "",
		},
		"nothing has made the pod-resources socket": {
			(*bareNode).withoutSocket, audit.AfterReboot, map[string]string{"RT-004": ""}, "",
		},
		"nothing makes the pod-resources socket": {
			func(n *bareNode) { n.withoutSocket(); n.Delete("usr/lib/systemd"); n.Delete("run/systemd") }, audit.Unfit, map[string]string{"RT-004": "remaining"}, "",
		},
		"only the reboot is missing": {
			func(n *bareNode) { n.apply() }, audit.AfterReboot, map[string]string{"IOM-001": "repaired"}, "",
		},
		"bootstrap is done": {
			func(n *bareNode) { n.apply(); n.boot() }, audit.Fit, map[string]string{"IOM-001": ""}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newBareNode(t, board.All()[0])
			c.plant(n)
			got := n.judge(blueprint.Default())
			if got.Verdict != c.verdict {
				t.Errorf("the node is %q, want %q: %+v", got.Verdict, c.verdict, got.Failing())
			}
			for id, want := range c.said {
				if said := candidatetest.Said(got)[id]; said != want {
					t.Errorf("%s is %q, want %q", id, said, want)
				}
			}
			refused := slices.ContainsFunc(got.Refusals, func(p state.Problem) bool { return c.refused != "" && strings.Contains(p.Text, c.refused) })
			if refused != (c.refused != "") || len(got.Refusals) > 0 != refused {
				t.Errorf("refusals %+v", got.Refusals)
			}
		})
	}
}

// TestCandidateOfPassthroughStaysUntranslated: the blueprint decides the groups' domains.
func TestCandidateOfPassthroughStaysUntranslated(t *testing.T) {
	b := blueprint.Default()
	b.Kernel.IOMMU = blueprint.IOMMUPassthrough
	if said := candidatetest.Said(newBareNode(t, board.All()[0]).judge(b)); said["IOM-001"] != "repaired" || said["IOM-014"] == "repaired" {
		t.Errorf("said %v", said)
	}
}

// checks returns all checks of a node.
func checks(tb testing.TB) []check.Check {
	tb.Helper()
	all, err := check.Catalogue()
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

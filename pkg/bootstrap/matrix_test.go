package bootstrap_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

func parse(t *testing.T, fields string) *blueprint.Blueprint {
	t.Helper()
	b, err := blueprint.Parse([]byte("apiVersion: bootstrap.kata-vfio.dev/v1alpha1\nkind: NodeBlueprint\n" + fields))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A node's life on each distribution, with each boot loader under each container runtime and Kata: what is planned is applied, once; a reboot
// brings it about; what is reverted is as before, to the byte, with what tools have made.
func TestMatrixOfDistributions(t *testing.T) {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DISTRIBUTION\tBOOT LOADER\tCONTAINER RUNTIME\tKATA\tPLAN\tAPPLY\tAGAIN\tREBOOT\tVERIFY\tREVERT\tAFTER REVERT")
	for i, d := range distributions() {
		for _, c := range enginesOf(i) {
			t.Run(d.name+"/"+c.name+"/"+c.kata, func(t *testing.T) {
				n := newNode(t, d.files, c.files)
				n.put("proc/cmdline", n.tools.commandLine(t)+"\n")
				fmt.Fprintln(w, strings.Join(append([]string{d.name, string(d.loader), c.name, c.kata}, n.life(&d, &c)...), "\t"))
			})
		}
	}
	_ = w.Flush()
	t.Logf("\n%s", table.String())
}

func (n *node) life(d *distribution, c *engine) []string {
	n.t.Helper()
	b := parse(n.t, "kernel: {hugePages: [{size: 1Gi, count: 4}], arguments: [efi=disable_early_pci_dma]}\n")
	b.Containers = c.options
	before := n.snapshot()
	p := n.plan(b)
	n.same(before, "after plan")
	n.expect(p, bootstrap.ChangesNeeded, "plan")
	if !slices.ContainsFunc(p.Facts, func(f state.Fact) bool { return f.Name == "boot loader" && f.Value == string(d.loader) }) {
		n.t.Errorf("facts %+v, want the boot loader %s", p.Facts, d.loader)
	}
	row := []string{fmt.Sprintf("%d files", len(p.Files))}

	r := n.apply(b)
	if !r.Reboot || len(r.Changed) != len(p.Files) {
		n.t.Errorf("apply changed %d of %d files, reboot %t", len(r.Changed), len(p.Files), r.Reboot)
	}
	n.done("apply", r)
	after := n.snapshot()
	n.expect(n.plan(b), bootstrap.RebootNeeded, "after apply")
	n.auditSees(d)
	n.runtimeHas(c)
	again := n.apply(b)
	if len(again.Changed)+len(again.Steps) > 0 {
		n.t.Errorf("apply again changed %v, ran %v", again.Changed, again.Steps)
	}
	n.same(after, "after apply again")
	row = append(row, fmt.Sprintf("%d changed, %d tools", len(r.Changed), len(n.tools.ran)), "nothing")

	n.reboot()
	for _, word := range arguments(d) {
		if !kernelargs.Has(n.read("proc/cmdline"), word) {
			n.t.Errorf("the kernel was started without %s: %s", word, n.read("proc/cmdline"))
		}
	}
	n.expect(n.plan(b), bootstrap.Fit, "after reboot")
	row = append(row, "arguments there", "fit")

	r = n.revert()
	if len(r.Kept) > 0 {
		n.t.Errorf("revert kept %v", r.Kept)
	}
	n.done("revert", r)
	n.same(before, "after revert")
	status, err := n.engine().Status()
	if err != nil || len(status.Files) > 0 {
		n.t.Errorf("status after revert: %v, %v", status, err)
	}
	return append(row, fmt.Sprintf("%d files", len(r.Changed)), map[bool]string{false: "byte for byte", true: "FAILED"}[n.t.Failed()])
}

// done checks the status of each change in a result: scripts read it.
func (n *node) done(command string, r *bootstrap.Result) {
	n.t.Helper()
	for i := range r.Changed {
		if f := &r.Changed[i]; f.Status != bootstrap.Done {
			n.t.Errorf("%s: /%s has the status %q, want %q", command, f.Path, f.Status, bootstrap.Done)
		}
	}
	for i := range r.Settings {
		if s := &r.Settings[i]; s.Status != bootstrap.Done {
			n.t.Errorf("%s: the setting /%s has the status %q, want %q", command, s.Path, s.Status, bootstrap.Done)
		}
	}
}

// auditSees has the audit find what the next boot brings, so that it tells "fixed on
// disk, reboot pending". It does not read Flatcar's file.
func (n *node) auditSees(d *distribution) {
	n.t.Helper()
	if d.loader == host.Flatcar {
		return
	}
	tree, err := sysfs.Open(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	seen := facts.New(tree, &device.Snapshot{})
	for _, word := range arguments(d) {
		name, value, _ := strings.Cut(word, "=")
		if !slices.ContainsFunc(seen.NextArguments(name), func(a facts.Argument) bool { return a.Value == value }) {
			n.t.Errorf("the audit does not see %s: %+v", word, seen.NextArguments(name))
		}
	}
	option := seen.Parameter("vfio_pci", "disable_denylist")
	if next, ok := option.Next(); !ok || next != "N" {
		n.t.Errorf("the audit sees disable_denylist=%s", next)
	}
}

// runtimeHas has the audit find our handler, of the Kata that was asked for, beside the site's own.
func (n *node) runtimeHas(c *engine) {
	n.t.Helper()
	tree, err := sysfs.Open(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = tree.Close() }()
	r := runtimes.Of(facts.New(tree, &device.Snapshot{}))
	i := slices.IndexFunc(r.Handlers, func(h runtimes.Handler) bool { return h.Name == "kata-gpu" })
	if nic := slices.ContainsFunc(r.Handlers, func(h runtimes.Handler) bool { return h.Name == "kata-vfio" }); nic != c.options.NICHandler {
		n.t.Errorf("the audit sees the handlers %+v; kata-vfio among them: %t", r.Handlers, nic)
	}
	if len(r.Damaged) > 0 || i < 0 || len(r.Handlers) < 2 || r.Handlers[i].IsRust() != (c.options.Kata == blueprint.FlavorRust) {
		n.t.Errorf("the audit sees the handlers %+v, damaged %+v", r.Handlers, r.Damaged)
	}
}

func (n *node) expect(p *bootstrap.Plan, want bootstrap.Outcome, when string) {
	n.t.Helper()
	if got := p.Outcome(); got != want {
		n.t.Errorf("%s: %s, want %s: %+v %+v %+v", when, got, want, p.Problems, p.Settings, p.Steps)
	}
}

// Tools that talk to a daemon fail where it does not run, as in a container.
func TestDaemonThatDoesNotRunIsNotTold(t *testing.T) {
	n := newNode(t, distributions()[14].files)
	n.put("proc/cmdline", "ro\n")
	n.remove("run/systemd", "run/udev")
	n.apply(blueprint.Default())
	if slices.ContainsFunc(n.tools.ran, func(c string) bool { return strings.HasPrefix(c, "systemctl") || strings.HasPrefix(c, "udevadm") }) {
		t.Errorf("ran %v", n.tools.ran)
	}
}

func TestMatrixWithoutSystemd(t *testing.T) {
	n := newNode(t, files("extlinux"))
	n.put("proc/cmdline", "ro\n")
	n.remove("usr/lib/systemd/systemd", "run/systemd")
	r := n.apply(blueprint.Default())
	if slices.ContainsFunc(n.tools.ran, func(c string) bool { return strings.HasPrefix(c, "systemctl") }) {
		t.Errorf("ran %v", n.tools.ran)
	}
	if !slices.ContainsFunc(r.Plan.Problems, func(p state.Problem) bool { return strings.HasPrefix(p.Text, "the node has no systemd") }) {
		t.Errorf("problems %+v", r.Plan.Problems)
	}
}

// Of an image nothing runs: the tools are left to do, and it is as it was after revert.
func TestMatrixOfImages(t *testing.T) {
	for _, d := range distributions() {
		t.Run(d.name, func(t *testing.T) {
			n := newNode(t, d.files)
			n.image = true
			b := blueprint.Default()
			before := n.snapshot()
			r := n.apply(b)
			if len(r.Changed) == 0 || len(r.Settings) > 0 || len(n.tools.ran) > 0 {
				t.Errorf("changed %v, set %v, ran %v", r.Changed, r.Settings, n.tools.ran)
			}
			n.expect(n.plan(b), bootstrap.Fit, "after apply")
			n.revert()
			n.same(before, "after revert")
		})
	}
}

// An image that was made ready knows nothing of the processor that it is booted on.
func TestImageIsFitOnEveryProcessor(t *testing.T) {
	n := newNode(t, files("Debian 12"))
	n.image = true
	n.apply(blueprint.Default())
	n.image = false
	n.put("proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu svm\n")
	n.remove("sys/firmware/acpi/tables/DMAR")
	n.put("sys/firmware/acpi/tables/IVRS", "IVRS"+strings.Repeat("\x00", 60))
	n.put("proc/cmdline", "ro intel_iommu=on iommu=nopt\n")
	n.apply(blueprint.Default()) // runs what was left to do
	n.expect(n.plan(blueprint.Default()), bootstrap.Fit, "on AMD")
}

func TestUnknownBootLoaderIsToldInWords(t *testing.T) {
	n := newNode(t, with(map[string]string{"etc/os-release": osRelease("other", "1", ""), "proc/cmdline": "root=/dev/nfs\n"}))
	_, err := n.engine().Apply(t.Context(), blueprint.Default(), "")
	if err == nil || !strings.Contains(err.Error(), "add to the kernel command line, then reboot: intel_iommu=on iommu=nopt") {
		t.Errorf("error %v", err)
	}
	n.put("proc/cmdline", "root=/dev/nfs intel_iommu=on iommu=nopt\n")
	n.apply(blueprint.Default())
	n.expect(n.plan(blueprint.Default()), bootstrap.Fit, "with the arguments from elsewhere")
}

// arguments are what the blueprint of [node.life] asks of the kernel.
func arguments(d *distribution) []string {
	words := []string{"hugepagesz=1G", "hugepages=4", "efi=disable_early_pci_dma"}
	if strings.Contains(d.name, "arm64") {
		return append(words, "iommu.passthrough=0")
	}
	return append(words, "intel_iommu=on", "iommu=nopt")
}

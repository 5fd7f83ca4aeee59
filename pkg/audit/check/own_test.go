package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// ownCatalogue has the product's rules, and one with the settings.
func ownCatalogue(t *testing.T, settings string) *rule.Catalogue {
	t.Helper()
	c, err := rule.ReadCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	const head = "rules:\n- {id: ORG-001, title: Ensure that it is set, severity: critical, why: Because., fix: set it, settings: ["
	if err := c.AddOwn("rules.yaml", []byte(head+settings+"]}\n")); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestOwnRules: settings of each kind, as they are, as they will be after the next boot, and where the node lacks them.
func TestOwnRules(t *testing.T) {
	const restrict, boot, generated = "proc/sys/kernel/dmesg_restrict", "etc/default/grub", "boot/grub/grub.cfg"
	sysctl := func(value string) func(*board.Tree) { return func(t *board.Tree) { t.Put(restrict, value) } }
	nested := func(value string) func(*board.Tree) {
		return func(t *board.Tree) { t.SetParameter("kvm_intel", "nested", value) }
	}
	booted := func(arguments string) func(*board.Tree) { return func(t *board.Tree) { t.Boot(arguments) } }
	put := func(name, content string) func(*board.Tree) { return func(t *board.Tree) { t.Put(name, content) } }
	both := func(all ...func(*board.Tree)) func(*board.Tree) {
		return func(t *board.Tree) {
			for _, plant := range all {
				plant(t)
			}
		}
	}
	none := func(*board.Tree) {}
	for about, c := range map[string]struct {
		settings string
		plant    func(*board.Tree)
		state    finding.State
		text     string
	}{
		"a sysctl":                         {`{sysctl: kernel.dmesg_restrict, values: ["1"]}`, sysctl("1\n"), finding.Pass, "kernel.dmesg_restrict=1"},
		"another value":                    {`{sysctl: kernel.dmesg_restrict, values: ["1", "2"]}`, sysctl("0\n"), finding.Fail, "kernel.dmesg_restrict is 0; want 1 or 2"},
		"numbers":                          {`{sysctl: kernel.dmesg_restrict, values: ["4 4 1 7"]}`, sysctl("4\t4\t1\t7\n"), finding.Pass, "kernel.dmesg_restrict=4\t4\t1\t7"},
		"another one after the boot":       {`{sysctl: kernel.dmesg_restrict, values: ["1"]}`, func(t *board.Tree) { t.Put("etc/sysctl.d/zz.conf", "kernel.dmesg_restrict=0\n") }, finding.Fail, "correct now, but /etc/sysctl.d/zz.conf sets kernel.dmesg_restrict=0 for the next boot; want 1"},
		"a longer number after the boot":   {`{sysctl: kernel.dmesg_restrict, values: ["1"]}`, put("etc/sysctl.d/zz.conf", "kernel.dmesg_restrict=10\n"), finding.Fail, "correct now, but /etc/sysctl.d/zz.conf sets kernel.dmesg_restrict=10 for the next boot; want 1"},
		"numbers after the boot":           {`{sysctl: kernel.dmesg_restrict, values: ["4 4 1 7"]}`, both(sysctl("4\t4\t1\t7\n"), put("etc/sysctl.d/zz.conf", "kernel.dmesg_restrict=4\t4 1  7\n")), finding.Pass, "kernel.dmesg_restrict=4\t4\t1\t7"},
		"a longer number in modprobe.d":    {`{parameter: kvm_intel.nested, values: ["1"]}`, both(nested("1"), put("etc/modprobe.d/zz.conf", "options kvm_intel nested=10\n")), finding.Fail, "correct now, but /etc/modprobe.d/zz.conf sets kvm_intel.nested=10 for the next boot; want 1"},
		"no boolean in modprobe.d":         {`{parameter: kvm_intel.nested, values: [N]}`, both(nested("N"), put("etc/modprobe.d/zz.conf", "options kvm_intel nested=never\n")), finding.Fail, "correct now, but /etc/modprobe.d/zz.conf sets kvm_intel.nested=never for the next boot; want N"},
		"a boolean's word in modprobe.d":   {`{parameter: kvm_intel.nested, values: [N]}`, both(nested("N"), put("etc/modprobe.d/zz.conf", "options kvm_intel nested=off\n")), finding.Pass, "nested=N"},
		"no sysctl":                        {`{sysctl: kernel.dmesg_restricted, values: ["1"]}`, none, finding.Fail, "the node has no sysctl kernel.dmesg_restricted, or the name is wrong; want 1"},
		"no sysctl, accepted":              {`{sysctl: kernel.dmesg_restricted, values: ["1"], absent: accept}`, none, finding.NotApplicable, "the kernel was built without kernel.dmesg_restricted"},
		"a boolean":                        {`{parameter: kvm-intel.nested, values: ["0"]}`, nested("N"), finding.Pass, "nested=N"},
		"another boolean":                  {`{parameter: kvm_intel.nested, values: [N]}`, nested("Y"), finding.Fail, "kvm_intel.nested is Y; want N"},
		"a word that is no boolean":        {`{parameter: kvm_intel.nested, values: ["0"]}`, nested("never"), finding.Fail, "kvm_intel.nested is never; want 0"},
		"no module":                        {`{parameter: kvm_intl.nested, values: ["0"]}`, none, finding.Fail, "the node has no parameter kvm_intl.nested, or the name is wrong; want 0"},
		"no module, accepted":              {`{parameter: kvm_intl.nested, values: ["0"], absent: accept}`, none, finding.NotApplicable, "the node has no parameter kvm_intl.nested"},
		"an argument":                      {`{argument: mitigations, values: ["auto,nosmt"]}`, booted("mitigations=auto,nosmt"), finding.Pass, "arguments mitigations=auto,nosmt"},
		"another argument":                 {`{argument: mitigations, values: ["auto,nosmt"]}`, booted("mitigations=off"), finding.Fail, "/proc/cmdline sets mitigations=off, which is another value; want auto,nosmt"},
		"one of two":                       {`{argument: mitigations, values: [auto]}`, booted("mitigations=off mitigations=auto"), finding.Fail, "/proc/cmdline sets mitigations=off, which is another value; want auto"},
		"no argument":                      {`{argument: mitigations, values: [auto]}`, none, finding.Fail, "the kernel was booted without the argument mitigations; want auto"},
		"no argument before the reboot":    {`{argument: mitigations, values: [auto]}`, put(boot, "GRUB_CMDLINE_LINUX=\"mitigations=auto\"\n"), finding.Fail, "the kernel was booted without the argument mitigations; want auto"},
		"lost with the reboot":             {`{argument: mitigations, values: [auto]}`, both(booted("mitigations=auto"), put(boot, "GRUB_CMDLINE_LINUX=\"quiet\"\n")), finding.Fail, "correct now, but the next boot is without the argument mitigations: it is not in /etc/default/grub; want auto"},
		"not generated yet":                {`{argument: mitigations, values: [auto]}`, both(put(boot, "GRUB_CMDLINE_LINUX=\"mitigations=auto\"\n"), put(generated, "linux /vmlinuz quiet\n")), finding.Fail, "the kernel was booted without the argument mitigations; want auto"},
		"removed, not generated yet":       {`{argument: mitigations, values: [auto]}`, both(booted("mitigations=auto"), put(boot, "GRUB_CMDLINE_LINUX=\"\"\n"), put(generated, "linux /vmlinuz mitigations=auto\n")), finding.Pass, "arguments mitigations=auto"},
		"kept in the settings only":        {`{argument: mitigations, values: [auto]}`, both(booted("mitigations=auto"), put(boot, "GRUB_CMDLINE_LINUX=\"mitigations=auto\"\n"), put(generated, "linux /vmlinuz quiet\n")), finding.Fail, "correct now, but the next boot is without the argument mitigations: it is not in /boot/grub/grub.cfg; want auto"},
		"not in one of two entries":        {`{argument: mitigations, values: [auto]}`, both(booted("mitigations=auto"), put("boot/loader/entries/a.conf", "options mitigations=auto\n"), put("boot/loader/entries/b.conf", "options quiet\n")), finding.Fail, "correct now, but the next boot is without the argument mitigations: it is not in /boot/loader/entries/b.conf; want auto"},
		"by a variable of the environment": {`{argument: mitigations, values: [auto]}`, both(booted("mitigations=auto"), put("boot/grub2/grubenv", "kernelopts=quiet mitigations=auto\n"), put("boot/loader/entries/a.conf", "options $kernelopts\n")), finding.Pass, "arguments mitigations=auto"},
		"lost, but accepted":               {`{argument: mitigations, values: [auto], absent: accept}`, both(booted("mitigations=auto"), put(boot, "GRUB_CMDLINE_LINUX=\"\"\n")), finding.Pass, "arguments mitigations=auto"},
		"no file of a boot loader":         {`{argument: mitigations, values: [auto]}`, booted("mitigations=auto"), finding.Pass, "arguments mitigations=auto (in this boot; no file of a boot loader was found, so that the next one is not known)"},
		"no argument, accepted":            {`{argument: mitigations, values: [auto], absent: accept}`, none, finding.Pass, "no argument mitigations"},
		"a word without a value":           {`{argument: nosmt, values: [""]}`, booted("nosmt"), finding.Pass, "arguments nosmt"},
		"a forbidden word":                 {`{argument: iommu, forbidden: [pt]}`, booted("iommu=force,pt"), finding.Fail, "/proc/cmdline sets iommu=force,pt, which is forbidden"},
		"an argument that is forbidden":    {`{argument: nokaslr, forbidden: ["*"]}`, booted("nokaslr"), finding.Fail, "/proc/cmdline sets nokaslr, which is forbidden"},
		"no forbidden word":                {`{argument: nokaslr, forbidden: ["*"]}`, none, finding.Pass, "no argument nokaslr"},
		"unreadable":                       {`{sysctl: kernel.dmesg_restrict, values: ["1"]}`, func(t *board.Tree) { t.Delete(restrict); t.Put(restrict+"/x", "") }, finding.Unknown, "can't tell kernel.dmesg_restrict: "},
		"one of two settings":              {`{sysctl: kernel.dmesg_restrict, values: ["1"]}, {argument: iommu, values: [nopt]}`, none, finding.Fail, "the kernel was booted without the argument iommu; want nopt"},
	} {
		t.Run(about, func(t *testing.T) {
			tree := board.Server(t)
			c.plant(tree)
			asked, err := check.Of(ownCatalogue(t, c.settings))
			if err != nil {
				t.Fatal(err)
			}
			asked = slices.DeleteFunc(asked, func(c check.Check) bool { return c.ID != "ORG-001" })
			fsys, s := tree.Read()
			found := check.Run(facts.New(fsys, s), asked, check.Options{Profile: finding.Profiles()[0], Today: "2026-11-22"}).Findings
			if len(found) != 1 {
				t.Fatalf("%d findings, want one: %+v", len(found), found)
			}
			f := &found[0]
			if f.State != c.state || !strings.HasPrefix(f.Text, c.text) || f.ID != "ORG-001" || f.Severity != rule.Critical {
				t.Errorf("got %s %s %s: %s\nwant %s: %s", f.ID, f.Severity, f.State, f.Text, c.state, c.text)
			}
			hasEvidence(t, f)
		})
	}
}

// TestOwnRulesRefuseNoClaim: the plugin asks no rule of an organization, whatever its severity is.
func TestOwnRulesRefuseNoClaim(t *testing.T) {
	all, err := check.Of(ownCatalogue(t, `{argument: mitigations, values: [auto]}`))
	if err != nil {
		t.Fatal(err)
	}
	isOwn := func(c check.Check) bool { return c.Rule.Group() == rule.OwnGroup }
	if !slices.ContainsFunc(all, isOwn) {
		t.Error("the audit does not ask the rule, want it to")
	}
	if slices.ContainsFunc(check.Checks(all), isOwn) {
		t.Error("the plugin asks the rule, want it not to")
	}
}

package rule_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const kexec = `rules:
  - id: ORG-001
    title: Ensure that root can't start another kernel
    severity: high
    why: It would boot without the checks of Secure Boot.
    fix: put kernel.kexec_load_disabled=1 into /etc/sysctl.d
    settings:
      - sysctl: kernel.kexec_load_disabled
        values: ["1"]
`

func TestOwnRuleIsAdded(t *testing.T) {
	c := catalogue(t)
	nodes, all := len(c.OfNodes()), len(c.Rules)
	if err := c.AddOwn("a.yaml", []byte(kexec)); err != nil {
		t.Fatal(err)
	}
	if got := c.OfNodes(); len(got) != nodes+1 || got[nodes].ID != "ORG-001" || len(c.Rules) != all+1 {
		t.Errorf("%d rules of nodes and %d in all, the last of nodes %s; want %d, %d and ORG-001", len(got), len(c.Rules), got[len(got)-1].ID, nodes+1, all+1)
	}
	r, ok := c.Rule("ORG-001")
	if !ok || r.Cheap || r.Verify != "sysctl kernel.kexec_load_disabled" {
		t.Errorf("got %+v, want a rule that the plugin does not ask, with a command", r)
	}
	want := []rule.Setting{{Kind: rule.Sysctl, Name: "kernel.kexec_load_disabled", Values: []string{"1"}}}
	if diff := cmp.Diff(want, c.Own[0].Rule.Settings); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if f := c.Files[0]; f.Name != "a.yaml" || len(f.SHA256) != 64 || !slices.Equal(f.Rules, []string{"ORG-001"}) {
		t.Errorf("file %+v, want a.yaml with its hash and ORG-001", f)
	}
	err := c.AddOwn("b.yaml", []byte("\n"+kexec))
	if want := "b.yaml: line 3: id: ORG-001 is a rule of a.yaml line 2 already"; err == nil || err.Error() != want {
		t.Errorf("the same ID in another file: error %v, want %q", err, want)
	}
	if len(c.Own) != 1 {
		t.Errorf("%d own rules after an error, want the one before it", len(c.Own))
	}
}

// TestOwnRulesAreRefused: an error has the file, the line and the field.
func TestOwnRulesAreRefused(t *testing.T) {
	edit := func(old, replacement string) string {
		if !strings.Contains(kexec, old) {
			t.Fatalf("the rule has no %q", old)
		}
		return strings.Replace(kexec, old, replacement, 1)
	}
	setting := func(lines string) string {
		return edit("      - sysctl: kernel.kexec_load_disabled\n        values: [\"1\"]\n", lines)
	}
	for about, c := range map[string]struct{ content, want string }{
		"an empty file":          {"# nothing\n", "f.yaml: the file is empty; want `rules:` with a list below it"},
		"an empty list":          {"rules: []\n", "f.yaml: line 1: rules: want a list of one rule or more"},
		"no list":                {"rules:\n", "f.yaml: line 1: rules: want a list of one rule or more"},
		"another top":            {"waivers: []\n", "f.yaml: line 1: want `rules:` with a list below it, and nothing else"},
		"two documents":          {kexec + "---\n" + kexec, "f.yaml: want one document only: rules of another one would never be asked"},
		"no YAML":                {"rules: [\n", "f.yaml: line 1: did not find expected node content"},
		"a rule of the product":  {edit("ORG-001", "IOM-003"), "f.yaml: line 2: IOM-003: id: want ORG-001 to ORG-999: all other IDs are those of kata-vfio"},
		"no number":              {edit("ORG-001", "ORG-000"), "f.yaml: line 2: ORG-000: id: want ORG-001 to ORG-999: all other IDs are those of kata-vfio"},
		"twice the same rule":    {kexec + strings.TrimPrefix(kexec, "rules:\n"), "f.yaml: line 10: ORG-001: id: ORG-001 is the rule of line 2 already"},
		"an unknown field":       {edit("severity: high", "severity: high\n    cheap: true"), "f.yaml: line 5: rules[0]: unknown field \"cheap\"; want one of id, title, severity, why, fix, verify, sources, settings"},
		"no ID":                  {edit("id: ORG-001", "severity: low"), "f.yaml: line 4: rules[0]: severity is given twice; f.yaml: line 2: rules[0].id: it is missing"},
		"no reason":              {edit("    why: It would boot without the checks of Secure Boot.\n", ""), "f.yaml: line 2: ORG-001: why: it is missing"},
		"another severity":       {edit("high", "urgent"), "f.yaml: line 4: ORG-001: severity: want one of [critical high medium low info], not \"urgent\""},
		"a list for a text":      {edit("title: Ensure that root can't start another kernel", "title: [a]"), "f.yaml: line 3: ORG-001: title: want a text, not a list"},
		"no setting":             {setting(""), "f.yaml: line 7: ORG-001: settings: want a list of one setting or more, not nothing"},
		"a number":               {edit(`["1"]`, "[1]"), "f.yaml: line 9: ORG-001: settings[0].values[0]: want a text, not the number 1: put it in quotes"},
		"a boolean":              {edit(`["1"]`, "[true]"), "f.yaml: line 9: ORG-001: settings[0].values[0]: want a text, not the boolean true: put it in quotes"},
		"a value without a list": {edit(`["1"]`, `"1"`), "f.yaml: line 9: ORG-001: settings[0].values: want a list of one text or more, such as [\"1\"], not \"1\""},
		"no value":               {edit(`["1"]`, "[]"), "f.yaml: line 9: ORG-001: settings[0].values: want a list of one text or more, such as [\"1\"], not an empty list"},
		"a misspelled setting":   {edit("sysctl:", "sysctrl:"), "f.yaml: line 8: ORG-001: settings[0]: unknown field \"sysctrl\"; want one of sysctl, parameter, argument, values, forbidden, absent; f.yaml: line 8: ORG-001: settings[0]: want one of sysctl, parameter and argument"},
		"two settings in one":    {edit("values:", "argument: iommu\n        values:"), "f.yaml: line 8: ORG-001: settings[0]: want one of sysctl, parameter and argument, not both sysctl and argument"},
		"a path":                 {edit("kernel.kexec_load_disabled\n        v", "../../etc/shadow\n        v"), "f.yaml: line 8: ORG-001: settings[0].sysctl: want a name with dots, such as kernel.dmesg_restrict, not \"../../etc/shadow\""},
		"a network's sysctl":     {edit("kernel.kexec_load_disabled\n        v", "net.ipv4.ip_forward\n        v"), "f.yaml: line 8: ORG-001: settings[0].sysctl: net.ipv4.ip_forward belongs to a namespace of Linux: each pod, also the audit's, has its own value"},
		"no module":              {setting("      - {parameter: nested, values: [N]}\n"), "f.yaml: line 8: ORG-001: settings[0].parameter: want module and parameter with a dot between, such as vfio_pci.disable_idle_d3, not \"nested\""},
		"an argument with value": {setting("      - {argument: iommu=pt, forbidden: [pt]}\n"), "f.yaml: line 8: ORG-001: settings[0].argument: want the name of an argument without its value, such as iommu, not \"iommu=pt\""},
		"both lists":             {setting("      - {argument: iommu, forbidden: [pt], values: [nopt]}\n"), "f.yaml: line 8: ORG-001: settings[0].forbidden: want values or forbidden, not both: all but the values are bad already"},
		"neither list":           {setting("      - {argument: iommu}\n"), "f.yaml: line 8: ORG-001: settings[0].values: it is missing: list the good values in values, or the bad ones in forbidden"},
		"a forbidden sysctl":     {edit("values", "forbidden"), "f.yaml: line 9: ORG-001: settings[0].forbidden: only an argument has forbidden values: list the good ones in values"},
		"another absence":        {edit("values:", "absent: maybe\n        values:"), "f.yaml: line 9: ORG-001: settings[0].absent: want fail or accept, not \"maybe\""},
		"an absence for nothing": {setting("      - {argument: iommu, forbidden: [pt], absent: fail}\n"), "f.yaml: line 8: ORG-001: settings[0].absent: an argument with forbidden values may always be absent"},
		"an alias":               {edit("severity: high", "severity: &s high\n    verify: *s"), "f.yaml: line 5: ORG-001: verify: want a text, not a reference (*s)"},
		"a rule that is a text":  {"rules: [ORG-001]\n", "f.yaml: line 1: rules[0]: want fields (id, title, severity, why, fix, verify, sources, settings); "},
	} {
		t.Run(about, func(t *testing.T) {
			err := catalogue(t).AddOwn("f.yaml", []byte(c.content))
			if err == nil {
				t.Fatalf("no error, want %q", c.want)
			}
			got := strings.ReplaceAll(err.Error(), "\n", "; ")
			if got != c.want && (!strings.HasSuffix(c.want, "; ") || !strings.HasPrefix(got, c.want)) {
				t.Errorf("error\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// FuzzOwnRules: whatever a file has, reading it ends, and what is read has an ID, a severity and values.
func FuzzOwnRules(f *testing.F) {
	f.Add([]byte(kexec))
	f.Add([]byte("rules: &a [*a]"))
	f.Fuzz(func(t *testing.T, content []byte) {
		c := &rule.Catalogue{}
		if c.AddOwn("f.yaml", content) != nil {
			return
		}
		for _, o := range c.Own {
			if !strings.HasPrefix(o.Rule.ID, "ORG-") || !slices.Contains(rule.Severities(), o.Rule.Severity) || len(o.Rule.Settings) == 0 {
				t.Errorf("%q is taken: %+v", content, o)
			}
			for _, s := range o.Rule.Settings {
				if len(s.Values)+len(s.Forbidden) == 0 || strings.ContainsAny(s.Name, "/ ;") {
					t.Errorf("%q is taken: %+v", content, s)
				}
			}
		}
	})
}

// TestSettingsInWords: what a rule wants, and where the audit looks.
func TestSettingsInWords(t *testing.T) {
	for _, c := range []struct {
		setting        rule.Setting
		wanted, readIn string
	}{
		{rule.Setting{Kind: rule.Sysctl, Name: "kernel.x", Values: []string{"1", "2"}}, "sysctl kernel.x: 1 or 2", "/proc/sys/kernel/x; for the next boot, sysctl.d and /etc/sysctl.conf"},
		{rule.Setting{Kind: rule.Parameter, Name: "kvm-intel.nested", Values: []string{"N"}, AbsentAccepted: true}, "parameter kvm-intel.nested: N; or not there", "/sys/module/kvm_intel/parameters/nested; for the next boot, modprobe.d and the boot loader's files"},
		{rule.Setting{Kind: rule.Argument, Name: "nosmt", Values: []string{"", "force"}}, "argument nosmt: without a value or force", "/proc/cmdline; for the next boot, the boot loader's files"},
		{rule.Setting{Kind: rule.Argument, Name: "iommu", Forbidden: []string{"pt", "off"}}, "argument iommu: not pt, not off; or not there", "/proc/cmdline; for the next boot, the boot loader's files"},
		{rule.Setting{Kind: rule.Argument, Name: "nokaslr", Forbidden: []string{rule.AnyValue}}, "argument nokaslr: not there", "/proc/cmdline; for the next boot, the boot loader's files"},
	} {
		if got := c.setting.Wanted(); got != c.wanted {
			t.Errorf("got %q, want %q", got, c.wanted)
		}
		if got := c.setting.ReadIn(); got != c.readIn {
			t.Errorf("%s: read in %q, want %q", c.wanted, got, c.readIn)
		}
	}
}

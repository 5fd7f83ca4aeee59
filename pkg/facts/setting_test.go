package facts_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestModulesOptionsAreThoseThatModprobeGives(t *testing.T) {
	n := tree(t, map[string]string{
		"usr/lib/modprobe.d/a.conf":       "options vfio x=1\n",
		"etc/modprobe.d/a.conf":           "-> /etc/alternatives/a",
		"etc/alternatives/a":              "options vfio \\\n x=2\n",
		"usr/local/lib/modprobe.d/b.conf": "options vfio x=3\n",
		"lib/modprobe.d/c.conf":           "options vfio x=4\n",
		"etc/modprobe.d/c.conf":           "-> /dev/null",
		"run/modprobe.d/0.conf":           "options vfio x=0\n",
	})
	setting := n.Parameter("vfio", "x")
	got := []string{}
	for _, f := range setting.Configured {
		got = append(got, f.Path+"="+f.Value)
	}
	want := []string{"/run/modprobe.d/0.conf=0", "/etc/modprobe.d/a.conf=2", "/usr/local/lib/modprobe.d/b.conf=3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is configured (-want +got):\n%s", diff)
	}
}

func TestUdevRulesAreThoseOfAllDirectories(t *testing.T) {
	n := tree(t, map[string]string{
		"usr/lib/udev/rules.d/50-a.rules":       "KERNEL==\"vfio\", MODE=\"0666\"\n",
		"usr/local/lib/udev/rules.d/50-a.rules": "KERNEL==\"vfio\", MODE=\"0600\"\n",
		"usr/local/lib/udev/rules.d/60-b.rules": "KERNEL==\"iommu\", MODE=\"0660\"\n",
	})
	got := ""
	for _, r := range n.UdevRules() {
		got += r.File.Path + " " + r.Assigned("MODE")[0] + "\n"
	}
	if want := "/usr/local/lib/udev/rules.d/50-a.rules 0600\n/usr/local/lib/udev/rules.d/60-b.rules 0660\n"; got != want {
		t.Errorf("got the rules\n%swant\n%s", got, want)
	}
}

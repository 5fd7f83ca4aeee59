package facts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// nodeOf returns the node of a tree, without functions.
func nodeOf(tb testing.TB, root string) *Node {
	tb.Helper()
	fs, err := sysfs.Open(root)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = fs.Close() })
	return New(fs, &device.Snapshot{})
}

func vf(pf pci.Address, index int) *device.Function {
	return &device.Function{Type: device.VFType, VF: &device.VF{PF: pf, Index: index}}
}

// TestCopyTellsOfItsOwnInterfaces, and not of those of the machine that reads it.
func TestCopyTellsOfItsOwnInterfaces(t *testing.T) {
	k := sysfstest.New(t)
	k.PutFile(LinksFile, `{"pfs": [
		{"pf": "0000:3b:00.0", "eswitch": "legacy", "link": {"name": "ens1f0", "vfs": [{"settings": {"mac": "02:00:00:00:00:01", "trust": true}}]}},
		{"pf": "0000:3c:00.0", "error": "it is busy"}]}`)
	n := nodeOf(t, k.Root())
	n.ReadLinks(t.Context())
	pf, busy := pci.Address{Bus: 0x3b}, pci.Address{Bus: 0x3c}
	got, fact := n.VFSettings(vf(pf, 0))
	want := &device.VFSettings{MAC: "02:00:00:00:00:01", Trust: new(true)}
	if diff := cmp.Diff(want, got); diff != "" || fact.Path != "netlink: ens1f0 vf 0" || fact.How != "netlink" {
		t.Errorf("%+v; (-want +got):\n%s", fact, diff)
	}
	for name, of := range map[string]*device.Function{
		"a VF that the PF does not tell of": vf(pf, 1), "a PF that could not be read": vf(busy, 0), "a PF that was not asked": vf(pci.Address{Bus: 9}, 0),
	} {
		if got, fact := n.VFSettings(of); got != nil || fact.OK() {
			t.Errorf("%s: %+v, %+v; want nothing, and the reason", name, got, fact)
		}
	}
}

func TestCopyWithoutInterfaces(t *testing.T) {
	for name, content := range map[string]string{"none": "", "no JSON": "{", "another thing": `[1, 2]`} {
		k := sysfstest.New(t)
		if content != "" {
			k.PutFile(LinksFile, content)
		}
		if links, fact := nodeOf(t, k.Root()).Links(); links != nil || fact.OK() {
			t.Errorf("%s: %+v, %+v; want nothing, and the reason", name, links, fact)
		}
	}
}

// TestRunningNodeIsAsked: whoever may not enter its network namespace learns that,
// and never what some file says.
func TestRunningNodeIsAsked(t *testing.T) {
	n := nodeOf(t, "/")
	n.ReadLinks(t.Context())
	links, fact := n.Links()
	if fact.How != "netlink" || (links == nil) == fact.OK() || fact.Status == Absent {
		t.Errorf("%+v, %+v", links, fact)
	}
}

func FuzzLinks(f *testing.F) {
	f.Add(`{"pfs": [{"pf": "0000:3b:00.0", "link": {"vfs": [{}]}}]}`)
	f.Add(`{"pfs": [{"pf": "0000:3b:00.0", "link": null}, null]}`)
	f.Fuzz(func(t *testing.T, content string) {
		n := &Node{links: func() (*Links, Fact) { return decodeLinks(Fact{Path: "/" + LinksFile, Value: content}) }}
		for _, of := range []*device.Function{vf(pci.Address{Bus: 0x3b}, 0), vf(pci.Address{Bus: 0x3b}, 1<<30)} {
			if got, fact := n.VFSettings(of); (got == nil) == fact.OK() {
				t.Errorf("%+v, %+v", got, fact)
			}
		}
	})
}

func TestProcessors(t *testing.T) {
	cpu := func(stepping, microcode string) string {
		return "processor\t: 0\ncpu family\t: 6\nmodel\t\t: 143\nstepping\t: " + stepping + "\nmicrocode\t: " + microcode + "\n\n"
	}
	got := parseProcessors(cpu("8", "0x2") + cpu("6", "0x9") + cpu("8", "0x1") + cpu("8", "0x2"))
	want := []Processor{{Name: "6/143/6", Microcode: []string{"0x9"}}, {Name: "6/143/8", Microcode: []string{"0x1", "0x2"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := parseProcessors("processor\t: 0\nCPU implementer\t: 0x41\n"); got != nil {
		t.Errorf("Arm, which shows no microcode: %v", got)
	}
}

func TestListening(t *testing.T) {
	k := sysfstest.New(t)
	line := func(local, state string) string { return "   0: " + local + " 00000000:0000 " + state + " 0:0\n" }
	k.PutFile("proc/1/net/tcp", "  sl  local_address rem_address   st\n"+line("0100007F:1A0A", "0A")+line("0201000A:1A0A", "0A")+line("0301000A:1A0A", "01")+line("0401000A:0016", "0A")+line("zz:1A0A", "0A")+"short\n")
	k.PutFile("proc/1/net/tcp6", line("0000000000000000FFFF00000100007F:1A0A", "0A")+line("B80D0120000000000000000001000000:1A0A", "0A"))
	got, _ := nodeOf(t, k.Root()).Listening(6666)
	if diff := cmp.Diff([]string{"10.0.1.2", "2001:db8::1"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzSocket(f *testing.F) {
	f.Add("0100007F:1A0A")
	f.Add("B80D0120000000000000000001000000:1A0A")
	f.Fuzz(func(t *testing.T, text string) {
		if a, ok := parseSocket(text); ok && !a.IsValid() {
			t.Errorf("%q is %v", text, a)
		}
	})
}

func TestSysctl(t *testing.T) {
	k := sysfstest.New(t)
	k.PutFile("proc/sys/kernel/dmesg_restrict", "1\n")
	k.PutFile("usr/lib/sysctl.d/10-a.conf", "kernel.dmesg_restrict = 5\n")
	k.PutFile("etc/sysctl.d/10-a.conf", "# kernel.dmesg_restrict=7\n-kernel/dmesg_restrict=2\n")
	k.PutFile("etc/sysctl.d/90-z.conf", "kernel.dmesg_restrict=4\n")
	k.PutFile("run/sysctl.d/50-m.conf", "kernel.dmesg_restrict = 3\nkernel.dmesg_restrict_not=9\n")
	s := nodeOf(t, k.Root()).Sysctl("kernel.dmesg_restrict")
	var values []string
	for _, f := range s.Configured {
		values = append(values, f.Path+" "+f.Value)
	}
	want := "/etc/sysctl.d/10-a.conf 2, /run/sysctl.d/50-m.conf 3, /etc/sysctl.d/90-z.conf 4"
	if got := strings.Join(values, ", "); got != want || !s.Running.Is("1") {
		t.Errorf("%s, now %+v; want %s", got, s.Running, want)
	}
}

func TestBootArgument(t *testing.T) {
	k := sysfstest.New(t)
	k.PutFile("proc/cmdline", "quiet mitigations=auto mitigations=off nosmt -- nopti\n")
	k.PutFile("etc/default/grub", "GRUB_CMDLINE_LINUX=\"mitigations=auto\"\n")
	n := nodeOf(t, k.Root())
	if s := n.BootArgument("mitigations"); !s.Running.Is("off") || len(s.Configured) != 1 || s.Configured[0].Value != "auto" {
		t.Errorf("%+v", s)
	}
	if s := n.BootArgument("nosmt"); !s.Running.OK() || s.Running.Value != "" {
		t.Errorf("a bare word: %+v", s)
	}
	if s := n.BootArgument("nopti"); s.Running.Status != Absent {
		t.Errorf("what is init's: %+v", s)
	}
}

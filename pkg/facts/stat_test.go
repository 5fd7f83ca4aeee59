package facts_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	nodetree "github.com/kata-vfio/kata-vfio/test/tree"
)

// tree is a node that has the files; "-> " makes a link.
func tree(t *testing.T, files map[string]string) *facts.Node {
	t.Helper()
	return facts.New(nodetree.Open(t, files), &device.Snapshot{})
}

func TestRealFollowsLinksBelowTheRoot(t *testing.T) {
	n := tree(t, map[string]string{
		"run/x":   "",
		"var/run": "-> /run",
		"a/up":    "-> ../../../../run/x",
		"a/to":    "-> up",
		"loop":    "-> loop",
		"l1":      "-> l2/l2",
		"l2":      "-> l1/l1",
	})
	for name, want := range map[string]string{
		"var/run/x": "run/x", "/var/run/x": "run/x", "a/to": "run/x", "no/such": "no/such", "../run/x": "run/x", "/": "",
	} {
		if got := n.Real(name); got != want {
			t.Errorf("%s leads to %q, want %q", name, got, want)
		}
	}
	n.Real("loop") // they end
	n.Real("l1")
}

func TestStatWriters(t *testing.T) {
	for stat, want := range map[facts.Stat]string{
		{Mode: "100644"}:         "",
		{Mode: "100664"}:         "",
		{Mode: "100664", GID: 5}: "group 5 may write to it",
		{Mode: "100666"}:         "everybody may write to it",
		{Mode: "100644", UID: 7}: "user 7 owns it",
		{Mode: "41777"}:          "",
		{Mode: "40777"}:          "everybody may write to it",
		{Mode: "101666"}:         "everybody may write to it",
	} {
		if got := stat.Writers(); got != want {
			t.Errorf("%+v: %q, want %q", stat, got, want)
		}
	}
}

func TestStatOpeners(t *testing.T) {
	for stat, want := range map[facts.Stat]string{
		{Mode: "20600"}:         "",
		{Mode: "20660"}:         "",
		{Mode: "20640", GID: 5}: "group 5 may open it",
		{Mode: "20620", GID: 5}: "group 5 may open it",
		{Mode: "20644"}:         "everybody may open it",
		{Mode: "20602"}:         "everybody may open it",
		{Mode: "20600", UID: 7}: "user 7 owns it",
	} {
		if got := stat.Openers(); got != want {
			t.Errorf("%+v: %q, want %q", stat, got, want)
		}
	}
}

func TestCopySaysWhoOwnedItsFiles(t *testing.T) {
	n := tree(t, map[string]string{
		facts.StatFile: `{"/etc/a": {"mode": "100600", "uid": 3, "gid": 4}, "/run/s": {"mode": "140755"}, "/etc/d": {"mode": "x"}}`,
		"etc/a":        "", "etc/b": "",
	})
	a, fact := n.Stat("/etc/a")
	if want := (facts.Stat{Mode: "100600", UID: 3, GID: 4}); a != want || !fact.OK() {
		t.Errorf("it is %+v, %+v", a, fact)
	}
	if s, fact := n.Stat("run/s"); !fact.OK() || !s.IsSocket() {
		t.Errorf("a socket that a copy can't have is %+v, %+v", s, fact)
	}
	if _, fact := n.Stat("etc/b"); fact.Status != facts.Broken {
		t.Errorf("a file that the copy says nothing of is %+v", fact)
	}
	if _, fact := n.Stat("etc/d"); fact.Status != facts.Broken {
		t.Errorf("a mode that is none is %+v", fact)
	}
	if _, fact := n.Stat("etc/c"); fact.Status != facts.Absent {
		t.Errorf("a file that is not there is %+v", fact)
	}
	if diff := cmp.Diff([]string{"/etc/a", "/run/s"}, keys(n.Stats())); diff != "" {
		t.Errorf("what was asked for differs (-want +got):\n%s", diff)
	}
}

func TestDamagedStatFileVouchesForNothing(t *testing.T) {
	n := tree(t, map[string]string{facts.StatFile: "{", "etc/a": ""})
	if _, fact := n.Stat("etc/a"); fact.Status != facts.Broken {
		t.Errorf("it is %+v", fact)
	}
}

func TestNodesOwnFilesAreAsked(t *testing.T) {
	n := tree(t, map[string]string{"etc/a": ""})
	s, fact := n.Stat("etc/a")
	if os.Getuid() == 0 && (s.Mode != "100644" || !fact.OK()) {
		t.Errorf("it is %+v, %+v", s, fact)
	}
	if os.Getuid() != 0 && fact.Status != facts.Broken {
		t.Errorf("a copy that root did not make is believed: %+v", fact)
	}
}

func TestMatchTakesPatternsInDirectories(t *testing.T) {
	n := tree(t, map[string]string{"a/1/x.toml": "", "a/2/x.toml": "", "a/2/y": "", "b": "-> /a"})
	for pattern, want := range map[string][]string{
		"a/*/x.toml": {"a/1/x.toml", "a/2/x.toml"},
		"/b/2/*":     {"b/2/x.toml", "b/2/y"},
		"*/1":        {"a/1", "b/1"},
		"a/3":        nil,
	} {
		got, all := n.Match(pattern)
		if diff := cmp.Diff(want, got); diff != "" || !all {
			t.Errorf("%s (-want +got):\n%s", pattern, diff)
		}
	}
}

func keys(m map[string]facts.Stat) []string {
	var all []string
	for _, name := range []string{"/etc/a", "/etc/b", "/etc/c", "/run/s"} {
		if _, ok := m[name]; ok {
			all = append(all, name)
		}
	}
	return all
}

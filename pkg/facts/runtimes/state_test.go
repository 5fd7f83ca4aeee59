package runtimes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/test/tree"
)

const (
	goID   = "39fd281908cdf8f78d0461cedc8b13789c3e3a5c6873d545594c0d8f117e9794"
	rustID = "1f2e3d4c5b6a79880123456789abcdef0123456789abcdef0123456789abcdef"
)

func recorded(tb testing.TB, name string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

func read(tb testing.TB, files map[string]string) ([]runtimes.KataSandbox, []facts.Fact) {
	tb.Helper()
	return runtimes.ReadKataSandboxes(facts.New(tree.Open(tb, files), &device.Snapshot{}))
}

func address(tb testing.TB, text string) pci.Address {
	tb.Helper()
	a, err := pci.ParseAddress(text)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

func TestBothRuntimesStatesAreRead(t *testing.T) {
	found, asked := read(t, map[string]string{
		"run/vc/sbs/" + goID + "/persist.json":              recorded(t, "persist.json"),
		"run/vc/sbs/" + goID + "/" + goID + "/persist.json": "{}",
		"run/kata/" + rustID + "/state.json":                recorded(t, "state.json"),
		"run/kata/being-made/shared":                        "",
	})
	want := []runtimes.KataSandbox{
		{ID: goID, Runtime: runtimes.KataGo, File: "/run/vc/sbs/" + goID + "/persist.json", Hypervisor: "qemu", PID: 951, Devices: []runtimes.KataDevice{
			{Address: address(t, "0000:21:10.0"), Bus: "rp0", ColdPlugged: true},
			{Address: address(t, "0000:22:00.0"), Bus: "rp1", ColdPlugged: true},
			{Address: address(t, "0000:21:10.2"), Endpoint: true},
		}},
		{ID: rustID, Runtime: runtimes.KataRust, File: "/run/kata/" + rustID + "/state.json", Hypervisor: "qemu", Devices: []runtimes.KataDevice{
			{Address: address(t, "0000:21:10.2"), Endpoint: true},
		}},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("the sandboxes differ (-want +got):\n%s", diff)
	}
	for _, f := range asked {
		if !f.OK() {
			t.Errorf("%s is not understood: %s", f.Path, f.Err)
		}
	}
}

func TestStateThatIsNotUnderstoodIsNamed(t *testing.T) {
	text := recorded(t, "persist.json")
	rust := recorded(t, "state.json")
	for about, c := range map[string]struct{ file, text, want string }{
		"cut off":                {"run/vc/sbs/" + goID + "/persist.json", text[:len(text)/2], "parse the state of Kata's Go runtime"},
		"empty":                  {"run/vc/sbs/" + goID + "/persist.json", "", "parse the state of Kata's Go runtime"},
		"something else":         {"run/vc/sbs/" + goID + "/persist.json", "{}", "PersistVersion or SandboxContainer is missing"},
		"a later form":           {"run/vc/sbs/" + goID + "/persist.json", strings.Replace(text, `"PersistVersion": 2`, `"PersistVersion": 3`, 1), "a newer Kata wrote it"},
		"another one's":          {"run/vc/sbs/other/persist.json", text, "in the directory of another one"},
		"no address":             {"run/vc/sbs/" + goID + "/persist.json", strings.Replace(text, "0000:22:00.0", "x", 2), "read a VFIO device"},
		"no endpoint's address":  {"run/vc/sbs/" + goID + "/persist.json", strings.Replace(text, "0000:21:10.2", "x", 1), "read a physical endpoint"},
		"Rust, cut off":          {"run/kata/" + rustID + "/state.json", rust[:len(rust)/2], "parse the state of Kata's Rust runtime"},
		"Rust, something else":   {"run/kata/" + rustID + "/state.json", "{}", "hypervisor.id is missing"},
		"Rust, another one's":    {"run/kata/other/state.json", rust, "in the directory of another one"},
		"Rust, no such endpoint": {"run/kata/" + rustID + "/state.json", strings.Replace(rust, "0000:21:10.2", "x", 1), "read a physical endpoint"},
	} {
		found, asked := read(t, map[string]string{c.file: c.text})
		if len(found) > 0 {
			t.Errorf("%s: there is %+v", about, found)
		}
		named := false
		for _, f := range asked {
			named = named || f.Path == "/"+c.file && strings.Contains(f.Err, c.want)
		}
		if !named {
			t.Errorf("%s: asked were %+v, want %q of %s", about, asked, c.want, c.file)
		}
	}
}

func TestPathThatAKataWritesAsTextIsKept(t *testing.T) {
	text := strings.Replace(recorded(t, "persist.json"), `"GuestPciPath": {}`, `"GuestPciPath": "05/00"`, 1)
	found, _ := read(t, map[string]string{"run/vc/sbs/" + goID + "/persist.json": text})
	if len(found) != 1 || found[0].Devices[0].GuestPath != "05/00" || found[0].Devices[1].GuestPath != "" {
		t.Errorf("the sandboxes are %+v", found)
	}
}

func FuzzStates(f *testing.F) {
	f.Add(recorded(f, "persist.json"))
	f.Add(recorded(f, "state.json"))
	f.Fuzz(func(t *testing.T, text string) {
		read(t, map[string]string{"run/vc/sbs/" + goID + "/persist.json": text, "run/kata/" + rustID + "/state.json": text})
	})
}

package containers

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/test/tree"
)

func TestVersionsAreReadAsPackagesWriteThem(t *testing.T) {
	for text, want := range map[string][2]int{
		"v2.1.4": {2, 1}, "1.7.28-0ubuntu1~24.04.1": {1, 7}, "1:2.0.0~rc.1": {2, 0}, "4": {4, -1}, "(devel)": {-1, -1}, "": {-1, -1}, "x2": {-1, -1},
	} {
		if v := parseVersion(text, "x"); [2]int{v.Major, v.Minor} != want {
			t.Errorf("%q is %+v, want %v", text, v, want)
		}
	}
}

func TestContainerdsBuildTellsItsVersion(t *testing.T) {
	main := func(path, version string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Path: path, Version: version}}
	}
	for want, info := range map[string]*debug.BuildInfo{
		"v2.4.2":  main("github.com/containerd/containerd/v2", "v2.4.2"),
		"2.x":     main("github.com/containerd/containerd/v2", "(devel)"),
		"1.x":     main("github.com/containerd/containerd", "v0.0.0-20250101000000-abcdef"),
		"v2.3.0":  {Main: debug.Module{Path: "example.com/k3s"}, Deps: []*debug.Module{{Path: "github.com/containerd/containerd/api", Version: "v1.9.0"}, {Path: "github.com/containerd/containerd/v2", Version: "v2.3.0"}}},
		"unknown": main("github.com/containerd/nri", "v0.12.0"),
	} {
		if got := builtVersion(info, "x").String(); got != want {
			t.Errorf("%+v is %s, want %s", info, got, want)
		}
	}
}

func TestBinaryThatTellsNothingIsUnknown(t *testing.T) {
	own, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	n := node{tree: tree.Open(t, map[string]string{"usr/bin/own": string(own), "usr/bin/text": "#!/bin/sh\n"})}
	if v := n.containerdVersion("", "/usr/bin/text", "/usr/bin/gone", "/usr/bin/own"); v.known() {
		t.Errorf("it is %+v", v)
	}
}

func TestVersionsReadInstalledPackagesOnly(t *testing.T) {
	n := node{tree: tree.Open(t, map[string]string{"var/lib/dpkg/status": "Package: containerd.io\nStatus: deinstall ok config-files\nVersion: 1.6.0\n\n" +
		"Package: containerd-x\nStatus: install ok installed\nVersion: 9\n\nPackage: containerd\nVersion: 1.7.24~ds1-6+b4\nStatus: install ok installed\n"})}
	if v := n.containerdVersion(""); v.Text != "1.7.24~ds1-6+b4" || v.Major != 1 || v.Minor != 7 {
		t.Errorf("it is %+v", v)
	}
}

func TestCommandLineIsWhatSystemdMakesOfTheUnit(t *testing.T) {
	n := node{tree: tree.Open(t, map[string]string{
		"lib/systemd/system/x.service":                "[Service]\nExecStart=/bin/old\n",
		"etc/systemd/system/x.service":                "[Service]\nEnvironment=A=1 \"B=two words\"\n#ExecStart=/bin/commented\nExecStart=-/bin/x ${B} $B \\\n  '--c=${A}' $NONE\n",
		"etc/systemd/system/x.service.d/20.conf":      "[Service]\nEnvironmentFile=-/etc/default/x\n",
		"usr/lib/systemd/system/x.service.d/20.conf":  "[Service]\nExecStart=/bin/shadowed\n",
		"usr/lib/systemd/system/x.service.d/10.conf":  "[Service]\nEnvironment=A=5\n",
		"etc/systemd/system/x.service.d/25.conf":      "[Service]\nEnvironment=A=8\n",
		"usr/lib/systemd/system/x.service.d/30.other": "[Service]\nExecStart=/bin/other\n",
		"etc/default/x": "# A=7\nA=\"6\"\n",
	})}
	u, ok := facts.LoadUnit(n, "x.service")
	if !ok {
		t.Fatal("there is no unit")
	}
	if diff := cmp.Diff([]string{"/bin/x", "two words", "two", "words", "--c=6"}, u.Args()); diff != "" {
		t.Errorf("the command line differs (-want +got):\n%s", diff)
	}
}

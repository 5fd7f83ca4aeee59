package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sassoftware/go-rpmutils"
)

// installed are the files of a package, except for the completions of zsh, which differ.
func installed() []string {
	return []string{
		"/etc/kata-vfio/node.yaml", "/usr/bin/show",
		"/usr/lib/systemd/system/kata-vfio-bootstrap-verify.service", "/usr/lib/systemd/system/kata-vfio-bootstrap-verify.timer",
		"/usr/lib/systemd/system/kata-vfio-pod-resources.service", "/usr/lib/systemd/system/kata-vfio-pod-resources.socket",
		"/usr/share/bash-completion/completions/show", "/usr/share/doc/kata-vfio/README.md",
		"/usr/share/doc/kata-vfio/THIRD-PARTY-LICENSES.show", "/usr/share/doc/kata-vfio/copyright",
		"/usr/share/fish/vendor_completions.d/show.fish", "/usr/share/kata-vfio/README.md",
		"/usr/share/kata-vfio/containerd/kata-gpu-runtime-rs.toml", "/usr/share/kata-vfio/containerd/kata-gpu.toml",
		"/usr/share/kata-vfio/containerd/kata-vfio-runtime-rs.toml", "/usr/share/kata-vfio/containerd/kata-vfio.toml",
		"/usr/share/kata-vfio/crio/50-kata-vfio-runtime-rs.conf", "/usr/share/kata-vfio/crio/50-kata-vfio.conf",
		"/usr/share/kata-vfio/crio/51-kata-vfio-nic-runtime-rs.conf", "/usr/share/kata-vfio/crio/51-kata-vfio-nic.conf",
		"/usr/share/kata-vfio/kata/50-kata-gpu-hotplug.toml", "/usr/share/kata-vfio/kata/50-kata-gpu-runtime-rs.toml",
		"/usr/share/kata-vfio/kata/50-kata-gpu.toml", "/usr/share/kata-vfio/kata/50-kata-vfio-runtime-rs.toml",
		"/usr/share/kata-vfio/kata/50-kata-vfio.toml", "/usr/share/kata-vfio/kata/60-numa.toml", "/usr/share/man/man8/show.8.gz",
	}
}

// host is a root directory with dpkg's database and nothing else.
type host struct{ root string }

func newHost(t *testing.T) host {
	t.Helper()
	h := host{root: t.TempDir()}
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "etc/systemd/system/sockets.target.wants", "etc/systemd/system/timers.target.wants"} {
		if err := os.MkdirAll(filepath.Join(h.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(h.root, "var/lib/dpkg/status"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// dpkg runs it on the host, whose scripts run here and are told where the host is.
func (h host) dpkg(t *testing.T, args ...string) {
	t.Helper()
	args = append([]string{"--root=" + h.root, "--log=/dev/null", "--force-not-root,script-chrootless"}, args...)
	cmd := exec.CommandContext(t.Context(), "dpkg", args...)
	cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("dpkg %v: %v\n%s", args, err, out)
	}
}

// files are those of the host without dpkg's own.
func (h host) files(t *testing.T) (list []string) {
	t.Helper()
	err := filepath.WalkDir(h.root, func(name string, d os.DirEntry, err error) error {
		name = strings.TrimPrefix(name, h.root)
		if err == nil && !d.IsDir() && !strings.HasPrefix(name, "/var/lib/dpkg/") {
			list = append(list, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestDebianPackageComesAndGoes(t *testing.T) {
	packages, err := filepath.Glob(filepath.Join(released(t), "*_"+runtime.GOARCH+".deb"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("%v, %v", packages, err)
	}
	h := newHost(t)
	h.dpkg(t, "--install", packages[0])
	want := append(installed(), "/usr/share/zsh/vendor-completions/_show", "/usr/share/doc/kata-vfio/changelog.Debian.gz", "/usr/share/lintian/overrides/kata-vfio")
	slices.Sort(want)
	if diff := cmp.Diff(want, h.files(t)); diff != "" {
		t.Errorf("the files differ (-want +got):\n%s", diff)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(h.root, "usr/bin/show"), "list", "deep").Output(); err != nil || string(out) != "here\n" {
		t.Errorf("it says %q, %v", out, err)
	}
	enabled := []string{"sockets.target.wants/kata-vfio-pod-resources.socket", "timers.target.wants/kata-vfio-bootstrap-verify.timer"}
	for _, unit := range enabled {
		if err := os.Symlink("/usr/lib/systemd/system/"+filepath.Base(unit), filepath.Join(h.root, "etc/systemd/system", unit)); err != nil {
			t.Fatal(err)
		}
	}
	h.dpkg(t, "--install", packages[0]) // an upgrade leaves enabled what is
	for _, unit := range enabled {
		if got := h.files(t); !slices.Contains(got, "/etc/systemd/system/"+unit) {
			t.Errorf("after an upgrade there are %v", got)
		}
	}
	h.dpkg(t, "--remove", packageName)
	if diff := cmp.Diff([]string{"/etc/kata-vfio/node.yaml"}, h.files(t)); diff != "" {
		t.Errorf("of what was removed there is (-want +got):\n%s", diff)
	}
	h.dpkg(t, "--purge", packageName)
	if got := h.files(t); got != nil {
		t.Errorf("what was purged leaves %v", got)
	}
	if rest, _ := filepath.Glob(filepath.Join(h.root, "*")); !slices.Equal(rest, []string{filepath.Join(h.root, "etc"), filepath.Join(h.root, "var")}) {
		t.Errorf("what was purged leaves the directories %v", rest)
	}
}

func TestRPMHasTheSame(t *testing.T) {
	f, err := os.Open(filepath.Join(released(t), "kata-vfio-1.2.3-1.aarch64.rpm"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rpm, err := rpmutils.ReadRpm(f) // compares the header with its digest
	if err != nil {
		t.Fatal(err)
	}
	if name, err := rpm.Header.GetNEVRA(); err != nil || name.String() != "kata-vfio-0:1.2.3-1.aarch64.rpm" {
		t.Errorf("it is %v, %v", name, err)
	}
	if host, err := rpm.Header.GetString(rpmutils.BUILDHOST); err != nil || host != "localhost" {
		t.Errorf("it tells of the host %q, %v", host, err)
	}
	if script, err := rpm.Header.GetString(rpmutils.PREUN); err != nil || !strings.Contains(script, "systemctl --no-reload disable") {
		t.Errorf("before it is removed it runs %q, %v", script, err)
	}
	list, err := rpm.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range list {
		if f.UserName() != "root" || f.GroupName() != "root" || f.Mtime() != int(made().time.Unix()) {
			t.Errorf("%s is %s:%s's, of %d", f.Name(), f.UserName(), f.GroupName(), f.Mtime())
		}
		if config := f.Flags()&rpmutils.RPMFILE_CONFIG != 0; config != (f.Name() == "/etc/kata-vfio/node.yaml") {
			t.Errorf("%s is configuration: %v", f.Name(), config)
		}
		if f.Mode()&0o170000 != 0o040000 { // no directory
			got = append(got, f.Name())
		}
	}
	want := append(installed(), "/usr/share/zsh/site-functions/_show")
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the files differ (-want +got):\n%s", diff)
	}
	if err := rpm.ExpandPayload(t.TempDir()); err != nil {
		t.Errorf("its files: %v", err)
	}
}

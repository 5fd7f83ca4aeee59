package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command/commandtest"
)

const mac = "02:00:5e:10:00:01"

// guest puts the test's thread into a network namespace with a NIC, eth1; its
// link is up when the peer is. The thread stays locked and ends with the test.
func guest(t *testing.T, peerUp bool) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	hw, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1", HardwareAddr: hw}, PeerName: "peer"}); err != nil {
		t.Fatal(err)
	}
	peer, err := netlink.LinkByName("peer")
	if err != nil {
		t.Fatal(err)
	}
	if peerUp {
		if err := netlink.LinkSetUp(peer); err != nil {
			t.Fatal(err)
		}
	}
}

// file writes a config or metadata file and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// metadataFile writes one request's devices as the plugin does, an object for each version, and returns the directory of all metadata.
func metadataFile(t *testing.T, name, request, devices string) string {
	t.Helper()
	var text strings.Builder
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		fmt.Fprintf(&text, `{"kind":"DeviceMetadata","apiVersion":"metadata.resource.k8s.io/%s","metadata":{},"requests":[{"name":%q,"devices":[%s]}]}`+"\n",
			version, request, devices)
	}
	return filepath.Join(file(t, name, text.String()), "../../../..")
}

// execute runs a command line and returns its output and its exit code.
func execute(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, warn bytes.Buffer
	if err := run(t.Context(), args, &out, &warn); err != nil {
		return out.String(), warn.String() + err.Error(), exitCode(err)
	}
	return out.String(), warn.String(), 0
}

const config = `[{mac: "` + mac + `", network: {interface: net1, addresses: [192.0.2.10/24]}}]`

func TestConfigIsAppliedOnce(t *testing.T) {
	guest(t, true)
	path := file(t, "n.yaml", config)
	for i, want := range []bool{true, false} {
		stdout, stderr, code := execute(t, "--config", path, "-o", "json")
		var report struct {
			Changed    bool
			Interfaces []struct{ Name struct{ Value string } }
		}
		if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 0 {
			t.Fatalf("code %d, err %v: %s%s", code, err, stdout, stderr)
		}
		if report.Changed != want || report.Interfaces[0].Name.Value != "net1" {
			t.Errorf("run %d: report %+v", i, report)
		}
		if logged := strings.Contains(stderr, "rename to net1"); logged != want {
			t.Errorf("run %d: progress %q", i, stderr)
		}
	}
}

func TestMetadataIsApplied(t *testing.T) {
	guest(t, true)
	dir := metadataFile(t, "resourceclaims/nic/vf/kata-vfio.dev-metadata.json", "vf",
		`{"driver":"kata-vfio.dev","pool":"node","name":"vf-1","networkData":{"hardwareAddress":"`+mac+`","ips":["192.0.2.10/24"]}}`)
	stdout, stderr, code := execute(t, "--metadata-dir", dir)
	if code != 0 || !strings.Contains(stdout, "192.0.2.10/24") || !strings.HasPrefix(stdout, "INTERFACE") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
}

func TestDryRunShowsTheChanges(t *testing.T) {
	guest(t, true)
	stdout, stderr, code := execute(t, "--config", file(t, "n.yaml", config), "--dry-run")
	if code != 0 || !strings.Contains(stdout, "WOULD CHANGE") || !strings.Contains(stdout, "name (was eth1)") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
	if _, err := netlink.LinkByName("eth1"); err != nil {
		t.Errorf("eth1: %v", err)
	}
}

func TestExitCodesTellWhatIsMissing(t *testing.T) {
	guest(t, false)
	path := file(t, "n.yaml", config)
	other := file(t, "o.yaml", `[{mac: "02:00:5e:10:00:99"}]`)
	far := file(t, "f.yaml", `[{mac: "`+mac+`", network: {addresses: [192.0.2.10/24], routes: [{to: default, via: 203.0.113.1}]}}]`)
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no link", []string{"--config", path, "--wait", "1ms"}, exitNoLink, "no link on net1"},
		{"no link, not waited for", []string{"--config", path, "--no-wait-link"}, 0, ""},
		{"no interface", []string{"--config", other, "--wait", "1ms"}, exitNotFound, "02:00:5e:10:00:99"},
		{"refused", []string{"--config", far}, exitFailed, "next hop"},
		{"bad config", []string{"--config", file(t, "b.yaml", "[]")}, exitUsage, "the list is empty"},
		{"no config", []string{"--config", "none.yaml"}, exitUsage, "none.yaml"},
		{"no metadata", []string{"--metadata-dir", t.TempDir()}, exitUsage, "resources.claims"},
		{"unknown format", []string{"-o", "xml"}, exitUsage, "want one of table, json, yaml"},
		{"negative wait", []string{"--wait", "-1s"}, exitUsage, "--wait"},
		{"two sources", []string{"--config", path, "--metadata-dir", "/x"}, exitUsage, "one of the two"},
		{"unknown flag", []string{"--force"}, exitUsage, "--help"},
		{"an argument", []string{"eth1"}, exitUsage, "eth1"},
	} {
		stdout, stderr, code := execute(t, c.args...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: code %d, want %d with %q: %s", c.name, code, c.code, c.want, stderr)
		}
		if reported := stdout != ""; reported != (c.code == 0 || c.code == exitNoLink || c.code == exitFailed) {
			t.Errorf("%s: report %q", c.name, stdout)
		}
	}
}

func TestHelpDocumentsExitCodesAndCompletionKnowsFormats(t *testing.T) {
	stdout, _, code := execute(t, "--help")
	for _, want := range []string{"\n  3  an interface", "\n  4  an interface", "--no-wait-link", "networks.yaml"} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("help lacks %q (code %d)", want, code)
		}
	}
	if stdout, _, _ := execute(t, "__complete", "--output", ""); !strings.HasPrefix(stdout, "table\njson\nyaml\n") {
		t.Errorf("completion: %q", stdout)
	}
	if stdout, _, _ := execute(t, "version"); !strings.HasPrefix(stdout, "kata-vfio-guestnet ") {
		t.Errorf("version: %q", stdout)
	}
}

func TestCommandsAreAlike(t *testing.T) { commandtest.Check(t, newCommand(io.Discard, io.Discard)) }

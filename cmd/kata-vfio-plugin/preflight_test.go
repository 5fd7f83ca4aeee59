package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const classes = `
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.kata-vfio.dev}
spec:
  selectors:
  - cel: {expression: "device.driver == 'kata-vfio.dev' && device.attributes['kata-vfio.dev'].?type.orValue('') == 'gpu'"}
  config:
  - opaque:
      driver: kata-vfio.dev
      parameters: {apiVersion: resource.kata-vfio.dev/v1alpha1, kind: VFIOConfig, reset: Skip}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: broken}
spec:
  selectors:
  - cel: {expression: "device.attributes['kata-vfio.dev'].pf == ''"}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nothing}
spec:
  selectors:
  - cel: {expression: "device.driver == 'other.example.com'"}
`

func classFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "classes.yaml")
	if err := os.WriteFile(file, []byte(classes), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPlanOfAllDevicesSaysWhichAreRefused(t *testing.T) {
	root := newRoot(t)
	before := tree(t, root)
	for _, format := range []string{"table", "json"} {
		got := invoke(t, "plan", "--root", root, "--audit-taint", "off", "--all", "-o", format)
		if got.code != exitRefused || !strings.Contains(got.stderr, "of 6 devices refused") {
			t.Errorf("exit code %d: %s", got.code, got.stderr)
		}
		golden(t, "plan-all."+map[string]string{"table": "txt", "json": "json"}[format], got.stdout)
	}
	if after := tree(t, root); len(after) != len(before) {
		t.Error("plan --all changed the node")
	}
}

// TestPlanOfAllDevicesReadsTheNodeOnce: each device is planned in the node that was read, and not in one that is read for it again.
func TestPlanOfAllDevicesReadsTheNodeOnce(t *testing.T) {
	opts := &options{output: "table"}
	opts.node.Root = newRoot(t)
	n, err := opts.look()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	snap, err := n.Parts.Inventory.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known, err := n.Preparer.PlanNode(t.Context(), snap)
	if err != nil {
		t.Fatal(err)
	}
	known.Drained = map[pci.Address]string{{Bus: 0x3b}: "fan"} // as it was when the node was read; the journal has no drain
	plans, err := planEach(&known, plugin.Candidates("worker-1", &known), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range plans {
		if d := &plans[i]; d.Device == "gpu-0000-3b-00-0" && (d.Plan != nil || len(d.Refusals) != 1 || d.Refusals[0].Code != rule.Drained) {
			t.Errorf("got %+v, want it refused as in the node that was read", d)
		}
	}
	if len(plans) != 6 {
		t.Errorf("got %d plans, want 6", len(plans))
	}
}

func TestPlanOfADeviceNeedsNoClaim(t *testing.T) {
	root := newRoot(t)
	for _, name := range []string{"0000:3b:00.0", "3b:00.0", "gpu-0000-3b-00-0"} {
		got := invoke(t, "plan", "--root", root, "--audit-taint", "off", "--device", name, "-o", "json")
		var p plan.Plan
		if err := json.Unmarshal([]byte(got.stdout), &p); err != nil || got.code != 0 || len(p.Devices) != 1 || p.Devices[0].Name != "gpu-0000-3b-00-0" {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	got := invoke(t, "plan", "--root", root, "--audit-taint", "off", "--device", "3b:00.0,62:00.0")
	if got.code != 0 || !strings.Contains(got.stdout, "gpu-0000-62-00-0") || !strings.Contains(got.stdout, "gpu-0000-3b-00-0") {
		t.Errorf("two devices: %+v", got)
	}
}

func TestPlanOfAnUnpublishedDeviceSaysWhy(t *testing.T) {
	root := newRoot(t)
	if got := invoke(t, "plan", "--root", root, "--audit-taint", "off", "--device", "21:00.0"); got.code != exitRefused || !strings.Contains(got.stderr, "fix:") {
		t.Errorf("a PF with VFs: %+v", got)
	}
	for name, says := range map[string]string{"aa:00.0": "no PCI function 0000:aa:00.0", "3a:01.0": "0000:3a:01.0 is a bridge: no claim can get it", "gpu": "neither a PCI address", "3b:00": "neither a PCI address"} {
		if got := invoke(t, "plan", "--root", root, "--device", name); got.code != exitUsage || !strings.Contains(got.stderr, says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestPlanOfAClassUsesItsSelectorsAndParameters(t *testing.T) {
	root, file := newRoot(t), classFile(t)
	got := invoke(t, "plan", "--root", root, "--audit-taint", "off", "--class", "gpu.kata-vfio.dev", "-f", file, "-o", "json")
	var doc struct{ Devices []devicePlan }
	if err := json.Unmarshal([]byte(got.stdout), &doc); err != nil || len(doc.Devices) == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, d := range doc.Devices {
		if !strings.HasPrefix(d.Device, "gpu-") {
			t.Errorf("the class of GPUs selects %s", d.Device)
		}
		if d.Plan != nil && len(d.Plan.Devices[0].Resets) != 0 {
			t.Errorf("%s is reset in spite of the class's parameters", d.Device)
		}
	}
	if got := invoke(t, "plan", "--root", root, "--audit-taint", "off", "--class", "broken", "-f", file); got.code == 0 || !strings.Contains(got.stderr, "spec.selectors[0] fails for device") {
		t.Errorf("a selector that fails: %+v", got)
	}
	if got := invoke(t, "plan", "--root", root, "--audit-taint", "off", "--class", "nothing", "-f", file); got.code != 0 ||
		!strings.Contains(got.stdout, "No device: DeviceClass nothing selects none of the 6 devices that the node publishes") {
		t.Errorf("a class that selects nothing: %+v", got)
	}
	if got := invoke(t, "plan", "--root", root, "--class", "none", "-f", file); got.code != exitUsage || !strings.Contains(got.stderr, `no DeviceClass "none"`) {
		t.Errorf("a class that the file lacks: %+v", got)
	}
	got = invoke(t, "plan", "--root", root, "--audit-taint", "off", "--class", "gpu.kata-vfio.dev", "-f", file, "--device", "21:02.0")
	if !strings.Contains(got.stderr, "selects 0 of the 1 device:") {
		t.Errorf("a device that the class does not select: %+v", got)
	}
}

// TestFilesWithoutAnObject: charts leave documents of comments only, which have no class; other texts are named for what they are not.
func TestFilesWithoutAnObject(t *testing.T) {
	root, classes := newRoot(t), classFile(t)
	text, err := os.ReadFile(classes)
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{
		"": `has no DeviceClass "none"`, "# a\n": `has no DeviceClass "none"`, "---\n# a\n---\nnull\n": `has no DeviceClass "none"`,
		"hello\n": "a document is not a Kubernetes object", "# a\n---\n" + string(text): `has no DeviceClass "none"`,
	} {
		file := filepath.Join(t.TempDir(), "classes.yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := invoke(t, "plan", "--root", root, "--class", "none", "-f", file); got.code != exitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("class in %q: got %+v, want exit code %d and %q", content, got, exitUsage, want)
		}
	}
	empty := filepath.Join(t.TempDir(), "claim.yaml")
	if err := os.WriteFile(empty, []byte("# a claim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"plan", "prepare"} {
		if got := invoke(t, command, "--root", root, "-f", empty); got.code != exitUsage || !strings.Contains(got.stderr, "the document is empty; want one object with apiVersion and kind") {
			t.Errorf("%s of a claim: %+v", command, got)
		}
	}
}

func TestPlanRefusesContradictingFlags(t *testing.T) {
	root := newRoot(t)
	for _, flags := range [][]string{
		{},
		{"-f", "testdata/one-claim.yaml", "--all"},
		{"-f", "testdata/one-claim.yaml", "--device", "3b:00.0"},
		{"--all", "--device", "3b:00.0"},
		{"--all", "--class", "x"},
	} {
		if got := invoke(t, append([]string{"plan", "--root", root}, flags...)...); got.code != exitUsage {
			t.Errorf("%v: %+v", flags, got)
		}
	}
}

// TestPlanOfAllDevicesUsesTheNodesName: the pools that it makes up are those of --node-name, not of this host.
func TestPlanOfAllDevicesUsesTheNodesName(t *testing.T) {
	t.Setenv("NODE_NAME", "")
	root := newRoot(t)
	for _, flags := range [][]string{{"--device", "3b:00.0"}, {"--class", "gpu.kata-vfio.dev", "-f", classFile(t), "--device", "3b:00.0"}} {
		args := append([]string{"plan", "--root", root, "--audit-taint", "off", "--node-name", "worker-9"}, flags...)
		if got := invoke(t, args...); got.code != 0 {
			t.Errorf("%v: %+v", flags, got)
		}
	}
}

// TestPlanReadsAListOfClasses, as `kubectl get deviceclasses -o yaml` prints them.
func TestPlanReadsAListOfClasses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "list.yaml")
	list := "apiVersion: v1\nkind: List\nitems:\n- apiVersion: resource.k8s.io/v1\n  kind: DeviceClass\n  metadata: {name: all}\n  spec: {}\n"
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	got := invoke(t, "plan", "--root", newRoot(t), "--audit-taint", "off", "--class", "all", "-f", file, "--device", "3b:00.0")
	if got.code != 0 {
		t.Errorf("%+v", got)
	}
}

// TestRefusalsFitATerminal: also those whose text is long. A pipe gets each on one line.
func TestRefusalsFitATerminal(t *testing.T) {
	const text = "gpu-0000-3b-00-0: 0000:3b:00.0 is held by a claim of another namespace, whose pod has not ended\n    fix: wait until that claim's pod has ended, or unprepare it; `kata-vfio-plugin status` lists the claims with their devices"
	if got := wrapRefusal(text, 0); got != text {
		t.Errorf("got %q, want it as it was", got)
	}
	got := wrapRefusal(text, 80)
	for line := range strings.Lines(got) {
		if len(strings.TrimRight(line, "\n")) > 80 {
			t.Errorf("%d characters, want 80: %q", len(line), line)
		}
	}
	const want = "gpu-0000-3b-00-0: 0000:3b:00.0 is held by a claim of another namespace,\n    whose pod has not ended\n    fix: wait until"
	if !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

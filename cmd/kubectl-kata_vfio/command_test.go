package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command/commandtest"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// TestExitCodes: the meaning of each is in the help of every command.
func TestExitCodes(t *testing.T) {
	for line, want := range map[string]int{
		"devices": 0, "claims": 0, "audit worker-1": 0, "audit worker-2": exitFindings, "audit worker-2 --fail-on critical": exitFindings,
		"audit worker-1 --node-report testdata/reports": exitFindings, "audit worker-1 --node-report testdata/reports --fail-on critical": 0,
		"devices --node nowhere": exitNotFound, "devices --pool TYPO": exitNotFound, "topology nowhere": exitNotFound, "audit nowhere": exitNotFound,
		"explain nothing": exitNotFound, "explain pod/nothing": exitNotFound, "explain worker-1/gpu-0000-99-00-0": exitNotFound,
		"explain": command.Usage, "explain a b": command.Usage, "devices x": command.Usage, "devices -o xml": command.Usage, "frob": command.Usage,
		"devices --watch -o yaml": command.Usage, "audit --fail-on worst": command.Usage, "audit --node-report nowhere": command.Usage,
		"explain same": command.Usage, "explain claim/same": 0, "explain pod/same": 0,
	} {
		objects := append(sampleObjects(t), decode(t, []byte("kind: ResourceClaim\nmetadata: {namespace: team-a, name: same}")),
			decode(t, []byte("kind: Pod\nmetadata: {namespace: team-a, name: same}\nspec: {resourceClaims: [{name: a, resourceClaimName: same}]}")))
		_, stderr, code := ask(t, client(objects), strings.Fields(line)...)
		if code != want {
			t.Errorf("%s: exit code %d, want %d: %s", line, code, want, stderr)
		}
	}
}

// TestHelpHasTheCommandsOwnExitCodes, and none of another command's.
func TestHelpHasTheCommandsOwnExitCodes(t *testing.T) {
	for _, c := range (&session{}).root(io.Discard, io.Discard).Commands() {
		if name := c.Name(); name != "completion" && name != "version" && name != "help" {
			stdout, _, _ := ask(t, sample(t), name, "--help")
			if !strings.Contains(stdout, exitCodeHelp(name)+"\n\nUsage:") || !strings.Contains(stdout, "kubectl kata-vfio "+name) {
				t.Errorf("help of %q has not its exit codes, or others:\n%s", name, stdout)
			}
			if !strings.Contains(exitCodeHelp(name), "\n  4  ") {
				t.Errorf("%q does not say what it does without the right to list: %s", name, exitCodeHelp(name))
			}
		}
	}
	if stdout, _, _ := ask(t, sample(t), "--help"); !strings.Contains(stdout, exitCodes()) {
		t.Errorf("the help has not all exit codes:\n%s", stdout)
	}
}

// TestTenantSeesItsOwn: a user who may list only a namespace's claims, pods and events
// sees those, and a note says what is not shown and who can show more.
func TestTenantSeesItsOwn(t *testing.T) {
	tenant := sample(t)
	forbid(tenant, "resourceslices")
	stdout, stderr, code := ask(t, tenant, "claims")
	if code != 0 || stderr != "" || !strings.Contains(stdout, "train-net") || strings.Contains(stdout, "infer") {
		t.Errorf("claims: exit code %d, %s\n%s", code, stderr, stdout)
	}
	stdout, stderr, code = ask(t, tenant, "explain", "train-gpu")
	if code != 0 || !strings.Contains(stdout, "is ready on node worker-1") || !strings.Contains(stderr, "the state that nodes report of devices is not shown") {
		t.Errorf("explain: exit code %d, %s\n%s", code, stderr, stdout)
	}
	for _, name := range []string{"devices", "topology", "audit", "explain worker-1/x"} {
		stdout, stderr, code := ask(t, tenant, strings.Fields(name)...)
		if code != exitForbidden || stdout != "" || !strings.Contains(stderr, "kata-vfio-view") {
			t.Errorf("%s: exit code %d, %s\n%s", name, code, stderr, stdout)
		}
	}
}

// TestWaitingClaimIsListedByItsDeviceClass, with any name of the class; without the right to list DeviceClasses, by the domain of its name.
func TestWaitingClaimIsListedByItsDeviceClass(t *testing.T) {
	waiting := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "waits-for-fast"}}
	waiting.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "fast-gpu"}}}
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "fast-gpu", Annotations: map[string]string{v1alpha1.AnnotationNamespaces: "team-a"}}}
	objects := append(sampleObjects(t), waiting, class)
	for _, permitted := range []bool{true, false} {
		c := client(objects)
		if !permitted {
			forbid(c, "deviceclasses")
		}
		stdout, stderr, code := ask(t, c, "claims")
		if code != 0 || stderr != "" || strings.Contains(stdout, "waits-for-fast") != permitted || !strings.Contains(stdout, "train-net") {
			t.Errorf("may list DeviceClasses: %v: got exit code %d, %s\n%s", permitted, code, stderr, stdout)
		}
	}
}

// TestDevicesOfUnknownClaimsAreUnknown: without the right to list claims, no device is shown as free.
func TestDevicesOfUnknownClaimsAreUnknown(t *testing.T) {
	client := sample(t)
	forbid(client, "resourceclaims")
	stdout, stderr, code := ask(t, client, "devices")
	if code != 0 || strings.Contains(stdout, "free") || !strings.Contains(stdout, "unknown") || !strings.Contains(stderr, "the claims of devices are unknown") {
		t.Errorf("exit code %d, %s\n%s", code, stderr, stdout)
	}
}

// TestDocuments: what programs read has the rows of the tables.
func TestDocuments(t *testing.T) {
	stdout, _, _ := ask(t, sample(t), "devices", "-o", "json")
	if doc := documentOf[struct{ Devices []fleet.Device }](t, stdout); len(doc.Devices) != 10 || doc.Devices[0].Claim != "team-a/lab" {
		t.Errorf("devices: %+v", doc)
	}
	stdout, _, _ = ask(t, sample(t), "claims", "-A", "-o", "json")
	claims := documentOf[struct{ Claims []fleet.Claim }](t, stdout)
	if len(claims.Claims) != 5 || claims.Claims[3].Devices[0].Ledger == "" || claims.Claims[3].Devices[0].Functions[0] != "0000:3c:00.0" {
		t.Errorf("claims: %+v", claims)
	}
	for line, want := range map[string]string{
		"devices -o yaml": "devices:\n- address: ", "topology -o json": "{\n  \"nodes\": [\n", "audit -o json": "{\n  \"nodes\": [\n",
		"explain GroupNotViable -o json": "{\n  \"code\": \"GroupNotViable\",\n", "explain train-gpu -o yaml": "moments:\n", "explain train-gpu -o json": "{\n  \"subject\": \"claim team-a/train-gpu\",\n",
	} {
		if stdout, stderr, _ := ask(t, sample(t), strings.Fields(line)...); !strings.HasPrefix(stdout, want) {
			t.Errorf("%s: %s\n%s", line, stderr, stdout)
		}
	}
}

// TestClaimsThatWereNotSeenAreNotCounted as none.
func TestClaimsThatWereNotSeenAreNotCounted(t *testing.T) {
	client := sample(t)
	forbid(client, "resourceclaims")
	stdout, _, _ := ask(t, client, "audit", "worker-2")
	if row := strings.Fields(strings.Split(stdout, "\n")[1]); len(row) < 8 || row[7] != "?" {
		t.Errorf("%q:\n%s", row, stdout)
	}
}

// TestEmptyCluster is not an error.
func TestEmptyCluster(t *testing.T) {
	for line, want := range map[string]string{
		"devices": "no node publishes a device\n", "claims": "no claim for a device of kata-vfio in namespace team-a (-A: in all)\n", "claims -A": "no claim for a device of kata-vfio\n", "topology": "no node publishes a device\n",
		"audit": "no node publishes a device\n", "devices -o json": "{\n  \"devices\": []\n}\n", "claims -o json": "{\n  \"claims\": []\n}\n",
		"topology -o json": "{\n  \"nodes\": []\n}\n", "audit -o json": "{\n  \"nodes\": []\n}\n",
	} {
		if stdout, stderr, code := ask(t, client(nil), strings.Fields(line)...); code != 0 || stdout != want || stderr != "" {
			t.Errorf("%s: exit code %d, %s\n%s", line, code, stderr, stdout)
		}
	}
}

// hostile does on a terminal what it likes, if it is let.
const hostile = "x\x1b[2J\u202e\x1b]8;;http://evil\x1b\\\n\u009b1m"

// TestHostileTextsDoNothing: all that comes from the API is seen, not obeyed.
func TestHostileTextsDoNothing(t *testing.T) {
	var objects []runtime.Object
	for _, o := range sampleObjects(t) {
		objects = append(objects, poisoned(t, o))
	}
	for _, line := range []string{
		"devices", "devices -o wide", "devices -o json", "devices -o yaml", "claims -A -o wide", "claims -A -o json", "topology", "topology -o json",
		"audit -o wide", "audit -o json", "explain claim/train-gpu", "explain pod/train", "explain worker-1/gpu-0000-3c-00-0", "explain pod/train -o json",
	} {
		stdout, stderr, _ := ask(t, client(objects), strings.Fields(line)...)
		if strings.Count(stdout, "x") == 0 || !strings.Contains(stdout, `\x1b`) && !strings.Contains(stdout, `\u001b`) && !strings.Contains(line, "yaml") && !strings.HasPrefix(line, "audit") {
			t.Errorf("%s shows nothing of it: %s\n%s", line, stderr, stdout)
		}
		for _, text := range []string{stdout, stderr} {
			if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && output.Obeyed(r) }); i >= 0 {
				t.Errorf("%s writes %q", line, text[i:min(i+20, len(text))])
			}
		}
	}
}

// poisoned puts the hostile text wherever the API server would let somebody, and where
// it would not.
func poisoned(t *testing.T, o runtime.Object) runtime.Object {
	t.Helper()
	switch o := o.(type) {
	case *resourceapi.ResourceSlice:
		for i := range o.Spec.Devices {
			d := &o.Spec.Devices[i]
			for name, a := range d.Attributes {
				if a.StringValue != nil {
					d.Attributes[name] = resourceapi.DeviceAttribute{StringValue: new(*a.StringValue + hostile)}
				}
			}
			for j := range d.Taints {
				d.Taints[j].Value += hostile
			}
			d.Taints = append(d.Taints, resourceapi.DeviceTaint{Key: hostile, Effect: resourceapi.DeviceTaintEffectNoSchedule})
		}
	case *resourceapi.ResourceClaim:
		for i := range o.Status.Devices {
			d := &o.Status.Devices[i]
			d.NetworkData = &resourceapi.NetworkDeviceData{HardwareAddress: hostile, InterfaceName: hostile, IPs: []string{hostile}}
			for j := range d.Conditions {
				d.Conditions[j].Reason += hostile
				d.Conditions[j].Message += hostile
			}
		}
	case *corev1.Pod:
		o.Spec.RuntimeClassName = new(hostile)
		o.Status.Phase = hostile
	case *corev1.Event:
		o.Reason += hostile
		o.Message += hostile
	}
	return o
}

// TestCompletion: by kubectl's way of asking plugins.
func TestCompletion(t *testing.T) {
	stdout, _, _ := ask(t, sample(t), "completion")
	file := filepath.Join(t.TempDir(), "kubectl_complete-kata_vfio")
	if err := os.WriteFile(file, []byte(stdout), 0o700); err != nil || !strings.HasPrefix(stdout, "#!/bin/sh\n") {
		t.Fatalf("%v: %s", err, stdout)
	}
	for line, want := range map[string]string{
		"devices --node ": "worker-1\nworker-2\nworker-3\n:4\n", "topology ": "worker-1\nworker-2\nworker-3\n:4\n", "audit --fail-on ": "critical\nhigh\n",
		"explain ": "lab\ntrain\ntrain-gpu\ntrain-net\nworker-1/gpu-0000-3b-00-0\n", "devices -o ": "table\nwide\njson\nyaml\n", "topology worker-1 ": ":4\n",
		"conformance -o ": "table\njson\nyaml\n:4\n", "conformance ": ":4\n",
	} {
		words := append([]string{"__complete"}, strings.Split(line, " ")...)
		if stdout, _, _ := ask(t, sample(t), words...); !strings.HasPrefix(stdout, want) {
			t.Errorf("%q is completed by %s", line, stdout)
		}
	}
}

// TestClusterThatCanNotBeFound is the user's to name.
func TestClusterThatCanNotBeFound(t *testing.T) {
	err := run(t.Context(), []string{"devices", "--kubeconfig", filepath.Join(t.TempDir(), "none")}, os.Stdout, os.Stderr)
	if exitCode(err) != command.Usage || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("%v", err)
	}
}

func TestCommandsAreAlike(t *testing.T) {
	commandtest.Check(t, newSession().root(io.Discard, io.Discard))
}

package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

const stages = `apiVersion: resource.kata-vfio.dev/v1alpha1
kind: Sanitizers
namespace: kata-vfio-sanitizing
deviceClass: sanitize.kata-vfio.dev
profiles:
- {name: memory, image: registry.example/s` + digest + `, args: [memory], resources: {limits: {cpu: "1"}}}
- {name: nvme, image: registry.example/s` + digest + `, args: [nvme], runtimeClass: kata-vfio, timeoutSeconds: 7200, maxParallel: 2, firmware: Require, privileged: true}
`

func TestDecodeSanitizers(t *testing.T) {
	got, err := v1alpha1.DecodeSanitizers([]byte(stages))
	if err != nil {
		t.Fatal(err)
	}
	memory, ok := got.Profile("memory")
	want := v1alpha1.Sanitizer{
		Name: "memory", Image: "registry.example/s" + digest, Args: []string{"memory"}, Resources: []byte(`{"limits":{"cpu":"1"}}`),
		RuntimeClass: "kata-gpu", TimeoutSeconds: 1800, MaxParallel: 10, Firmware: v1alpha1.FirmwareRecord,
	}
	if diff := cmp.Diff(want, memory); !ok || diff != "" {
		t.Errorf("profile memory (-want +got):\n%s", diff)
	}
	if got, want := memory.Digest(), digest[1:]; got != want {
		t.Errorf("digest: got %q, want %q", got, want)
	}
	if _, ok := got.Profile("gpu"); ok {
		t.Error("got a profile that is not in the document")
	}
	if _, ok := (*v1alpha1.Sanitizers)(nil).Profile("memory"); ok {
		t.Error("got a profile of no document")
	}
}

func TestDecodeSanitizersRefuses(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"an image by tag", "s" + digest + ", args: [memory]", "s:latest, args: [memory]", "profiles[0].image: \"registry.example/s:latest\" has no digest"},
		{"a digest of wrong length", digest + ", args: [memory]", "@sha256:01, args: [memory]", "profiles[0].image"},
		{"two profiles of one name", "name: nvme", "name: memory", `profiles[1].name: "memory" is the name of profiles[0] too`},
		{"a name that is not a label", "name: nvme", "name: NVMe", "profiles[1].name"},
		{"no namespace", "namespace: kata-vfio-sanitizing\n", "", "namespace: \"\" is not the name of a namespace"},
		{"a class that is not a name", "sanitize.kata-vfio.dev", "Sanitize", "deviceClass"},
		{"a negative timeout", "7200", "-1", "profiles[1].timeoutSeconds: -1 is out of range"},
		{"a timeout of days", "7200", "90000", "profiles[1].timeoutSeconds: 90000 is out of range"},
		{"too many at a time", "maxParallel: 2", "maxParallel: 2000", "profiles[1].maxParallel"},
		{"an unknown policy", "Require", "Ignore", "profiles[1].firmware"},
		{"resources that are a list", `{limits: {cpu: "1"}}`, "[1]", "profiles[0].resources: [1] is not an object"},
		{"an unknown field", "privileged: true", "hostNetwork: true", "hostNetwork"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(stages, c.old, c.new, 1)
			if text == stages {
				t.Fatal("the case changes nothing")
			}
			_, err := v1alpha1.DecodeSanitizers([]byte(text))
			if err == nil || !strings.Contains(withoutLines(err), c.want) {
				t.Errorf("got error %v, want %q", err, c.want)
			}
		})
	}
}

func TestRuleNamesItsSanitizer(t *testing.T) {
	const config = `apiVersion: resource.kata-vfio.dev/v1alpha1
kind: NodeConfig
devices:
- {match: {types: [gpu]}, sanitize: {profile: memory}}
- {match: {types: [nvme]}, sanitize: {profile: nvme, when: BeforeClaim}}
`
	got, err := v1alpha1.DecodeNodeConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []v1alpha1.SanitizeRule{{Profile: "memory", When: v1alpha1.SanitizeRelease}, {Profile: "nvme", When: v1alpha1.SanitizeBeforeClaim}} {
		if got := got.Devices[i].Sanitize; got == nil || *got != want {
			t.Errorf("rule %d: got %+v, want %+v", i, got, want)
		}
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"no profile", "{profile: memory}", "{when: Release}", "devices[0].sanitize.profile"},
		{"an unknown time", "BeforeClaim", "Never", "devices[1].sanitize.when"},
		{"a GPU that containers use, too", "sanitize: {profile: memory}", "sharedWith: gpu.nvidia.com, sanitize: {profile: memory}", "devices[0].sanitize: can't be combined with sharedWith"},
		{"an excluded device", "sanitize: {profile: memory}", "exclude: true, sanitize: {profile: memory}", "devices[0].sanitize: says nothing where exclude is true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := v1alpha1.DecodeNodeConfig([]byte(strings.Replace(config, c.old, c.new, 1)))
			if err == nil || !strings.Contains(withoutLines(err), c.want) {
				t.Errorf("got error %v, want %q", err, c.want)
			}
		})
	}
}

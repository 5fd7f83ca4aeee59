package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// rulesIn returns what the cluster's rules select, with their effect.
func rulesIn(t *testing.T, c *fake.Clientset) (all []string) {
	t.Helper()
	list, err := c.ResourceV1().DeviceTaintRules().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		s, taint := list.Items[i].Spec.DeviceSelector, list.Items[i].Spec.Taint
		text := *s.Pool
		if s.Device != nil {
			text += "/" + *s.Device
		}
		if *s.Driver != "kata-vfio.dev" || taint.Key != publish.TaintDrain {
			t.Errorf("rule %s: driver %s, taint %s", list.Items[i].Name, *s.Driver, taint.Key)
		}
		all = append(all, text+" "+string(taint.Effect))
	}
	slices.Sort(all)
	return all
}

// TestDrainOfANode taints each of its pools, once, and undrain ends it; a drain of one of its devices stays.
func TestDrainOfANode(t *testing.T) {
	c := sample(t)
	for range 2 { // it may be repeated
		stdout, stderr, code := ask(t, c, "drain", "worker-1", "--reason", "new firmware")
		if code != 0 || !strings.Contains(stdout, "worker-1 is drained: no new claim gets its ") || !strings.Contains(stdout, "team-a/train-gpu has one") {
			t.Fatalf("exit code %d:\n%s%s", code, stdout, stderr)
		}
	}
	whole := rulesIn(t, c)
	if len(whole) == 0 || slices.ContainsFunc(whole, func(r string) bool {
		return !strings.HasPrefix(r, "worker-1/kata-vfio.dev") || !strings.HasSuffix(r, " NoSchedule")
	}) {
		t.Errorf("rules %q, want one for each pool of worker-1", whole)
	}
	if _, _, code := ask(t, c, "drain", "worker-1/0000:3b:00.0", "--evict"); code != 0 {
		t.Errorf("exit code %d of the device's drain", code)
	}
	stdout, _, _ := ask(t, c, "status")
	for _, want := range []string{"drain of worker-1 since", "(NoSchedule): new firmware", "drain of worker-1/gpu-0000-3b-00-0 since", "(NoExecute)"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("status lacks %q:\n%s", want, stdout)
		}
	}
	if stdout, stderr, code := ask(t, c, "undrain", "worker-1"); code != 0 || strings.Count(stdout, "deleted DeviceTaintRule") != len(whole) {
		t.Errorf("undrain: exit code %d:\n%s%s", code, stdout, stderr)
	}
	if left := rulesIn(t, c); slices.ContainsFunc(left, func(r string) bool { return !strings.HasSuffix(r, " NoExecute") }) || len(left) == 0 {
		t.Errorf("after undrain: %q, want those of the device", left)
	}
	if _, stderr, code := ask(t, c, "undrain", "worker-1"); code != exitNotFound || !strings.Contains(stderr, "there is no drain of worker-1") {
		t.Errorf("undrain again: exit code %d, %s", code, stderr)
	}
}

// TestDrainsAreSeen by who looks at devices, and by who waits for one.
func TestDrainsAreSeen(t *testing.T) {
	c := sample(t)
	if _, stderr, code := ask(t, c, "drain", "worker-1", "--reason", "new firmware"); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	waits := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "waits", UID: "waits"}}
	waits.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.kata-vfio.dev"}}}
	if err := c.Tracker().Add(waits); err != nil {
		t.Fatal(err)
	}
	for _, look := range []struct {
		args []string
		want []string
	}{
		{[]string{"devices", "--node", "worker-1", "-o", "json"}, []string{`"drain=ByRule"`}},
		{[]string{"topology"}, []string{"7 devices, 3 claimed, 4 tainted", "tainted: drain"}},
		{[]string{"explain", "device/worker-1/gpu-0000-3b-00-0"}, []string{
			"taint drain=ByRule", "an operator is taking worker-1 out of use, by DeviceTaintRule kata-vfio-drain-", ": new firmware", "kubectl kata-vfio undrain worker-1",
		}},
		{[]string{"explain", "claim/waits", "-n", "team-a"}, []string{"taken out of use by an operator: worker-1"}},
	} {
		stdout, stderr, _ := ask(t, c, look.args...)
		text := strings.Join(strings.Fields(stdout), " ")
		for _, want := range look.want {
			if !strings.Contains(text, want) {
				t.Errorf("%v lacks %q: %s\n%s", look.args, want, stderr, stdout)
			}
		}
	}
}

// TestDrainOfADevice takes the pairs of a GPU with it: they are the same hardware.
func TestDrainOfADevice(t *testing.T) {
	c := sample(t)
	stdout, stderr, code := ask(t, c, "drain", "worker-1/gpu-0000-3b-00-0", "-o", "json")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	report := documentOf[drainReport](t, stdout)
	if !slices.Contains(report.Devices, "worker-1/gpu-0000-3b-00-0") || len(report.Rules) != len(report.Devices) || !slices.Equal(report.Claims, []string{"team-a/lab"}) {
		t.Errorf("%+v, want a rule for the GPU and each of its pairs, and team-a/lab", report)
	}
	for _, r := range rulesIn(t, c) {
		if !strings.Contains(r, "0000-3b-00-0") {
			t.Errorf("a rule for %s", r)
		}
	}
}

// TestDrainsOverlap: each has rules of its own, so that the end of one leaves the others; a device is known by its name and its address.
func TestDrainsOverlap(t *testing.T) {
	c := sample(t)
	stdout, _, _ := ask(t, c, "drain", "worker-1/0000:3c:00.0", "-o", "json")
	report := documentOf[drainReport](t, stdout)
	i := slices.IndexFunc(report.Devices, func(d string) bool { return d != "worker-1/gpu-0000-3c-00-0" })
	if i < 0 {
		t.Fatalf("%q, want a pair of the GPU", report.Devices)
	}
	before := len(rulesIn(t, c))
	pair := report.Devices[i]
	if _, stderr, code := ask(t, c, "drain", pair); code != 0 || len(rulesIn(t, c)) <= before {
		t.Errorf("drain of %s: exit code %d, %d rules, want more than %d; %s", pair, code, len(rulesIn(t, c)), before, stderr)
	}
	if _, stderr, code := ask(t, c, "undrain", "worker-1/gpu-0000-3c-00-0"); code != 0 || len(rulesIn(t, c)) == 0 {
		t.Errorf("undrain by name: exit code %d, %d rules left; %s", code, len(rulesIn(t, c)), stderr)
	}
	if _, stderr, code := ask(t, c, "undrain", pair); code != 0 || len(rulesIn(t, c)) != 0 {
		t.Errorf("undrain of the pair: exit code %d, rules %q; %s", code, rulesIn(t, c), stderr)
	}
}

// TestDrainFindsAnotherRule of its name, and does not say that the device is drained.
func TestDrainFindsAnotherRule(t *testing.T) {
	c := sample(t)
	if _, _, code := ask(t, c, "drain", "worker-1/gpu-0000-3b-00-0"); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	list, err := c.ResourceV1().DeviceTaintRules().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed := &list.Items[0]
	changed.Spec.DeviceSelector.Device = new("another")
	if _, err := c.ResourceV1().DeviceTaintRules().Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, code := ask(t, c, "drain", "worker-1/gpu-0000-3b-00-0"); code != 1 || !strings.Contains(stderr, "is not the drain's") || strings.Contains(stdout, "is drained") {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
}

// TestDrainedDevicesAreNotTested: a claim would not get them.
func TestDrainedDevicesAreNotTested(t *testing.T) {
	c := testedCluster(t, wellDone())
	args := []string{"test", "--class", "vf.kata-vfio.dev", "--dry-run"}
	if stdout, _, code := ask(t, c, args...); code != 0 || !strings.Contains(stdout, "worker-1") {
		t.Fatalf("before: exit code %d:\n%s", code, stdout)
	}
	if _, stderr, code := ask(t, c, "drain", "worker-1"); code != 0 {
		t.Fatalf("drain: exit code %d: %s", code, stderr)
	}
	if stdout, _, _ := ask(t, c, args...); strings.Contains(stdout, "worker-1") {
		t.Errorf("drained devices would be tested:\n%s", stdout)
	}
}

// TestDrainThatChangesNothing: a dry run, and targets that do not exist.
func TestDrainThatChangesNothing(t *testing.T) {
	c := sample(t)
	if stdout, _, code := ask(t, c, "drain", "worker-1", "--dry-run"); code != 0 || !strings.Contains(stdout, "worker-1 would be drained") {
		t.Errorf("dry run: exit code %d:\n%s", code, stdout)
	}
	for target, says := range map[string]string{
		"worker-9":                  "there is no node worker-9 with devices of kata-vfio",
		"worker-1/gpu-0000-99-00-0": "there is no device gpu-0000-99-00-0 on node worker-1",
	} {
		if _, stderr, code := ask(t, c, "drain", target); code != exitNotFound || !strings.Contains(stderr, says) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", target, code, stderr, exitNotFound, says)
		}
	}
	if rules := rulesIn(t, c); len(rules) > 0 {
		t.Errorf("rules %q", rules)
	}
}

// TestDrainWaitsForPoolsThatAreWritten: a pool between two generations hides devices, and the claims that have them. A node's rules do not
// wait, because a plugin that hangs is a reason to drain its node.
func TestDrainWaitsForPoolsThatAreWritten(t *testing.T) {
	const (
		hidden     = "worker-1-pf-a"
		unfinished = "the plugin is still writing pool worker-1/kata-vfio.dev/pf-0000-5e-00-0"
	)
	c := sample(t)
	pools := c.ResourceV1().ResourceSlices()
	s, err := pools.Get(t.Context(), hidden, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pools.Delete(t.Context(), hidden, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// A device of that pool, and one that may be in it.
	for _, target := range []string{"worker-1/0000:5e:00.2", "worker-1/gpu-0000-99-00-0"} {
		_, stderr, code := ask(t, c, "drain", target, "--timeout", "1ms")
		if code != exitFindings || !strings.Contains(stderr, unfinished) || !strings.Contains(stderr, "nothing is drained") || len(rulesIn(t, c)) > 0 {
			t.Errorf("%s: exit code %d, rules %q: %s", target, code, rulesIn(t, c), stderr)
		}
	}
	if _, stderr, code := ask(t, c, "drain", "worker-1/gpu-0000-3b-00-0", "--dry-run", "--timeout", "1ms"); code != 0 {
		t.Errorf("a device of a complete pool: exit code %d: %s", code, stderr)
	}
	stdout, stderr, code := ask(t, c, "drain", "worker-1", "--timeout", "1ms", "--dry-run")
	if code != exitFindings || !strings.Contains(stderr, "nothing was changed") || len(rulesIn(t, c)) > 0 {
		t.Errorf("a node, dry: exit code %d, rules %q:\n%s%s", code, rulesIn(t, c), stdout, stderr)
	}
	stdout, stderr, code = ask(t, c, "drain", "worker-1", "--wait", "--timeout", "1ms")
	if code != exitFindings || !strings.Contains(stderr, unfinished) || !strings.Contains(stderr, "the rules stay") {
		t.Errorf("a node: exit code %d:\n%s%s", code, stdout, stderr)
	}
	if rules := rulesIn(t, c); len(rules) != 2 {
		t.Errorf("rules %q, want one for each pool: they need no devices", rules)
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = c.Tracker().Add(s) })
	if stdout, stderr, code = ask(t, c, "drain", "worker-1"); code != 0 || !strings.Contains(stderr, "waits for the plugin") || !strings.Contains(stdout, "worker-1 is drained") {
		t.Errorf("after the write: exit code %d:\n%s%s", code, stdout, stderr)
	}
	if rules := rulesIn(t, c); len(rules) != 2 {
		t.Errorf("rules %q, want one for each pool", rules)
	}
}

// TestDrainOfANodeTaintsPoolsWithoutDevices, which can get some.
func TestDrainOfANodeTaintsPoolsWithoutDevices(t *testing.T) {
	c := sample(t)
	pools := c.ResourceV1().ResourceSlices()
	if err := pools.Delete(t.Context(), "worker-1-pf-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := pools.Get(t.Context(), "worker-1-pf-b", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Spec.Pool.ResourceSliceCount = 1
	if _, err := pools.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, stderr, code := ask(t, c, "drain", "worker-1")
	if rules := rulesIn(t, c); code != 0 || !slices.Contains(rules, "worker-1/kata-vfio.dev/pf-0000-5e-00-0 NoSchedule") {
		t.Errorf("exit code %d, rules %q: %s", code, rules, stderr)
	}
}

// TestDrainWaits until the claims are gone, or says which are not.
func TestDrainWaits(t *testing.T) {
	c := sample(t)
	stdout, stderr, code := ask(t, c, "drain", "worker-1/gpu-0000-3b-00-0", "--wait", "--timeout", "1ms")
	if code != exitFindings || !strings.Contains(stderr, "waits for team-a/lab") || !strings.Contains(stderr, "1 claim has devices of worker-1/gpu-0000-3b-00-0") {
		t.Errorf("exit code %d:\n%s%s", code, stdout, stderr)
	}
	time.AfterFunc(100*time.Millisecond, func() {
		_ = c.Tracker().Delete(resourceapi.SchemeGroupVersion.WithResource("resourceclaims"), "team-a", "lab")
	})
	if stdout, stderr, code := ask(t, c, "drain", "worker-1/gpu-0000-3b-00-0", "--wait"); code != 0 || !strings.Contains(stdout, "no claim has one") {
		t.Errorf("after the claim's end: exit code %d:\n%s%s", code, stdout, stderr)
	}
}

// TestDrainThatIsRefused says what is missing: a right, or a newer Kubernetes.
func TestDrainThatIsRefused(t *testing.T) {
	resource := resourceapi.SchemeGroupVersion.WithResource("devicetaintrules").GroupResource()
	for name, want := range map[string]struct {
		err  error
		code int
		says string
	}{
		"no right":            {errors.NewForbidden(resource, "x", nil), exitForbidden, "README.md has the roles"},
		"an older Kubernetes": {errors.NewNotFound(resource, ""), 1, "Kubernetes 1.37"},
	} {
		c := sample(t)
		c.PrependReactor("create", "devicetaintrules", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, want.err })
		if _, stderr, code := ask(t, c, "drain", "worker-1"); code != want.code || !strings.Contains(stderr, want.says) {
			t.Errorf("%s: exit code %d, %q; want %d, %q", name, code, stderr, want.code, want.says)
		}
	}
}

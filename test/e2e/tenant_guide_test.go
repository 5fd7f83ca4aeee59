//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/controller"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/test/docs"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
)

// tenantGuide is the document whose commands are run.
const tenantGuide = "deploy/guides/tenants.md"

// guideCommands are the lines of its blocks, in their order. Each is run as it stands here, with the namespace.
var guideCommands = []string{
	"kubectl kata-vfio classes",
	"kubectl kata-vfio lint -f pod.yaml",
	"kustomize build overlays/team-a | kubectl kata-vfio lint -f -",
	"kubectl apply -f pod.yaml",
	"kubectl kata-vfio explain gpu -w",
}

// guided is a tenant who follows the guide.
type guided struct {
	*shownTo
	ns, dir string
}

// TestTenantFollowsTheGuide, with no role but `edit` in its namespace, from the first command to a pod that is ready. Kubelet and
// plugin of the node are imitated: they write what they find.
func TestTenantFollowsTheGuide(t *testing.T) {
	const node = "e2e-guide"
	if diff := cmp.Diff(guideCommands, strings.Split(strings.TrimSpace(commandsOf(docs.Steps(t, tenantGuide, "Ask for devices"))), "\n")); diff != "" {
		t.Fatalf("the guide's commands are not those of this test (-test +guide):\n%s", diff)
	}
	p := installed(t)
	tenant := &guided{&shownTo{p, buildPlugin(t), controlplane.User{Name: "tess"}}, tenantNamespace(t, p), t.TempDir()}
	bind(t, p, "edit", tenant.user.Name, tenant.ns)
	addFitNode(t, p, node)
	keepReady(t, p, node)
	plugin := pluginOn(t, p, node)
	published(t, p, plugin.ResourceV1().ResourceSlices(), slice(driver, node, node, full("gpu-0000-3b-00-0", "gpu")))
	must(t, tenant.gives(t, guideCommands[0], "", 4, "kubectl.classes.enabled"))
	applyController(t, p, fmt.Sprintf("kubectl: {classes: {enabled: true, readers: [{kind: User, name: %s}]}}", tenant.user.Name))
	runsDaemon(t, &controller.Daemon{Cluster: asController(t, p), Classes: true, Identity: "guide"})
	t.Run("SeesWhatItMayAskFor", tenant.seesClasses)
	pod := examples(t)["gpu-pod.yaml"]
	if err := os.WriteFile(filepath.Join(tenant.dir, "pod.yaml"), []byte(pod), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("ChecksItsManifest", func(t *testing.T) { tenant.lints(t, pod) })
	t.Run("SeesWhatThePodWaitsFor", func(t *testing.T) { tenant.waits(t, plugin, node) })
}

// command is a line of the guide, as the tenant gives it in its directory.
func (g *guided) command(t *testing.T, line string) *exec.Cmd {
	t.Helper()
	words := slices.Concat(strings.Fields(line)[1:], []string{"-n", g.ns})
	cmd, err := g.plane.KubectlAs(t.Context(), g.user, g.plugins, words...)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Dir = g.dir
	return cmd
}

// gives runs a line of the guide with a standard input, and compares the exit code and a part of what is written.
func (g *guided) gives(t *testing.T, line, stdin string, code int, want string) error {
	t.Helper()
	cmd := g.command(t, line)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s$ %s\n%s", g.user.Name, line, out)
	if got != code || !bytes.Contains(out, []byte(want)) {
		return fmt.Errorf("%s: exit code %d, want %d and %q:\n%s", line, got, code, want, out)
	}
	return nil
}

// must fails the test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// seesClasses is the guide's first step, once the admin has switched the view on.
func (g *guided) seesClasses(t *testing.T) {
	until(t, "the view is there", func(context.Context) error {
		return g.gives(t, guideCommands[0], "", 0, "gpu.kata-vfio.dev")
	})
	stdout, _, _ := g.ask(t, "kata-vfio classes -n "+g.ns)
	for line := range strings.Lines(stdout) {
		if words := strings.Fields(line); words[0] == "gpu."+driver && words[1] != "1" {
			t.Errorf("%s free devices of the class, want 1:\n%s", words[1], stdout)
		}
	}
}

// lints is the third step: the example passes, and without its RuntimeClass it does not.
func (g *guided) lints(t *testing.T, pod string) {
	must(t, g.gives(t, guideCommands[1], "", 0, ""))
	if _, stderr, code := g.ask(t, "kata-vfio lint --cluster -n "+g.ns+" -f "+filepath.Join(g.dir, "pod.yaml")); code != 0 || strings.Contains(stderr, "DeviceClasses could not be read") {
		t.Errorf("with --cluster: exit code %d, want 0 and the DeviceClasses: %s", code, stderr)
	}
	_, lint, _ := strings.Cut(guideCommands[2], " | ") // of kustomize only the output counts
	must(t, g.gives(t, lint, pod, 0, ""))
	must(t, g.gives(t, lint, strings.ReplaceAll(pod, "  runtimeClassName: kata-gpu\n", ""), 3, "NoRuntimeClass"))
}

// waits is the fourth step. The words of the watch follow what the cluster does.
func (g *guided) waits(t *testing.T, plugin *kubernetes.Clientset, node string) {
	watch := g.follows(t, guideCommands[4])
	watch.says("is not there yet", "there is no claim or pod")
	must(t, g.gives(t, guideCommands[3], "", 0, "pod/gpu created"))
	watch.says("which has not said that they are ready")
	claim := awaitClaim(t, client(t, g.plane, controlplane.Admin()), g.ns)
	saysReady(t, plugin, claim)
	watch.says("is ready on node " + node)
	runsOn(t, g.plane, node, g.ns, "gpu")
	watch.says("pod " + g.ns + "/gpu is Running")
	watch.ends()
	until(t, "there is nothing to do", func(context.Context) error {
		return g.gives(t, strings.TrimSuffix(guideCommands[4], " -w"), "", 0, "nothing to do")
	})
	must(t, g.gives(t, "kubectl kata-vfio explain NoRuntimeClass", "", 0, "runtimeClassName"))
}

// awaitClaim waits until the pod's claim is allocated.
func awaitClaim(t *testing.T, admin *kubernetes.Clientset, ns string) (claim *resourcev1.ResourceClaim) {
	t.Helper()
	until(t, "the claim of the template is allocated", func(ctx context.Context) error {
		list, err := admin.ResourceV1().ResourceClaims(ns).List(ctx, metav1.ListOptions{})
		if err == nil && (len(list.Items) != 1 || list.Items[0].Status.Allocation == nil) {
			err = fmt.Errorf("%d claims; %s", len(list.Items), waiting(ctx, admin, ns))
		}
		if err == nil {
			claim = &list.Items[0]
		}
		return err
	})
	return claim
}

// saysReady has the plugin say what it says of a claim that it has prepared.
func saysReady(t *testing.T, plugin *kubernetes.Clientset, claim *resourcev1.ResourceClaim) {
	t.Helper()
	given := claim.Status.Allocation.Devices.Results[0]
	status := resourceac.AllocatedDeviceStatus().WithDriver(given.Driver).WithPool(given.Pool).WithDevice(given.Device)
	for _, kind := range []string{dra.ConditionReady, "Isolated", "Reset"} {
		status.WithConditions(metaac.Condition().WithType(kind).WithStatus(metav1.ConditionTrue).WithReason("Test").WithMessage("imitated").WithLastTransitionTime(metav1.Now()))
	}
	_, err := plugin.ResourceV1().ResourceClaims(claim.Namespace).ApplyStatus(t.Context(),
		resourceac.ResourceClaim(claim.Name, claim.Namespace).WithUID(claim.UID).WithStatus(resourceac.ResourceClaimStatus().WithDevices(status)),
		metav1.ApplyOptions{FieldManager: driver, Force: true})
	must(t, err)
}

// runsOn has the node's kubelet say that a pod runs.
func runsOn(t *testing.T, p *controlplane.ControlPlane, node, ns, name string) {
	t.Helper()
	kubelet := client(t, p, controlplane.NodeIdentity(node)).CoreV1().Pods(ns)
	until(t, "the kubelet has said that the pod runs", func(ctx context.Context) error {
		pod, err := kubelet.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = append(slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady }),
			corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", Ready: true, Image: pod.Spec.Containers[0].Image, ImageID: "imitated", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
		_, err = kubelet.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	})
}

// followed is a command that goes on.
type followed struct {
	t   *testing.T
	cmd *exec.Cmd

	mu      sync.Mutex // guards written
	written strings.Builder
	done    chan struct{}
}

// follows starts a line of the guide.
func (g *guided) follows(t *testing.T, line string) *followed {
	t.Helper()
	f := &followed{t: t, cmd: g.command(t, line), done: make(chan struct{})}
	stdout, err := f.cmd.StdoutPipe()
	must(t, err)
	must(t, f.cmd.Start())
	go func() {
		defer close(f.done)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			f.mu.Lock()
			f.written.WriteString(lines.Text() + "\n")
			f.mu.Unlock()
		}
	}()
	return f
}

// says waits until one of the texts has been written.
func (f *followed) says(texts ...string) {
	f.t.Helper()
	until(f.t, fmt.Sprintf("the watch says one of %q", texts), func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		all := strings.Join(strings.Fields(f.written.String()), " ") // lines are wrapped
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(all, text) }) {
			return fmt.Errorf("it has written %q", all)
		}
		return nil
	})
}

// ends interrupts the command, which is a good end.
func (f *followed) ends() {
	f.t.Helper()
	must(f.t, f.cmd.Process.Signal(os.Interrupt))
	<-f.done
	if err := f.cmd.Wait(); err != nil {
		f.t.Errorf("it ends with %v", err)
	}
	f.t.Logf("it has written:\n%s", f.written.String())
}

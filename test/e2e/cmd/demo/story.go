package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/e2e/process"
	"github.com/kata-vfio/kata-vfio/test/internal/await"
	"github.com/kata-vfio/kata-vfio/test/lab"
)

// story is the part with a cluster.
type story struct {
	out     io.Writer
	begin   time.Time
	chapter int
	flags
	plane *controlplane.ControlPlane
	node  *node.Node
	image string // the sanitizer's, by its digest
}

func newStory(out io.Writer, f flags) *story { return &story{out: out, begin: time.Now(), flags: f} }

// play starts the cluster, tells the story and ends the cluster.
func (s *story) play(ctx context.Context) error {
	s.title("A cluster: a real control plane on this host, a node with kubelet and containerd in the lab machine")
	var err error
	if s.plane, err = controlplane.Start(ctx, controlplane.Config{Progress: s.out}); err != nil {
		return err
	}
	defer s.plane.Stop()
	if s.node, err = node.Start(ctx, node.Config{
		Plane: s.plane, Progress: s.out, Programs: map[string]string{"kata-vfio-audit": s.auditor}, Sanitizer: s.sanitizer, Board: true,
		Machine: lab.Config{KernelArgs: []string{"init_on_alloc=1"}}, // the kernel's default, but the image has no file that says so
	}); err != nil {
		return err
	}
	defer s.node.Stop() //nolint:contextcheck // ctx may be over, and the node is to be removed all the same
	for _, chapter := range []func(context.Context) error{
		s.install, s.apply, s.inside, s.describe, s.attacks, s.neighbor, s.auditClean, s.auditFault, s.remove,
		s.partition, s.leak, s.sanitize, s.network, s.exclusive, // after the stage is switched on, each use of its GPU ends with one
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	s.say("\nDone in %.0f s. The audit's report, with the fault in it, is %s.", time.Since(s.begin).Seconds(), s.report)
	return nil
}

func (s *story) install(ctx context.Context) error {
	s.title("Install: the chart, and the label on the node")
	s.say("$ helm install kata-vfio %s --namespace %s\n$ kubectl label node %s kata-vfio.dev/node=true",
		s.chart, node.PluginNamespace, s.node.Name())
	if err := s.node.InstallPlugin(ctx, s.chart); err != nil {
		return err
	}
	if err := s.show(ctx, "get", "daemonset,pods", "--namespace", node.PluginNamespace); err != nil {
		return err
	}
	if err := s.show(ctx, "get", "deviceclasses,runtimeclasses"); err != nil {
		return err
	}
	return s.show(ctx, "get", "resourceslices", "-o", slicesView)
}

// slicesView is a line for each device: what tenants' claims choose by.
const slicesView = `jsonpath={range .items[*].spec.devices[*]}{.name}{"\t"}{.attributes.type.string}{"\t"}` +
	`{.attributes.resource\.kubernetes\.io/pciBusID.string}{"\tisolated="}{.attributes.isolated.bool}{"\n"}{end}`

// The example's image and limits are for a cluster with a registry and room.
var (
	exampleImage  = regexp.MustCompile(`image: \S+(\n +command: .*)?`)
	exampleLimits = regexp.MustCompile(`limits: \{.*\}`)
)

// tenant is a namespace that the chart's policies for tenants hold in.
const tenant = `
apiVersion: v1
kind: Namespace
metadata: {name: team-a, labels: {kata-vfio.dev/tenant: team-a}}
`

func (s *story) apply(ctx context.Context) error {
	s.title("A tenant applies a pod with a claim: " + s.example)
	if _, err := s.plane.KubectlInput(ctx, strings.NewReader(tenant), "apply", "-f", "-"); err != nil {
		return err
	}
	if err := s.applyExample(ctx, s.example, "gpu"); err != nil {
		return err
	}
	return s.show(ctx, "get", "pods,resourceclaims", "--namespace", "team-a", "-o", "wide")
}

// applyExample applies an example for the tenant and waits for its pod.
func (s *story) applyExample(ctx context.Context, file, pod string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return s.applyText(ctx, file, text, pod)
}

// applyText is applyExample of a file's text, which may have been changed.
func (s *story) applyText(ctx context.Context, file string, text []byte, pod string) error {
	small := exampleLimits.ReplaceAll(exampleImage.ReplaceAll(text, []byte("image: "+node.ShowImage)), []byte("limits: {cpu: 50m, memory: 64Mi}"))
	s.say("(with the lab's image and less memory)\n$ kubectl apply -f %s --namespace team-a", file)
	out, err := s.plane.KubectlInput(ctx, strings.NewReader(string(small)), "apply", "--namespace", "team-a", "-f", "-")
	if err != nil {
		return err
	}
	s.say("%s", out)
	err = s.show(ctx, "wait", "pod/"+pod, "--for=condition=Ready", readyLimit, "--namespace", "team-a")
	if err != nil {
		return errors.Join(err, s.show(ctx, "get", "events", "--namespace", "team-a", "--field-selector=involvedObject.name="+pod, "-o", eventsView))
	}
	return nil
}

func (s *story) inside(ctx context.Context) error {
	s.title("What the pod's VM sees: the log of the pod")
	return s.showLog(ctx, "gpu")
}

// logLimit is for a pod that runs to say what it sees.
const logLimit = time.Minute

// showLog shows what a pod of the tenant's prints first.
func (s *story) showLog(ctx context.Context, pod string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, logLimit, fmt.Errorf("the pod has printed nothing for %s", logLimit))
	defer cancel()
	args := []string{"logs", pod, "--namespace", "team-a"}
	for { // the container runs a moment before its output is in the log
		out, err := s.plane.Kubectl(ctx, args...)
		if err != nil {
			return err
		}
		if len(out) > 0 {
			return s.show(ctx, args...)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

func (s *story) describe(ctx context.Context) error {
	s.title("The claim: what the plugin did, and how well the device is isolated")
	if err := s.show(ctx, "describe", "resourceclaims", "--namespace", "team-a"); err != nil {
		return err
	}
	return s.status(ctx)
}

// statusCommand asks the plugin on the node what it holds.
func statusCommand() []string {
	return []string{"exec", "--namespace", node.PluginNamespace, "daemonset/" + node.PluginName, "--", node.PluginName, "status"}
}

func (s *story) status(ctx context.Context) error {
	return s.show(ctx, statusCommand()...)
}

// remove has the tenant leave a secret, deletes the pods, and shows that the device is where it was.
func (s *story) remove(ctx context.Context) error {
	s.title("The pod is deleted: the device is reset, its registers are compared, and it is returned, and the ledger has the history")
	s.say("(before it ends, the tenant writes into its GPU's memory; the VM of the stand-in for Kata does it for the container)")
	if err := s.inMemory(ctx, "team-a", "gpu", wrote(secretA), "write", secretA); err != nil {
		return err
	}
	for namespace, pod := range map[string]string{"team-a": "gpu", "team-b": "vf"} {
		if err := s.show(ctx, "delete", "pod", pod, "--namespace", namespace, "--grace-period=1"); err != nil {
			return err
		}
	}
	if err := s.show(ctx, "get", "resourceclaims", "--all-namespaces"); err != nil {
		return err
	}
	if err := s.status(ctx); err != nil {
		return err
	}
	_, err := s.history(ctx)
	return err
}

// title begins a chapter.
func (s *story) title(text string) {
	s.chapter++
	s.say("\n%s\n[%3.0fs] %d. %s", strings.Repeat("─", 100), time.Since(s.begin).Seconds(), s.chapter, text)
}

func (s *story) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format+"\n", args...) // a reader who went away is not a reason to stop
}

// show runs kubectl for all to see.
func (s *story) show(ctx context.Context, args ...string) error {
	_, err := s.says(ctx, args...)
	return err
}

// says is show, and returns what kubectl has written.
func (s *story) says(ctx context.Context, args ...string) (string, error) {
	s.say("$ kubectl %s", strings.Join(args, " "))
	out, err := s.kubectl(ctx, args...)
	if err != nil {
		return "", err
	}
	s.say("%s", cmp.Or(strings.TrimRight(out, "\n"), "(nothing)"))
	return out, nil
}

// kubectl runs kubectl with our plugin as the administrator.
func (s *story) kubectl(ctx context.Context, args ...string) (string, error) {
	cmd, err := s.plane.KubectlAs(ctx, controlplane.Admin(), s.plugins, args...)
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := process.Run(cmd); err != nil {
		return "", fmt.Errorf("run kubectl %q: %w: %s", args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

const (
	// awaitLimit is for what the cluster does by itself, VMs included: a sanitizing stage took three minutes on a slow host.
	awaitLimit = 8 * time.Minute
	// readyLimit is for a pod to be ready, as kubectl takes it.
	readyLimit = "--timeout=300s"
)

// until tries until it works.
func (s *story) until(ctx context.Context, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, awaitLimit, fmt.Errorf("not after %s", awaitLimit))
	defer cancel()
	pace := await.Pace{Limit: time.Minute, Pause: 500 * time.Millisecond}
	if err := await.Until(ctx, pace, s.node.Lost, try); err != nil {
		return fmt.Errorf("wait until %s: %w", what, err)
	}
	return nil
}

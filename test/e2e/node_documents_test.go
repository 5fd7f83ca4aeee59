//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/docs"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/process"
)

// documents are what the documents tell people to run: a platform engineer who installs, a developer with a first pod, and
// somebody on call.
type documents struct {
	install, firstPod, runbook, podDoesNotStart, unhealthy, quarantined, checkFails, drifted []docs.Step
	// labels and undrain are commands in the runbook's tables.
	label, undrain string
}

func readDocuments(t *testing.T) documents {
	t.Helper()
	const runbook = "deploy/RUNBOOK.md"
	return documents{
		install:         docs.Steps(t, "README.md", "Install it"),
		firstPod:        docs.Steps(t, "deploy/examples/README.md", ""),
		runbook:         docs.Steps(t, runbook, ""),
		podDoesNotStart: docs.Steps(t, runbook, "Pod does not start"),
		quarantined:     docs.Steps(t, runbook, "Device is quarantined"),
		unhealthy:       docs.Steps(t, runbook, "Device is unhealthy")[:1],
		checkFails:      docs.Steps(t, runbook, "Audit check fails"),
		drifted:         docs.Steps(t, runbook, "Node has drifted")[:1],
		label:           inline(t, docs.Section(t, runbook, "Plugin is down"), "kubectl label node"),
		undrain:         inline(t, docs.Section(t, runbook, "Pod does not start"), "on kata-vfio-plugin undrain"),
	}
}

// inline returns the command in backquotes that begins so.
func inline(t *testing.T, text, begin string) string {
	t.Helper()
	m := regexp.MustCompile("`(" + regexp.QuoteMeta(begin) + "[^`]*)`").FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no command begins with %q in:\n%s", begin, text)
	}
	return m[1]
}

// reader runs what documents say, as it is written, in bash at the root of the repository. These differ in the lab:
//   - helm install also gets the lab's values: an image that the node has, and an API server without a Service.
//   - kubectl apply of an example gets its copy with an image and limits of the lab.
//   - kubectl's namespace is the tenant's: the site deletes what is left there after each case.
//   - the log of the first pod is what labLog says: the GPU stand-in has no nvidia-smi.
//   - values that a person replaces, too: names of the node, the pod and the GPU, and a waiver's last day, since the document's passes.
type reader struct {
	dir string
	env []string
}

const (
	readerHelm = `#!/bin/sh
case $1 in install) exec %[1]s "$@" --values %[2]s/values.yaml;; esac
exec %[1]s "$@"
`
	readerKubectl = `#!/bin/sh
case "$1 $2 $3" in "apply -f deploy/examples/"*) set -- apply -f "%[2]s/${3##*/}";; esac
exec %[1]s "$@"
`
)

// newReader returns a reader whose programs are in the directory.
func newReader(ctx context.Context, s *site, dir, values string) (*reader, error) {
	helm, err := helmBinary()
	if err != nil {
		return nil, err
	}
	kubectl, err := s.plane.KubectlAs(ctx, controlplane.Admin(), dir)
	if err != nil {
		return nil, err
	}
	r := &reader{dir: dir, env: append(kubectl.Env, "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir)}
	pod, err := example("gpu-pod")
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"helm": fmt.Sprintf(readerHelm, helm, dir), "kubectl": fmt.Sprintf(readerKubectl, kubectl.Path, dir),
		"values.yaml": values, "gpu-pod.yaml": pod,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			return nil, err
		}
	}
	return r, r.own(ctx)
}

// own gives the reader a copy of the kubeconfig, whose namespace is the tenant's.
func (r *reader) own(ctx context.Context) error {
	config := filepath.Join(r.dir, "kubeconfig")
	if _, err := r.run(ctx, `cp "$KUBECONFIG" `+config); err != nil {
		return err
	}
	r.env = append(r.env, "KUBECONFIG="+config)
	_, err := r.run(ctx, "kubectl config set-context --current --namespace="+tenant)
	return err
}

// run runs a script and returns what it printed.
func (r *reader) run(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-ec", script)
	cmd.Dir, cmd.Env = "../..", r.env
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := process.Run(cmd); err != nil {
		return "", fmt.Errorf("run as the document says: %w\n%s\n%s", err, script, out.String())
	}
	return reflectorLog.ReplaceAllString(out.String(), ""), nil
}

// reflectorLog is what client-go logs in kubectl wait if a watch ends just when the condition is met.
var reflectorLog = regexp.MustCompile(`(?m)^[IWE]\d{4} \S+ +\d+ reflector\.go:.*\n`)

// follow runs steps, and compares each output that the document shows.
func (r *reader) follow(ctx context.Context, steps []docs.Step) (string, error) {
	var all strings.Builder
	for _, step := range steps {
		out, err := r.followOne(ctx, step)
		if err != nil {
			return "", err
		}
		all.WriteString(out)
	}
	return all.String(), nil
}

const (
	readLog = "kubectl logs "
	// labLog is the report of what the pod's VM sees: a GPU stand-in with its driver.
	labLog = `{..."vendor":"1234","device":"1111","class":"038000","driver":"bochs-drm"...}`
	// shownLimit is for a log, or a claim's status, to follow a pod's start.
	shownLimit = time.Minute
)

// followOne runs a step. A command that only reads runs until it shows what the document does, or the limit is over.
func (r *reader) followOne(ctx context.Context, step docs.Step) (string, error) {
	if strings.HasPrefix(step.Command, readLog) && step.Output != "" {
		step.Output = labLog
	}
	reads := regexp.MustCompile(`^kubectl (logs|describe|get) `).MatchString(step.Command)
	for begin := time.Now(); ; {
		out, err := r.run(ctx, step.Command)
		if err != nil || step.Output == "" {
			return out, err
		}
		if err = docs.Match(step.Output, out); err == nil || !reads || time.Since(begin) > shownLimit {
			return out, err
		}
		select {
		case <-ctx.Done():
			return "", errors.Join(ctx.Err(), err)
		case <-time.After(time.Second):
		}
	}
}

// with replaces examples of values in commands by the lab's.
func with(steps []docs.Step, values map[string]string) ([]docs.Step, error) {
	var own []docs.Step
	for _, step := range steps {
		for example, value := range values {
			step.Command = strings.ReplaceAll(step.Command, example, value)
		}
		own = append(own, step)
	}
	for example := range values {
		if !strings.Contains(commandsOf(steps), example) {
			return nil, fmt.Errorf("the document has no %q:\n%s", example, commandsOf(steps))
		}
	}
	return own, nil
}

func commandsOf(steps []docs.Step) string {
	var all strings.Builder
	for _, step := range steps {
		all.WriteString(step.Command)
	}
	return all.String()
}

// installsAsDocumented uninstalls the chart and installs it by the README's commands, up to a pod with its GPU.
func (s *site) installsAsDocumented(ctx context.Context, values string) error {
	if err := s.node.UninstallPlugin(ctx); err != nil {
		return err
	}
	if _, err := s.plane.Kubectl(ctx, "label", "node", s.node.Name(), nodeLabel+"-"); err != nil {
		return err
	}
	r, err := newReader(ctx, s, s.reading, values)
	if err != nil {
		return err
	}
	begin := time.Now()
	install, err := with(s.documents.install, map[string]string{"label node NODE": "label node " + s.node.Name()})
	if err != nil {
		return err
	}
	out, err := r.follow(ctx, install)
	if err != nil {
		return err
	}
	// Its last command is the first of the examples.
	first := s.documents.firstPod[0]
	if !strings.HasSuffix(commandsOf(install), first.Command) {
		return fmt.Errorf("the README does not end with the examples' first command %q:\n%s", first.Command, commandsOf(install))
	}
	if err := docs.Match("...\n"+first.Output, out); err != nil {
		return err
	}
	shown, err := r.follow(ctx, s.documents.firstPod[1:])
	if err != nil {
		return err
	}
	s.log("from helm install to a pod with its GPU: %.0fs\n%s%s", time.Since(begin).Seconds(), out, shown)
	return nil
}

// nodeLabel is what the chart's DaemonSets select nodes by.
const nodeLabel = "kata-vfio.dev/node"

// followsRunbook looks around as somebody on call does, produces two symptoms of the runbook, and fixes them with its commands.
func followsRunbook(ctx context.Context, s *site) error {
	r, err := newReader(ctx, s, s.reading, "")
	if err != nil {
		return err
	}
	top, err := with(s.documents.runbook, map[string]string{"NODE=worker-1": "NODE=" + s.node.Name()})
	if err != nil {
		return err
	}
	return errors.Join(s.showsStatus(ctx, r, "kubectl kata-vfio status --wait --timeout 1m", s.isWell()), s.pluginIsDown(ctx, r, commandsOf(top)), s.podDoesNotStart(ctx, r, commandsOf(top)))
}

// pluginIsDown: the node has no label.
func (s *site) pluginIsDown(ctx context.Context, r *reader, top string) error {
	if _, err := s.plane.Kubectl(ctx, "label", "node", s.node.Name(), nodeLabel+"-"); err != nil {
		return err
	}
	err := s.until(ctx, "the runbook's $P is empty", nodeLimit, func(ctx context.Context) error {
		_, err := r.run(ctx, top+`[ -z "$P" ]`)
		return err
	})
	_, fixErr := r.run(ctx, top+s.documents.label)
	if err = errors.Join(err, fixErr, s.node.AwaitPlugin(ctx)); err != nil {
		return err
	}
	_, err = r.run(ctx, top+"on kata-vfio-plugin status")
	return err
}

// podDoesNotStart: an operator has drained the GPUs.
func (s *site) podDoesNotStart(ctx context.Context, r *reader, top string) error {
	devices, err := s.published(ctx)
	if err != nil {
		return err
	}
	var drain, undrain strings.Builder
	for _, d := range devices {
		if !strings.HasPrefix(d.Name, "gpu-") {
			continue
		}
		fmt.Fprintf(&drain, "on kata-vfio-plugin drain %s --reason test\n", d.Name)
		fmt.Fprintf(&undrain, "DEVICE=%s\n%s\n", d.Name, s.documents.undrain)
	}
	if _, err := r.run(ctx, top+drain.String()); err != nil {
		return err
	}
	err = s.apply(ctx, tenant, templates+vmPod("waits", gpuOfTemplate))
	if err == nil {
		err = errors.Join(s.explained(ctx, r, top), s.dumpsCluster(ctx, r))
	}
	_, fixErr := r.run(ctx, top+undrain.String())
	if err = errors.Join(err, fixErr); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "waits"); err != nil {
		return err
	}
	return s.deletePods(ctx, "waits")
}

// explained waits until the entry's command names the drain.
func (s *site) explained(ctx context.Context, r *reader, top string) error {
	entry, err := with(s.documents.podDoesNotStart, map[string]string{"TENANT=team-a POD=train-0": "TENANT=" + tenant + " POD=waits"})
	if err != nil {
		return err
	}
	return s.until(ctx, "the pod is explained", nodeLimit, func(ctx context.Context) error {
		out, err := r.run(ctx, top+commandsOf(entry))
		if err == nil && !strings.Contains(out, "drain") {
			err = fmt.Errorf("it says\n%s", out)
		}
		if err == nil {
			s.log("%s", out)
		}
		return err
	})
}

// deleteFirstPod ends the pod of the examples.
func (s *site) deleteFirstPod(ctx context.Context) error {
	err := s.client.CoreV1().Pods(tenant).Delete(ctx, "gpu", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
	return errors.Join(err, s.awaitGone(ctx, tenant))
}

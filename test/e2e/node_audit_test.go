//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// auditProgram is the audit's program on the node.
const auditProgram = "kata-vfio-audit"

// exempt is a namespace that the chart trusts with the node's devices.
const exempt = "kube-system"

// standInFinding is the one that real Kata does not have.
const standInFinding = "RT-025 handler kata-gpu"

// runningRule compares what a running containerd says with its files: it passes only where containerd was asked.
const runningRule = "RT-031"

// labLacks are the failures of severity High or worse of a lab node on which nothing is wrong, each with what is missing there.
func labLacks() map[string]string {
	const mitigations = "emulation is slow enough: the lab starts its kernel with mitigations=off"
	lacks := map[string]string{
		"HOST-004 spec_store_bypass":        mitigations,
		"HOST-004 spectre_v1":               mitigations,
		"HOST-004 spectre_v2":               mitigations,
		"HOST-005 mitigations":              mitigations,
		standInFinding:                      "a stand-in, runcvm, takes Kata's place",
		"ACS-001 port " + topology.GPU4Port: "QEMU's switches have no ACS, and the GPU below is published all the same, as not isolated",
	}
	for _, pf := range []string{topology.PF0, topology.PF1} {
		for i := range 3 {
			lacks["NIC-003 "+topology.VF(pf, i)] = "nobody has the VF, and the chart's class gives it no VLAN"
		}
	}
	return lacks
}

// auditFinds has the audit judge a node on which a tenant's pod has a VM, and judge it again while a pod without a VM, in a
// namespace that is trusted with the node's devices, has the tenant's device open.
func auditFinds(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, templates+vmPod("one", gpuOfTemplate)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "one"); err != nil {
		return err
	}
	clean, err := s.audit(ctx)
	if err != nil {
		return err
	}
	err = asExpected("a lab node", slices.Sorted(maps.Keys(labLacks())), clean)
	return errors.Join(err, s.auditFindsStray(ctx, clean), s.deletePods(ctx, "one"))
}

// asExpected compares what fails.
func asExpected(what string, want, got []string) error {
	if slices.Equal(want, got) {
		return nil
	}
	// The differences are last: the summary of a run shows an error's end.
	return fmt.Errorf("of %s the audit finds\n%s\nwant\n%s\nmissing: %q, too many: %q", what, strings.Join(got, "\n"), strings.Join(want, "\n"),
		without(want, got), without(got, want))
}

func (s *site) auditFindsStray(ctx context.Context, clean []string) error {
	heldNode, err := s.heldNode(ctx)
	if err != nil {
		return err
	}
	if err := s.apply(ctx, exempt, strayPod(heldNode)); err != nil {
		return err
	}
	found, err := s.auditWithStray(ctx)
	err = errors.Join(err, s.deleteStray(context.WithoutCancel(ctx)))
	if err != nil {
		return err
	}
	held := " " + topology.GPU0 + " container"
	return asExpected("a stray holder", []string{"VFIO-009" + held, "VFIO-010 " + topology.GPU0, "VFIO-012" + held}, without(found, clean))
}

// strayPod is a pod without a VM that has a node of VFIO's open.
func strayPod(heldNode string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: stray}
spec:
  automountServiceAccountToken: false
  dnsPolicy: Default
  volumes: [{name: vfio, hostPath: {path: /dev/vfio}}]
  containers:
  - name: main
    image: %q
    imagePullPolicy: Never
    command: [/container, hold, %q]
    securityContext: {privileged: true}
    volumeMounts: [{name: vfio, mountPath: /dev/vfio}]
`, node.PauseImage, heldNode)
}

func (s *site) auditWithStray(ctx context.Context) ([]string, error) {
	err := s.until(ctx, "the stray pod holds the device", nodeLimit, func(ctx context.Context) error {
		log, err := s.client.CoreV1().Pods(exempt).GetLogs("stray", &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && !strings.Contains(string(log), "held") {
			err = fmt.Errorf("its log is %q", log)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.events(ctx, exempt))
	}
	return s.audit(ctx)
}

func (s *site) deleteStray(ctx context.Context) error {
	err := s.client.CoreV1().Pods(exempt).Delete(ctx, "stray", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
	return errors.Join(err, s.awaitGone(ctx, exempt))
}

// audit names what the node's audit finds of severity High or worse, each as its rule, function and process.
func (s *site) audit(ctx context.Context) ([]string, error) {
	text, err := s.output(ctx, path.Join(node.Dir, "bin", auditProgram)+" node -o json || test $? = 3")
	if err != nil {
		return nil, err
	}
	return s.severe([]byte(text))
}

// severe names what a report has of severity High or worse.
func (s *site) severe(text []byte) ([]string, error) {
	var report finding.Report
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("%w in %q", err, text)
	}
	var names []string
	for i := range report.Findings {
		f := &report.Findings[i]
		if f.ID == runningRule && f.State != finding.Pass {
			return nil, fmt.Errorf("%s: %s: %s; containerd was to be asked", f.ID, f.State, f.Text)
		}
		if f.Severity.Compare(rule.High) > 0 || f.State != finding.Fail && f.State != finding.Unknown && f.State != finding.Error {
			continue
		}
		s.log("%s %s %s: %s", f.State, f.Severity, f.ID, f.Text)
		names = append(names, findingName(f))
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// auditInAPod has the chart run the audit on the node: with the privileges that it has there it sees what root does.
func auditInAPod(ctx context.Context, s *site) error {
	before, err := s.audit(ctx)
	if err != nil {
		return err
	}
	if err := s.node.InstallPlugin(ctx, chart, "audit.nodes.enabled=true"); err != nil {
		return err
	}
	if err = s.agreesWithPod(ctx, before); err != nil {
		// What a pod may not see it never sees. A process that ends, or a sandbox that is removed between two looks, is seen once.
		s.log("once more, with another pod: %v", err)
		deleteErr := s.client.CoreV1().Pods(system).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{LabelSelector: auditors})
		if deleteErr != nil {
			return errors.Join(err, deleteErr)
		}
		err = s.agreesWithPod(ctx, before)
	}
	file := "cat /var/lib/kata-vfio/audit/" + node.DefaultName + ".json | wc -l"
	lines, fileErr := s.output(ctx, file)
	if fileErr == nil && lines != "1" {
		fileErr = fmt.Errorf("the report's file on the node has %s lines", lines)
	}
	err = errors.Join(err, fileErr)
	return errors.Join(err, s.node.InstallPlugin(context.WithoutCancel(ctx), chart), s.awaitNoAuditor(ctx))
}

// agreesWithPod compares the first report of the chart's audit with what root sees now, and has seen before there was such a pod: the audit's own
// pod adds nothing.
func (s *site) agreesWithPod(ctx context.Context, before []string) error {
	found, err := s.reportedByPod(ctx)
	if err != nil {
		return err
	}
	want, err := s.audit(ctx)
	if err != nil {
		return err
	}
	return errors.Join(asExpected("the node, in a pod,", want, found), asExpected("the audit's own pod", nil, without(want, before)))
}

// auditors selects the pods of the chart's audit of nodes.
const auditors = "app.kubernetes.io/component=node-audit"

// reportedByPod is what the first report in the log of the chart's audit says.
func (s *site) reportedByPod(ctx context.Context) (names []string, err error) {
	err = s.until(ctx, "the chart's audit of the node reports", nodeLimit, func(ctx context.Context) error {
		pods, err := s.client.CoreV1().Pods(system).List(ctx, metav1.ListOptions{LabelSelector: auditors})
		if err != nil || len(pods.Items) != 1 {
			return errors.Join(err, fmt.Errorf("it has %d pods", len(pods.Items)))
		}
		log, err := s.client.CoreV1().Pods(system).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			return err
		}
		first, _, whole := bytes.Cut(log, []byte("\n"))
		if !whole {
			return fmt.Errorf("its log is %q", log)
		}
		names, err = s.severe(first)
		return err
	})
	return names, err
}

func (s *site) awaitNoAuditor(ctx context.Context) error {
	return s.until(ctx, "the chart's audit of the node has ended", nodeLimit, func(ctx context.Context) error {
		pods, err := s.client.CoreV1().Pods(system).List(ctx, metav1.ListOptions{LabelSelector: auditors})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("it has %d pods", len(pods.Items))
		}
		return err
	})
}

// findingName leaves out what differs from run to run, as PIDs do.
func findingName(f *finding.Finding) string {
	name := f.ID
	if f.State != finding.Fail {
		name = string(f.State) + " " + name
	}
	if f.Device != nil {
		name += " " + f.Device.String()
	}
	if process := processName.FindStringSubmatch(f.Object); process != nil {
		return name + " " + process[1]
	}
	return strings.TrimSpace(name + " " + f.Object)
}

var processName = regexp.MustCompile(`^pid \d+ \((.*)\)$`)

func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(others, name) })
}

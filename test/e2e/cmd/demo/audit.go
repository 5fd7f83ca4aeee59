package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/remote"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// waivers say, failure by failure, what an emulated machine for tests lacks.
//
//go:embed waivers.yaml
var waivers []byte

// Files in the machine's share, and the audit's command line.
const (
	waiversFile = "waivers.yaml"
	reportFile  = "audit.html"
	auditNode   = "kata-vfio-audit node --profile lab --waivers /host/" + waiversFile + " --severity high"
)

// near is a tenant whose device has its place beside the first tenant's GPU: below another port of the same root.
const near = `
apiVersion: v1
kind: Namespace
metadata: {name: team-b, labels: {kata-vfio.dev/tenant: team-b}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: near-vf, namespace: team-b}
spec: {spec: {devices: {requests: [{name: vf, exactly: {deviceClassName: vf.kata-vfio.dev, selectors: [
  {cel: {expression: "device.attributes['resource.kubernetes.io'].?pcieRoot.orValue('') == 'pci0000:20'"}}]}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: vf, namespace: team-b}
spec:
  runtimeClassName: kata-gpu
  resourceClaims: [{name: vf, resourceClaimTemplateName: near-vf}]
  containers: [{name: main, image: '` + node.ShowImage + `', imagePullPolicy: Never,
    resources: {limits: {cpu: 50m, memory: 64Mi}, claims: [{name: vf}]}}]
`

// gpuPort is the port above the first tenant's GPU.
const gpuPort = "0000:20:01.0"

// neighbor runs the second tenant's pod without its VM. The audit judges by the owner of the device, which is the same without
// a VM.
func (s *story) neighbor(ctx context.Context) error {
	s.title("A second tenant gets a NIC's virtual function below the same root as the GPU")
	s.say("(its VM is left out to save a minute)\n$ kubectl apply -f vf-near.yaml")
	if err := s.node.UseVMs(ctx, false); err != nil {
		return err
	}
	out, err := s.plane.KubectlInput(ctx, strings.NewReader(near), "apply", "-f", "-")
	if err != nil {
		return err
	}
	s.say("%s", out)
	if err := s.show(ctx, "wait", "pod/vf", "--for=condition=Ready", readyLimit, "--namespace", "team-b"); err != nil {
		return err
	}
	return s.status(ctx)
}

// auditClean has the security team's command judge the node while both tenants have devices.
func (s *story) auditClean(ctx context.Context) error {
	s.title("The audit of the node, as its security team runs it, while two tenants have devices")
	if err := s.bringWaivers(); err != nil {
		return err
	}
	s.say("(waivers.yaml accepts what an emulated test machine does not have, failure by failure and with a reason; waived checks still run)")
	return s.onNode(ctx, 0, auditNode)
}

func (s *story) bringWaivers() error {
	return os.WriteFile(filepath.Join(s.node.Machine().Share(), waiversFile), waivers, 0o644)
}

// auditFault plants a fault, shows that the audit finds and explains it, and removes it.
func (s *story) auditFault(ctx context.Context) error {
	s.title("One fault: a script switches ACS off at the port above team-a's GPU, as recipes for GPUDirect do")
	was, err := s.acs(ctx)
	if err != nil {
		return err
	}
	if err := s.onNode(ctx, 0, "setpci -s "+gpuPort+" ECAP_ACS+6.w=0"); err != nil {
		return err
	}
	if err := s.onNode(ctx, exitFindings, auditNode); err != nil {
		return err
	}
	s.title("The worst finding explained, with the facts of this node")
	if err := s.onNode(ctx, 0, "kata-vfio-audit explain ACS-009 --root /"); err != nil {
		return err
	}
	if err := s.bringReport(ctx); err != nil {
		return err
	}
	s.title("Fixed as the finding says")
	if err := s.onNode(ctx, 0, "setpci -s "+gpuPort+" ECAP_ACS+6.w="+was); err != nil {
		return err
	}
	return s.onNode(ctx, 0, auditNode+" | head -n 2")
}

func (s *story) acs(ctx context.Context) (string, error) {
	out, err := s.node.Command(ctx, "setpci", "-s", gpuPort, "ECAP_ACS+6.w").Output()
	return strings.TrimSpace(string(out)), err
}

// bringReport has the audit write its page while the fault is there, and copies it out of the machine.
func (s *story) bringReport(ctx context.Context) error {
	in := filepath.Join(s.node.Machine().Share(), reportFile)
	line := "kata-vfio-audit node --profile lab --waivers /host/" + waiversFile + " -o html --file /host/" + reportFile
	if err := s.onNode(ctx, exitFindings, line); err != nil {
		return err
	}
	page, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.report, page, 0o644); err != nil {
		return err
	}
	s.say("The report, with the fault drawn in the PCIe tree, is in %s.", s.report)
	return nil
}

// history asks the node's ledger about the GPU, and returns what it says.
func (s *story) history(ctx context.Context) (string, error) {
	return s.nodeSays(ctx, 0, "kata-vfio-audit who --device "+topology.GPU0+" --history")
}

// exitFindings is the audit's exit code where something fails.
const exitFindings = 3

// onNode runs a command line on the node for all to see, which must end with the exit code.
func (s *story) onNode(ctx context.Context, code int, line string) error {
	_, err := s.nodeSays(ctx, code, line)
	return err
}

// nodeSays is onNode, and returns what the command line has written.
func (s *story) nodeSays(ctx context.Context, code int, line string) (string, error) {
	s.say("node# %s", line)
	var said bytes.Buffer
	cmd := s.node.Command(ctx, "sh", "-c", line)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(s.out, &said), s.out
	err := cmd.Run()
	var exit *remote.ExitError
	ended := 0
	switch {
	case errors.As(err, &exit):
		ended = exit.Code
	case err != nil:
		return "", err
	}
	if ended != code {
		return "", fmt.Errorf("%q ended with exit code %d; want %d", line, ended, code)
	}
	if code != 0 {
		s.say("(exit code %d)", code)
	}
	return said.String(), nil
}

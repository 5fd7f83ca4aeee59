package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// What tenants leave in the GPU's memory, and what a tenant reads where nothing is.
const (
	secretA = "team-a-key-4711"
	secretB = "team-b-key-0815"
	zeros   = "read 64 bytes: all are zero"
)

func wrote(secret string) string { return fmt.Sprintf("wrote %q", secret) }
func found(secret string) string { return fmt.Sprintf("read %q", secret) }

// gpu is the name of the GPU that tenants have one after the other.
const gpu = "gpu-0000-22-00-0"

// next is the second tenant's pod with the GPU that the first tenant had.
const next = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: same-gpu, namespace: team-b}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.kata-vfio.dev, selectors: [
  {cel: {expression: "device.attributes['resource.kubernetes.io'].?pciBusID.orValue('') == '` + topology.GPU0 + `'"}}]}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: next, namespace: team-b}
spec:
  runtimeClassName: kata-gpu
  resourceClaims: [{name: gpu, resourceClaimTemplateName: same-gpu}]
  containers: [{name: main, image: '` + node.ShowImage + `', imagePullPolicy: Never,
    resources: {limits: {cpu: 50m, memory: 64Mi}, claims: [{name: gpu}]}}]
`

// inMemory has a pod access the memory of its GPU, and compares what it says.
func (s *story) inMemory(ctx context.Context, namespace, pod, want string, command ...string) error {
	out, err := s.says(ctx, append([]string{"exec", pod, "--namespace", namespace, "--", "/container"}, command...)...)
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(out); got != want {
		return fmt.Errorf("the memory of the GPU of pod %s/%s: got %s, want %s", namespace, pod, got, want)
	}
	return nil
}

// leak gives the GPU to the next tenant without a sanitizing stage.
func (s *story) leak(ctx context.Context) error {
	s.title("What the reset does not do: team-b gets the same GPU, and reads what team-a has left in its memory")
	s.say("$ kubectl apply -f next.yaml")
	if err := s.node.UseVMs(ctx, true); err != nil {
		return err
	}
	out, err := s.plane.KubectlInput(ctx, strings.NewReader(next), "apply", "-f", "-")
	if err != nil {
		return err
	}
	s.say("%s", out)
	if err := s.show(ctx, "wait", "pod/next", "--for=condition=Ready", readyLimit, "--namespace", "team-b"); err != nil {
		return err
	}
	if err := s.inMemory(ctx, "team-b", "next", found(secretA), "read"); err != nil {
		return fmt.Errorf("without a sanitizing stage: %w", err)
	}
	s.say("(the ledger says so, too: its proof of the reset has \"memory not checked\". team-b leaves a secret of its own)")
	return s.inMemory(ctx, "team-b", "next", wrote(secretB), "write", secretB)
}

// stages are the chart's values for a sanitizing stage of the GPU, and for exclusive domains of VFs.
const stages = `sanitizers:
  profiles:
    memory: {image: %s, args: [memory], privileged: true, timeoutSeconds: 300}
tenancy: {enabled: true}
nodeConfig:
  devices:
  - {name: sanitized, match: {types: [gpu], addresses: ["` + topology.GPU0 + `"]}, sanitize: {profile: memory}}
  - {name: vfs, match: {types: [vf]}, exclusive: [PF]}
  - {name: others, match: {types: [gpu]}}`

// stageSettings are the same as helm --set takes them, and the lab's.
func stageSettings(image string) []string {
	const profile, rule = "sanitizers.profiles.memory.", "nodeConfig.devices"
	return []string{
		profile + "image=" + image, profile + "args={memory}", profile + "privileged=true", profile + "timeoutSeconds=300", "tenancy.enabled=true",
		rule + "[0].name=sanitized", rule + "[0].exclude=false", rule + "[0].match.addresses={" + topology.GPU0 + "}", rule + "[0].sanitize.profile=memory",
		rule + "[1].name=vfs", rule + "[1].match.types={vf}", rule + "[1].exclusive={PF}",
		rule + "[2].name=others", rule + "[2].match.types={gpu}",
		"sharedPool.replicas=1",
	}
}

// sanitize switches the stage on, and has it sanitize the GPU after the second tenant.
func (s *story) sanitize(ctx context.Context) error {
	s.title("A sanitizing stage: kata-vfio's own pod wipes the GPU in a VM before anybody gets it again")
	var err error
	if s.image, err = s.node.NameByDigest(ctx, node.SanitizeImage, "localhost/kata-vfio-sanitize"); err != nil {
		return err
	}
	s.say("$ cat values.yaml\n"+stages+"\n$ helm upgrade kata-vfio %s --namespace %s --values values.yaml", s.image, s.chart, node.PluginNamespace)
	if err := s.node.InstallPlugin(ctx, s.chart, stageSettings(s.image)...); err != nil {
		return err
	}
	if err := s.show(ctx, "rollout", "status", "deployment/kata-vfio-controller", "--namespace", node.PluginNamespace, "--timeout=120s"); err != nil {
		return err
	}
	s.say("(team-b's pod kept its GPU over the upgrade)")
	if err := s.show(ctx, "delete", "pod", "next", "--namespace", "team-b", "--grace-period=1"); err != nil {
		return err
	}
	if err := s.showStage(ctx); err != nil {
		return err
	}
	return s.stageInLedger(ctx)
}

const (
	stageNamespace = "kata-vfio-sanitizing"
	useView        = `jsonpath={.devices[?(@.name=="` + gpu + `")].use}`
	taintsView     = `jsonpath={range .items[*].spec.devices[?(@.name=="` + gpu + `")]}{.name}{"\t"}{range .taints[*]}{.key}:{.effect}{"\n"}{end}{end}`
)

// showStage shows the stage of the GPU, and waits until it has ended well.
func (s *story) showStage(ctx context.Context) error {
	err := s.until(ctx, "the stage of the GPU has a pod", func(ctx context.Context) error {
		out, err := s.kubectl(ctx, "get", "pods", "--namespace", stageNamespace, "-o", "name")
		if err == nil && out == "" {
			err = errors.New("there is none")
		}
		return err
	})
	if err != nil {
		return err
	}
	taints, err := s.says(ctx, "get", "resourceslices", "-o", taintsView)
	if err != nil {
		return err
	}
	if !strings.Contains(taints, "kata-vfio.dev/sanitizing:NoSchedule") {
		return fmt.Errorf("the taints of %s are %q while it waits for its stage, want kata-vfio.dev/sanitizing:NoSchedule", gpu, taints)
	}
	if err := s.show(ctx, "get", "pods", "--namespace", stageNamespace); err != nil {
		return err
	}
	if err := s.status(ctx); err != nil {
		return err
	}
	return s.stageEnds(ctx)
}

// stageEnds waits until the GPU is free. A stage that does not end well leaves it in quarantine.
func (s *story) stageEnds(ctx context.Context) error {
	use := ""
	err := s.until(ctx, "the GPU is free after its stage", func(ctx context.Context) error {
		out, err := s.kubectl(ctx, "kata-vfio", "devices", "-o", useView)
		if err != nil {
			return err
		}
		if use = strings.TrimSpace(out); use == string(fleet.Free) || use == string(fleet.Quarantined) {
			return nil
		}
		return fmt.Errorf("it is %q", use)
	})
	if err == nil && use != string(fleet.Free) {
		err = fmt.Errorf("the GPU is %s after its stage, want %s", use, fleet.Free)
	}
	return err
}

// stageInLedger shows the stage's event, which must name the image.
func (s *story) stageInLedger(ctx context.Context) error {
	events, err := s.nodeSays(ctx, 0, "kata-vfio-audit ledger show --device "+topology.GPU0+" --type sanitize")
	if err == nil {
		err = s.namesImage(events)
	}
	return err
}

// namesImage checks that a text names the sanitizer's image by its digest.
func (s *story) namesImage(text string) error {
	_, digest, _ := strings.Cut(s.image, "@")
	if digest == "" || !strings.Contains(text, digest) {
		return fmt.Errorf("the ledger does not say that %q has sanitized the GPU", s.image)
	}
	return nil
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// stageNamespace is the chart's default.
const stageNamespace = "kata-vfio-sanitizing"

// sanitizesBetweenTenants: two claims have a GPU one after the other, and a sanitizing stage comes between: the controller makes its pod, and
// the plugin decides by it. The sanitizer here only answers: what one wipes in a VM is seen in the lab's own tests.
func sanitizesBetweenTenants(ctx context.Context, s *site) error {
	after := context.WithoutCancel(ctx)
	err := s.awaitController(ctx)
	if err == nil {
		err = s.takeTurnsWithStage(ctx)
	}
	if err == nil {
		err = s.tenantIsNoStage(ctx)
	}
	// The second claim's end makes another stage, which must not outlive the chart's controller.
	return errors.Join(err, s.clear(after), s.awaitSanitized(after))
}

// stageLimit is for a stage: its pod starts on the node, and may run for its time limit.
const stageLimit = nodeLimit + stageSeconds*time.Second

// stageSeconds is the time limit of the profile.
const stageSeconds = 300

// awaitSanitized waits until no device waits for a stage, and none is left.
func (s *site) awaitSanitized(ctx context.Context) error {
	err := s.until(ctx, "no device waits for a stage", stageLimit, func(ctx context.Context) error {
		marks, err := s.output(ctx, "ls /var/lib/kata-vfio/journal/unsanitized; true")
		if err == nil && marks != "" {
			err = fmt.Errorf("%s has a mark", marks)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("%w; the stages are\n%s", err, s.stages(ctx)) // before they end
	}
	return errors.Join(err, s.awaitNoStage(ctx))
}

// sanitizerSettings are the chart's for a profile and one GPU with it.
func (s *site) sanitizerSettings(ctx context.Context) ([]string, error) {
	image, err := s.node.NameByDigest(ctx, node.ShowImage, "localhost/sanitizer")
	if err != nil {
		return nil, err
	}
	ids, err := s.output(ctx, "cd /sys/bus/pci/devices/"+topology.GPU0+" && cat vendor device")
	if err != nil {
		return nil, err
	}
	args := strings.Join(append([]string{"sanitized"}, strings.Fields(ids)...), ",")
	const profile, rule = "sanitizers.profiles.answers.", "nodeConfig.devices[1]."
	return []string{
		profile + "image=" + image, profile + "command={/container}", profile + "args={" + args + "}", profile + "timeoutSeconds=" + strconv.Itoa(stageSeconds),
		profile + "privileged=true", rule + "name=sanitized", rule + "match.types={gpu}", rule + "match.addresses={" + topology.GPU0 + "}",
		rule + "sanitize.profile=answers",
	}, nil
}

// takeTurnsWithStage gives the GPU to two claims. The second pod is made while the first has it.
func (s *site) takeTurnsWithStage(ctx context.Context) error {
	if err := s.apply(ctx, tenant, directClaim+vmPod("first", gpuDirect)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, nodeLimit, "first"); err != nil {
		return err
	}
	if err := s.apply(ctx, trusted, directClaim+vmPod("second", gpuDirect)); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.deletePods(ctx, "first"); err != nil {
		return err
	}
	if _, err := s.plane.Kubectl(ctx, "delete", "resourceclaim", "direct", "--namespace", tenant); err != nil {
		return err
	}
	released := time.Now()
	if err := s.awaitRunningIn(ctx, trusted, stageLimit, "second"); err != nil {
		return fmt.Errorf("%w; the stages are\n%s", err, s.stages(ctx))
	}
	s.log("the first pod was gone after %.1fs, and the second ran %.1fs later, with a stage between", released.Sub(begin).Seconds(), time.Since(released).Seconds())
	return errors.Join(s.claimIsSanitized(ctx), s.ledgerHasStage(ctx), s.awaitNoStage(ctx))
}

// stages lists the pods and claims of stages, with what became of them and when, and the controller's log, for errors.
func (s *site) stages(ctx context.Context) string {
	objects, _ := s.plane.Kubectl(ctx, "get", "pods,resourceclaims", "--namespace", stageNamespace, "-o", "yaml")
	events, _ := s.plane.Kubectl(ctx, "get", "events", "--namespace", stageNamespace)
	log, _ := s.plane.Kubectl(ctx, "logs", "deployment/kata-vfio-controller", "--namespace", system, "--tail=30")
	return fmt.Sprintf("%s\n%s\n%s", objects, events, log)
}

// claimIsSanitized checks that the second claim says that its device was sanitized.
func (s *site) claimIsSanitized(ctx context.Context) error {
	return s.until(ctx, "the claim has the condition Sanitized", nodeLimit, func(ctx context.Context) error {
		claim, err := s.client.ResourceV1().ResourceClaims(trusted).Get(ctx, "direct", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, d := range claim.Status.Devices {
			if c := meta.FindStatusCondition(d.Conditions, "Sanitized"); c != nil && c.Status == metav1.ConditionTrue {
				s.log("condition Sanitized: %s", c.Message)
				return nil
			}
		}
		return fmt.Errorf("the claim's devices are %+v", claim.Status.Devices)
	})
}

// ledgerHasStage checks that the node's ledger has the stage between the two tenants.
func (s *site) ledgerHasStage(ctx context.Context) error {
	out, err := s.output(ctx, path.Join(node.Dir, "bin", auditProgram)+" ledger show -o json | grep -c '\"type\": *\"sanitize\"'")
	if err != nil || out != "1" {
		return fmt.Errorf("the ledger has %q events of stages, want 1: %w", out, err)
	}
	return nil
}

// awaitNoStage waits until the controller has removed the stage.
func (s *site) awaitNoStage(ctx context.Context) error {
	return s.until(ctx, "no stage is left", nodeLimit, func(ctx context.Context) error {
		pods, err := s.client.CoreV1().Pods(stageNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		claims, err := s.client.ResourceV1().ResourceClaims(stageNamespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items)+len(claims.Items) > 0 {
			err = fmt.Errorf("%d pods and %d claims are there", len(pods.Items), len(claims.Items))
		}
		return err
	})
}

// tenantIsNoStage: a claim can't be a stage, by its class or by its toleration.
func (s *site) tenantIsNoStage(ctx context.Context) error {
	classes, err := s.client.ResourceV1().DeviceClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(classes.Items, func(c resourcev1.DeviceClass) bool { return strings.Contains(c.Name, "sanitiz") })
	if i < 0 {
		return errors.New("the chart made no DeviceClass for stages")
	}
	claim := strings.Replace(directClaim, "gpu.kata-vfio.dev", classes.Items[i].Name, 1)
	claim = strings.Replace(claim, "name: direct", "name: stolen", 1)
	if err := s.apply(ctx, trusted, claim); err == nil || !strings.Contains(err.Error(), "(NotAStage)") {
		return fmt.Errorf("a tenant's claim with the class %s: got %w, want a refusal with NotAStage", classes.Items[i].Name, err)
	}
	return nil
}

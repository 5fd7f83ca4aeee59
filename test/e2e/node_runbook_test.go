//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/test/docs"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// printedFix is the command that `kata-vfio-audit explain` prints for a port whose ACS was switched off.
var printedFix = regexp.MustCompile("to enable it now:\\s+`(setpci [^`]*)`")

// fixesByRunbook follows the runbook from the GPU's taint to the check that fails, to a waiver of it, and to the fix, which it runs on
// the node. Then the runbook's commands show neither taint nor fix.
func (s *site) fixesByRunbook(ctx context.Context) error {
	// These differ in the lab: the GPU's address, and the last day of the waiver, since the document's passes.
	fails, err := with(s.documents.checkFails, map[string]string{
		"DEVICE=0000:3b:00.0": "DEVICE=" + topology.GPU0,
		"UNTIL=2027-03-31":    "UNTIL=" + time.Now().UTC().Format(time.DateOnly),
	})
	if err != nil {
		return err
	}
	out, err := s.paste(ctx, fails)
	fix := printedFix.FindStringSubmatch(out)
	if err == nil && (fix == nil || !strings.Contains(out, "scope: "+topology.GPU0)) {
		err = fmt.Errorf("want a command that switches ACS on, and a waiver, of\n%s\nthey print\n%s", commandsOf(fails), out)
	}
	if err = errors.Join(err, s.wantTaintShown(ctx, true)); err != nil {
		return err
	}
	if _, err := s.output(ctx, fix[1]); err != nil {
		return err
	}
	if err := errors.Join(s.awaitAudit(ctx, ""), s.wantTaintShown(ctx, false)); err != nil {
		return err
	}
	out, err = s.paste(ctx, fails[:1])
	if err == nil && printedFix.MatchString(out) {
		err = fmt.Errorf("after %q,\n%s\nprints\n%s", fix[1], commandsOf(fails[:1]), out)
	}
	return err
}

// wantTaintShown follows the entry that lists the node's taints.
func (s *site) wantTaintShown(ctx context.Context, want bool) error {
	out, err := s.paste(ctx, s.documents.unhealthy)
	if err != nil {
		return err
	}
	var list resourcev1.ResourceSliceList
	if err := yaml.Unmarshal([]byte(out), &list); err != nil {
		return fmt.Errorf("%s prints no YAML: %w:\n%s", commandsOf(s.documents.unhealthy), err, out)
	}
	shown := slices.ContainsFunc(list.Items, func(slice resourcev1.ResourceSlice) bool {
		return slices.ContainsFunc(slice.Spec.Devices, func(d resourcev1.Device) bool {
			id := d.Attributes["resource.kubernetes.io/pciBusID"].StringValue
			return id != nil && *id == topology.GPU0 && slices.ContainsFunc(d.Taints, func(t resourcev1.DeviceTaint) bool { return t.Key == auditTaint })
		})
	})
	if shown != want {
		return fmt.Errorf("%s is shown with the taint %s: %t:\n%s", topology.GPU0, auditTaint, shown, out)
	}
	return nil
}

// paste runs steps behind the runbook's top, and returns what they print. As in a terminal, commands go on after one
// that fails: the audit's exit code 3 says that it has found something.
func (s *site) paste(ctx context.Context, steps []docs.Step) (string, error) {
	r, err := newReader(ctx, s, s.reading, "")
	if err != nil {
		return "", err
	}
	top, err := with(s.documents.runbook, map[string]string{"NODE=worker-1": "NODE=" + s.node.Name()})
	if err != nil {
		return "", err
	}
	begin := time.Now()
	out, err := r.run(ctx, "set +e\n"+commandsOf(append(top, steps...))+"true\n")
	s.log("%s(after %.1fs)", commandsOf(steps), time.Since(begin).Seconds())
	return out, err
}

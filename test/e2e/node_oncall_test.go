//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// showsStatus waits until a command, `kubectl kata-vfio status`, says all of it. Exit code 3 is no failure: devices of the lab fail checks.
func (s *site) showsStatus(ctx context.Context, r *reader, command string, patterns ...string) error {
	return s.until(ctx, fmt.Sprintf("%s shows %q", command, patterns), nodeLimit, func(ctx context.Context) error {
		out, err := r.run(ctx, command+" || [ $? = 3 ]")
		if err != nil {
			return err
		}
		if strings.Contains(out, "the rollout is not over") {
			return fmt.Errorf("it waits for a rollout that is over:\n%s", out)
		}
		for _, p := range patterns {
			if !regexp.MustCompile("(?m)" + p).MatchString(out) {
				return fmt.Errorf("it shows no %q:\n%s", p, out)
			}
		}
		s.log("%s\n%s", command, out)
		return nil
	})
}

// isWell is the line of the node in a status: the plugin is ready, and the container runtime calls it.
func (s *site) isWell() string { return "^" + regexp.QuoteMeta(s.node.Name()) + ` +ready +connected ` }

// dumpsCluster collects a support case that names no tenant.
func (s *site) dumpsCluster(ctx context.Context, r *reader) error {
	file := filepath.Join(r.dir, "sysdump.tar.gz")
	out, err := r.run(ctx, fmt.Sprintf("rm -f %[1]s; kubectl kata-vfio sysdump --mask -o %[1]s; tar -tzf %[1]s; ! tar -xzOf %[1]s | grep -a -m 3 -w %[2]s", file, tenant))
	if err == nil && !strings.Contains(out, "manifest.json") {
		err = fmt.Errorf("the archive has no manifest:\n%s", out)
	}
	s.log("kubectl kata-vfio sysdump --mask\n%s", out)
	return err
}

// driftIsShown checks that the runbook's entry for a node that has drifted names the file, and that status names it, too.
func (s *site) driftIsShown(ctx context.Context, file string) error {
	out, err := s.paste(ctx, s.documents.drifted)
	if err == nil && !strings.Contains(out, file) {
		err = fmt.Errorf("%s\ndoes not name %s:\n%s", commandsOf(s.documents.drifted), file, out)
	}
	if err != nil {
		return err
	}
	r, err := newReader(ctx, s, s.reading, "")
	if err != nil {
		return err
	}
	return s.showsStatus(ctx, r, "kubectl kata-vfio status", "^✗ node "+regexp.QuoteMeta(s.node.Name())+`: it differs from its blueprint \(changes needed\)`, `"Node has drifted" in the runbook`)
}

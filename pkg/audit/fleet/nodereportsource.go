package fleet

import (
	"bytes"
	"errors"
	"regexp"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
)

// prefixPattern matches the prefix that `kubectl logs --prefix` writes before each line: the pod and the container that
// wrote it. A pod can't change or omit the prefix of its own lines.
var prefixPattern = regexp.MustCompile(`^\[pod/([a-z0-9](?:[-a-z0-9.]*[a-z0-9])?)/[-a-z0-9]+\] `)

// cutPrefix returns a line of a log without its prefix, and the pod that the prefix names; empty if there is none.
func cutPrefix(line []byte) (rest []byte, pod string) {
	m := prefixPattern.FindSubmatch(line)
	if m == nil {
		return line, ""
	}
	return line[len(m[0]):], string(m[1])
}

// decodeLines reads the lines of a log that are reports. It sets their source pods only if each line has a prefix: in a
// log without prefixes, a pod could write the prefix of another pod itself.
func decodeLines(data []byte, nodeName string) (reports []*finding.Report, err error) {
	prefixed := true
	for line := range bytes.Lines(data) {
		text, pod := cutPrefix(line)
		some, failed := decodeStream(text, nodeName)
		if errors.Is(failed, errNoName) {
			err = failed
		}
		for _, r := range some {
			r.Source = pod
			prefixed = prefixed && pod != ""
		}
		reports = append(reports, some...)
	}
	if !prefixed {
		for _, r := range reports {
			r.Source = ""
		}
	}
	return reports, err
}

// RefusedReport is a report that does not count, and the reason, as words that follow the node's name.
type RefusedReport struct {
	Report *finding.Report
	Why    string
}

// CredibleReports refuses the reports that can't be true, without asking the cluster: reports of a pod that wrote reports of
// several nodes, because a pod runs on one node, and reports from the future, which would stay the latest.
func CredibleReports(reports []*finding.Report, now time.Time) (credible []*finding.Report, refused []RefusedReport) {
	nodes := map[string]map[string]bool{}
	for _, r := range reports {
		if nodes[r.Source] == nil {
			nodes[r.Source] = map[string]bool{}
		}
		nodes[r.Source][r.Subject.Name] = true
	}
	for _, r := range reports {
		switch at, _ := time.Parse(time.RFC3339, r.Subject.Time); {
		// A pod audits the node that it runs on, and no other one.
		case r.Source != "" && len(nodes[r.Source]) > 1:
			refused = append(refused, RefusedReport{r, "has a report of pod " + r.Source + ", which wrote reports of several nodes: it does not count"})
		case at.After(now.Add(ClockSkew)):
			refused = append(refused, RefusedReport{r, "has a report from the future: a clock is wrong"})
		default:
			credible = append(credible, r)
		}
	}
	return credible, refused
}

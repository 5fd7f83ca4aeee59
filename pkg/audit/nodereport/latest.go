package nodereport

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

const (
	// MaxAge is how old a node's report may be.
	MaxAge = 24 * time.Hour
	// ClockSkew is by how much the clocks of nodes and API server may differ: what
	// is closer to each other is not put in order.
	ClockSkew = 5 * time.Minute
)

// NodeReport is the latest report of one node, and those before it.
type NodeReport struct {
	*finding.Report
	Node  string
	At    time.Time
	Older []*finding.Report
}

// Latest returns the latest report of each node, by its name in the cluster; isNode says
// which names are nodes'.
func Latest(reports []*finding.Report, isNode func(string) bool) []NodeReport {
	byNode := map[string]NodeReport{}
	for _, r := range reports {
		at, _ := time.Parse(time.RFC3339, r.Subject.Time) // checked when it was read
		node := nodeOf(r, isNode)
		have, ok := byNode[node]
		switch {
		case !ok:
			have = NodeReport{Report: r, Node: node, At: at}
		case at.After(have.At):
			have = NodeReport{Report: r, Node: node, At: at, Older: append(have.Older, have.Report)}
		default:
			have.Older = append(have.Older, r)
		}
		byNode[node] = have
	}
	return slices.SortedFunc(maps.Values(byNode), func(a, b NodeReport) int { return strings.Compare(a.Node, b.Node) })
}

// nodeOf names the node of a report as the cluster does: a node's hostname may be
// another, and then its ledger knows.
func nodeOf(r *finding.Report, isNode func(string) bool) string {
	if c, ok := Checkpoint(r); ok && !isNode(r.Subject.Name) {
		if name := strings.TrimPrefix(c.Origin, ledger.OriginPrefix); isNode(name) {
			return name
		}
	}
	return r.Subject.Name
}

// Checkpoint returns the checkpoint of a report's ledger.
func Checkpoint(r *finding.Report) (ledger.Anchor, bool) {
	if r.NodeRecords == nil || r.NodeRecords.Ledger == nil {
		return ledger.Anchor{}, false
	}
	found := ledger.FindCheckpoints([]byte(r.NodeRecords.Ledger.Checkpoint))
	if len(found) != 1 {
		return ledger.Anchor{}, false
	}
	return found[0], true
}

// Untimely says why the report tells nothing of now; empty where it does.
func (r *NodeReport) Untimely(now time.Time) string {
	switch age := now.Sub(r.At); {
	case age > MaxAge:
		return fmt.Sprintf("was audited %s ago", age.Round(time.Hour))
	case age < -ClockSkew:
		return "has a report from the future: a clock is wrong"
	}
	return ""
}

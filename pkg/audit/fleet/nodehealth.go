package fleet

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Values of [NodeStatus.NRI].
const (
	nriConnected    = "connected"
	nriDisconnected = "disconnected"
	nriStale        = "stale"
)

// nodeHasDrifted is the fix for drift: a section of the runbook.
const nodeHasDrifted = `"Node has drifted" in the runbook`

// runbookEntry returns the runbook's entry for an alert. For alerts of a newer plugin, it returns the runbook's first table.
func runbookEntry(alert string) string {
	entry, ok := map[string]string{
		"KataVFIOClaimStuck": "Claim is stuck", "KataVFIOKernelStuck": "Claim is stuck", "KataVFIODiskScarce": "Disk is nearly full",
		"KataVFIOJournalDamaged": "Journal is damaged", "KataVFIONodeNotVerified": "Node has drifted",
	}[alert]
	if !ok {
		return alert + " in the runbook"
	}
	return fmt.Sprintf("%q in the runbook", entry)
}

// health adds the node health that the plugin reported. A stale report is marked as stale, and is not used for the present state of
// the node.
func (st *Status) health(s *State, n *NodeStatus) {
	h := s.Cluster.Health(n.Node)
	if h == nil {
		return
	}
	n.Reported = h.Updated
	if n.Plugin == missingPod || s.isOutdated(h) {
		n.NRI = nriStale
		if n.Plugin == readyPod {
			st.add(rule.NodeReportStale, "node "+n.Node, "the plugin's last report of the node is of "+cmp.Or(h.Updated, "an unknown time")+": NRI, drift and the causes of alerts are unknown", `"Stale ResourceSlices" in the runbook`)
		}
		return
	}
	n.NRI, n.Alerts, n.Refuses = nriConnected, h.Alerts, h.Refuses
	if b := h.Bootstrap; b != nil {
		n.Outcome, n.Drift = b.Outcome, b.Drift
	}
	if !h.NRI {
		n.NRI = nriDisconnected
		st.add(rule.RuntimeNotConnected, "node "+n.Node, "the container runtime does not call the plugin (NRI): containers with devices are refused, or not checked", `"Container runtime does not call the plugin" in the runbook`)
	}
	if h.Refuses != "" {
		st.add(rule.NodeRefusesClaims, "node "+n.Node, "it refuses all new claims: "+h.Refuses, `"Node refuses all claims" in the runbook`)
	}
	if n.drifts() {
		st.add(rule.NodeDrifted, "node "+n.Node, driftWords(h.Bootstrap), nodeHasDrifted)
	}
	for _, a := range h.Alerts {
		st.add(rule.NodeAlert, "node "+n.Node, a.Text, runbookEntry(a.Name))
	}
}

// isOutdated reports whether a node health is too old. A health without a valid time is outdated, too, and so is one from the future, which
// would never become too old.
func (s *State) isOutdated(h *cluster.NodeHealth) bool {
	at, err := time.Parse(time.RFC3339, h.Updated)
	return err != nil || s.Now.Sub(at) > cluster.HealthOutdated*time.Second || at.Sub(s.Now) > ClockSkew
}

// drifts reports whether the node differs from its blueprint. Bootstrap's pod looks each minute, and its readiness counts if it is newer
// than the plugin's report.
func (n *NodeStatus) drifts() bool {
	at, err := time.Parse(time.RFC3339, n.Reported)
	ended := n.Bootstrap == readyPod && err == nil && n.fitSince.After(at)
	return n.Outcome != "" && n.Outcome != "fit" && !ended
}

// driftWords is "it differs from its blueprint (changes needed): kernel /proc/cmdline missing since ..., and 3 more".
func driftWords(b *cluster.BootstrapHealth) string {
	text := "it differs from its blueprint (" + b.Outcome + ")"
	words := make([]string, len(b.Drift))
	for i, d := range b.Drift {
		words[i] = strings.Join(strings.Fields(d.Part+" "+d.Path+" "+d.What), " ")
		if d.Since != "" {
			words[i] += " since " + d.Since
		}
	}
	if b.More > 0 {
		words = append(words, fmt.Sprintf("and %d more", b.More))
	}
	if len(words) == 0 {
		return text
	}
	return text + ": " + strings.Join(words, ", ")
}

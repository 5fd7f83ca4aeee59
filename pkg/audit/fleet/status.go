package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Labels of kata-vfio's own pods, and the values of the second label.
const (
	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"
	pluginPart     = "plugin"
	bootstrapPart  = "bootstrap"
)

// IsComponent reports whether a pod is one of kata-vfio itself.
func IsComponent(p *corev1.Pod) bool { return p.Labels[nameLabel] == "kata-vfio" }

// ComponentSelector selects kata-vfio's own objects.
const ComponentSelector = nameLabel + "=kata-vfio"

// Status is the state of kata-vfio in a cluster. Its JSON form is stable: names are added, never changed.
type Status struct {
	Nodes []NodeStatus `json:"nodes"`
	Parts []PartStatus `json:"parts"`
	// Problems are the things that need attention. Those of DaemonSets and Deployments come first.
	Problems []Problem `json:"problems"`
	// Rolling names the DaemonSets and Deployments whose rollout is in progress.
	Rolling []string `json:"rolling"`
	// Drains are the drains by DeviceTaintRules. A drain by the plugin on a node shows as taints of the node's devices.
	Drains []Drain `json:"drains"`
}

// Drain keeps new claims from the devices of a node, or from one device ("worker-1/gpu-0000-3b-00-0").
type Drain struct {
	Target string `json:"target"`
	Reason string `json:"reason,omitempty"`
	// Effect is NoSchedule, or NoExecute for a drain that deletes pods.
	Effect string `json:"effect"`
	// Since is when it began, RFC 3339.
	Since string `json:"since,omitempty"`
}

// NodeStatus is the state of one node.
type NodeStatus struct {
	Node string `json:"node"`
	// Plugin is "ready", "not ready", "missing", or "unknown" if pods could not be listed. Bootstrap is the same for bootstrap's pod;
	// empty if there is none.
	Plugin    string `json:"plugin"`
	Bootstrap string `json:"bootstrap,omitempty"`
	// NRI is "connected" or "disconnected", as the plugin reported it at the time Reported. It is "stale" if that is too long ago or
	// there is no plugin, and empty if the plugin does not report it, like an earlier version.
	NRI string `json:"nri,omitempty"`
	// Reported is when the plugin last wrote the fields from Outcome to Refuses, RFC 3339.
	Reported string `json:"reported,omitempty"`
	// Outcome is the outcome of bootstrap's last verify, and Drift has the first differences that it found from the blueprint.
	Outcome string          `json:"outcome,omitempty"`
	Drift   []cluster.Drift `json:"drift,omitempty"`
	// Alerts are the causes of alerts, and Refuses is why the node refuses all new claims.
	Alerts  []cluster.NodeAlert `json:"alerts,omitempty"`
	Refuses string              `json:"refuses,omitempty"`
	// PluginVersion and KataVersion are those that the node publishes.
	PluginVersion string `json:"pluginVersion,omitempty"`
	KataVersion   string `json:"kataVersion,omitempty"`
	Devices       int    `json:"devices"`
	Free          int    `json:"free"`
	Claimed       int    `json:"claimed"`
	// Others counts the devices that are neither claimed nor free, by their use: "quarantined", "tainted", "withheld".
	Others map[Use]int `json:"others"`

	// fitSince is when bootstrap's pod became ready.
	fitSince time.Time
}

// PartStatus is the state of a DaemonSet or Deployment of kata-vfio.
type PartStatus struct {
	Part    string `json:"part"`
	Desired int32  `json:"desired"`
	Ready   int32  `json:"ready"`
	Updated int32  `json:"updated"`

	// unseen says that the controller has not seen the present version of the object yet.
	unseen bool
}

// isRolling reports whether some pods are not of the present version yet.
func (p *PartStatus) isRolling() bool { return p.unseen || p.Updated < p.Desired }

// Problem is something that needs attention, and what to do about it.
type Problem struct {
	// Code is the code of the problem, which `kubectl kata-vfio explain` explains.
	Code rule.Code `json:"code"`
	// Subject is "node worker-1", "device worker-1/gpu-0000-3b-00-0", "claim team-a/train", "kata-vfio-plugin".
	Subject string `json:"subject"`
	Text    string `json:"text"`
	Fix     string `json:"fix"`
}

// Status returns the state of kata-vfio.
func (s *State) Status() *Status {
	st := &Status{Nodes: []NodeStatus{}, Parts: []PartStatus{}, Problems: []Problem{}, Rolling: []string{}, Drains: []Drain{}}
	st.parts(s)
	nodes := s.statusNodes()
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		st.node(s, nodes[name])
		st.Nodes = append(st.Nodes, *nodes[name])
	}
	for _, d := range s.Devices() {
		st.device(&d)
	}
	for _, c := range s.ClaimRows() {
		if c.State == Refused {
			name := c.Namespace + "/" + c.Name
			st.add(rule.ClaimRefused, "claim "+name, "refused: "+c.Reason, fmt.Sprintf("`kubectl kata-vfio explain -n %s claim/%s`", c.Namespace, c.Name))
		}
	}
	return st
}

// add adds a problem. Its code is one of pkg/rule/reportcodes.go, or that of the fault.
func (st *Status) add(code rule.Code, subject, text, fix string) {
	st.Problems = append(st.Problems, Problem{code, subject, text, fix})
}

// parts adds the DaemonSets and Deployments.
func (st *Status) parts(s *State) {
	for i := range s.DaemonSets {
		d := &s.DaemonSets[i]
		unseen := d.Status.ObservedGeneration < d.Generation
		p := PartStatus{d.Name, d.Status.DesiredNumberScheduled, d.Status.NumberReady, d.Status.UpdatedNumberScheduled, unseen}
		st.part(p)
		if p.Ready < p.Desired && !p.isRolling() { // the lines of the nodes do not show a pod that is on no node yet
			st.add(rule.DaemonSetNotReady, d.Name, fmt.Sprintf("%d of %s %s no pod that is ready", p.Desired-p.Ready, output.Count(int(p.Desired), "node"), output.Plural(int(p.Desired-p.Ready), "has", "have")), fmt.Sprintf("`kubectl -n %s describe daemonset %s`", d.Namespace, d.Name))
		}
	}
	for i := range s.Deployments {
		d := &s.Deployments[i]
		desired := int32(1) // the API's default
		if d.Spec.Replicas != nil {
			desired = *d.Spec.Replicas
		}
		st.part(PartStatus{d.Name, desired, d.Status.ReadyReplicas, d.Status.UpdatedReplicas, d.Status.ObservedGeneration < d.Generation})
		if desired > 0 && d.Status.ReadyReplicas == 0 {
			st.add(rule.DeploymentNotReady, d.Name, "no replica is ready: pods with shared GPUs or reserved domains wait, no sanitizing stage starts, and claims of new namespaces are refused",
				fmt.Sprintf("`kubectl -n %s describe deployment %s`", d.Namespace, d.Name))
		}
	}
}

// part adds a part. Before its controller has seen an update, the number of updated pods is that of the version before.
func (st *Status) part(p PartStatus) {
	if p.unseen {
		p.Updated = 0
	}
	st.Parts = append(st.Parts, p)
	if p.isRolling() {
		st.Rolling = append(st.Rolling, p.Part)
	}
}

// statusNodes returns the nodes that publish devices or have a pod of kata-vfio, by name.
func (s *State) statusNodes() map[string]*NodeStatus {
	nodes, plugin := map[string]*NodeStatus{}, missingPod
	if s.Missing[Components] != "" {
		plugin = unknownPod
	}
	at := func(name string) *NodeStatus {
		if nodes[name] == nil {
			nodes[name] = &NodeStatus{Node: name, Plugin: plugin, Others: map[Use]int{}}
		}
		return nodes[name]
	}
	for _, d := range s.Devices() {
		if d.Node != "" {
			at(d.Node).count(&d)
		}
	}
	for i := range s.Components {
		p := &s.Components[i]
		if p.Spec.NodeName == "" {
			continue
		}
		switch p.Labels[componentLabel] {
		case pluginPart:
			n := at(p.Spec.NodeName)
			n.Plugin = better(n.Plugin, readiness(p))
		case bootstrapPart:
			n := at(p.Spec.NodeName)
			state := readiness(p)
			n.Bootstrap = better(n.Bootstrap, state)
			if state == readyPod { // only the time of a ready pod says something about the node
				n.fitSince = readySince(p)
			}
		}
	}
	return nodes
}

// States of a node's pod. During an upgrade a node has two, and the better one counts.
const (
	readyPod    = "ready"
	notReadyPod = "not ready"
	missingPod  = "missing"
	unknownPod  = "unknown"
)

func better(a, b string) string {
	if a == readyPod || b == readyPod {
		return readyPod
	}
	return notReadyPod
}

func readiness(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return readyPod
		}
	}
	return notReadyPod
}

// readySince returns when a ready pod became ready.
func readySince(p *corev1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// count adds a device.
func (n *NodeStatus) count(d *Device) {
	n.PluginVersion, n.KataVersion = cmp.Or(n.PluginVersion, d.PluginVersion), cmp.Or(n.KataVersion, d.KataVersion)
	n.Devices++
	switch d.Use {
	case Free:
		n.Free++
	case Claimed:
		n.Claimed++
	default:
		n.Others[d.Use]++
	}
}

// node adds what is wrong on a node.
func (st *Status) node(s *State, n *NodeStatus) {
	if n.Plugin != readyPod && n.Plugin != unknownPod {
		st.add(rule.PluginNotReady, "node "+n.Node, "the plugin is "+n.Plugin+s.whyNotReady(n.Node, pluginPart)+": pods with devices can't start or end", "\"Plugin is down\" in the runbook")
	}
	st.health(s, n)
	if n.Bootstrap == notReadyPod && !n.drifts() {
		st.add(rule.BootstrapNotReady, "node "+n.Node, "bootstrap is not ready"+s.whyNotReady(n.Node, bootstrapPart)+": the node does not match its blueprint, or waits for a reboot", nodeHasDrifted)
	}
}

// whyNotReady returns the reason why a container of a node's pod waits, or how often it was restarted, in parentheses; empty if the
// pod's status has neither.
func (s *State) whyNotReady(node, part string) string {
	for i := range s.Components {
		p := &s.Components[i]
		if p.Spec.NodeName != node || p.Labels[componentLabel] != part {
			continue
		}
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && !isStarting(w.Reason) {
				return " (" + w.Reason + ")"
			}
			if c.RestartCount > 0 && !c.Ready {
				return " (" + output.Count(int(c.RestartCount), "restart") + ")"
			}
		}
	}
	return ""
}

// device adds the problem that takes a device out of use. A device that waits for its sanitizing stage, that is kept for the tenant of its
// exclusive domain, or whose GPU the other driver's claim has, is not a problem.
func (st *Status) device(d *Device) {
	subject := "device " + d.Node + "/" + d.Name
	explain := fmt.Sprintf("`kubectl kata-vfio explain %s/%s`", d.Node, d.Name)
	switch {
	case d.Use == Quarantined:
		st.add(rule.Quarantined, subject, "quarantined: it could not be proven clean after a tenant", explain)
	case d.isFaulty():
		st.add(rule.DeviceTainted, subject, "tainted: "+strings.Join(d.taintKeys(), ", "), explain)
	}
}

package cluster

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// nodeLabel is the label of nodes for kata-vfio, by which the RuntimeClasses and the plugin's DaemonSets select them.
const nodeLabel = "kata-vfio.dev/node"

// onePlugin finds nodes that none of the plugin's DaemonSets selects, such as a node in no pool, and nodes that several select. It
// ignores affinities, which only narrow a selection.
func onePlugin(s *State) []finding.Finding {
	var sets []*appsv1.DaemonSet
	for i := range s.DaemonSets {
		if s.DaemonSets[i].Spec.Template.Labels[componentLabel] == "plugin" {
			sets = append(sets, &s.DaemonSets[i])
		}
	}
	if len(sets) == 0 {
		return unknown("no DaemonSet of kata-vfio's plugin is in namespace " + s.Options.Namespace + " (--namespace)")
	}
	var found []finding.Finding
	for _, node := range slices.Sorted(maps.Keys(s.Labeled)) {
		var names []string
		for _, d := range sets {
			// An empty nodeSelector selects every node.
			if labels.SelectorFromSet(d.Spec.Template.Spec.NodeSelector).Matches(labels.Set(s.Labeled[node])) {
				names = append(names, d.Name)
			}
		}
		saw := saw("Node "+node+" metadata.labels", labels.Set(s.Labeled[node]).String())
		switch len(names) {
		case 0:
			found = append(found, onNode(node, "has the label "+nodeLabel+", and no DaemonSet of the plugin selects it", saw))
		case 1:
		default:
			found = append(found, onNode(node, "is selected by several DaemonSets of the plugin: "+strings.Join(names, ", "), saw))
		}
	}
	if len(s.Labeled) == 0 {
		return notApplicable("no node has the label " + nodeLabel)
	}
	return orPass(found, output.Count(len(s.Labeled), "node"))
}

package cluster

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// sliceChecks are about the driver's ResourceSlices.
func sliceChecks() []Check {
	return []Check{
		{ID: "K8S-011", Needs: []string{"resourceslices", "nodes"}, Judge: knownPools},
		{ID: "K8S-030", Needs: []string{"resourceslices"}, Judge: knownAttributes},
		{ID: "K8S-031", Needs: []string{"resourceslices", "resourceclaims"}, Judge: operationsKept},
	}
}

// published judges the driver's devices, and returns the first finding about each object.
func (s *State) published(judge func(d *cluster.Device) *finding.Finding) []finding.Finding {
	var found []finding.Finding
	ours, said := 0, map[string]bool{}
	for _, d := range s.Cluster.Devices() {
		if !d.IsOurs() {
			continue
		}
		ours++
		if f := judge(d); f != nil && !said[f.Object] {
			said[f.Object] = true
			found = append(found, *f)
		}
	}
	if ours == 0 {
		return notApplicable("the driver publishes nothing")
	}
	return orPass(found, output.Count(ours, "device"))
}

func knownPools(s *State) []finding.Finding {
	return s.published(func(d *cluster.Device) *finding.Finding {
		why, fix := s.strayed(d)
		if why == "" {
			return nil
		}
		f := fail("ResourceSlice "+d.Slice, "slice "+d.Slice+" "+why)
		f.Remediation = fix
		return &f
	})
}

// strayed returns the reason why a device's slice does not belong to an existing node and its pool, and the fix. The reason is
// empty if the slice does belong to them. The fix is empty if that of the rule applies.
func (s *State) strayed(d *cluster.Device) (why, fix string) {
	remove := "`kubectl delete resourceslice " + d.Slice + "`"
	switch {
	case d.Node == "":
		return "names no node, and the driver publishes devices of one node only", remove + "; find in the API server's audit log who created it"
	case !s.Nodes[d.Node]:
		return fmt.Sprintf("offers devices of node %q, and the cluster has no Node of that name, so that no pod can get them", d.Node),
			"if the node was removed: " + remove + ". If it should be in the cluster: find out from its kubelet's log why it is not; its plugin publishes again after it joins"
	case d.ID.Pool != d.Node && !strings.HasPrefix(d.ID.Pool, d.Node+"/"):
		return fmt.Sprintf("of node %q is in pool %q, which is not the node's", d.Node, d.ID.Pool), ""
	}
	return "", ""
}

// knownAttributes names the nodes whose devices have attributes that the driver does not publish, with the first device of each.
func knownAttributes(s *State) []finding.Finding {
	return s.published(func(d *cluster.Device) *finding.Finding {
		if len(d.Details.Misfits) == 0 {
			return nil
		}
		f := onNode(d.Node, fmt.Sprintf("publishes device %s with attributes that the driver does not have, or with values of another type: %s",
			d.ID.Name, strings.Join(d.Details.Misfits, ", ")), saw("ResourceSlice "+d.Slice, d.ID.Name))
		return &f
	})
}

// operationsKept names slices of the driver that tell the kubelet to skip calls, and claims that were allocated from such slices:
// the kubelet follows the claim (KEP-5945, in Kubernetes 1.37 behind the gate DRAOptionalNodeOperations).
func operationsKept(s *State) []finding.Finding {
	found := s.published(func(d *cluster.Device) *finding.Finding {
		if len(d.Skips) == 0 {
			return nil
		}
		f := fail("ResourceSlice "+d.Slice, fmt.Sprintf("slice %s of node %s has skipNodeOperations: %s", d.Slice, d.Node, list(d.Skips)))
		return &f
	})
	var claims []finding.Finding
	for _, c := range s.Cluster.Claims() {
		for _, a := range c.Ours() {
			if len(a.Skips) > 0 {
				claims = append(claims, of(c.Object.Namespace, fail("claim "+c.Name(),
					fmt.Sprintf("claim %s has device %s with skipNodeOperations: %s", c.Name(), a.ID.Name, list(a.Skips)))))
				break
			}
		}
	}
	if len(claims) == 0 {
		return found
	}
	// The slices may be correct again, but a claim keeps the operations with which it was allocated. A pass about the slices would hide that.
	return append(slices.DeleteFunc(found, func(f finding.Finding) bool { return f.State != finding.Fail }), claims...)
}

func list(operations []resourceapi.SkipNodeOperation) string {
	var names []string
	for _, o := range operations {
		names = append(names, string(o))
	}
	return strings.Join(names, ", ")
}

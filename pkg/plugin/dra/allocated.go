package dra

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// allocatedHere refuses a claim whose devices are allocated on another node. A tenant
// may bind a pod to this one by spec.nodeName, and the claim is reserved for that pod
// all the same.
func (g *Gate) allocatedHere(ctx context.Context, req *claim.Request) error {
	for i := range req.Devices {
		if d := &req.Devices[i]; !device.IsPoolOf(g.NodeName, d.Pool) {
			return g.elsewhere(req, fmt.Sprintf("device %s is allocated from pool %s, which is not of node %s (its pools are %s and %s/pf-...)",
				d.Name, d.Pool, g.NodeName, g.NodeName, g.NodeName))
		}
	}
	if req.NodeSelector == nil {
		return nil
	}
	selector, err := nodeaffinity.NewNodeSelector(req.NodeSelector)
	if err != nil {
		return g.elsewhere(req, fmt.Sprintf("status.allocation.nodeSelector can't be read (%v)", err))
	}
	node, err := g.node(ctx, req)
	if err != nil {
		return err
	}
	if !selector.Match(node) {
		return g.elsewhere(req, fmt.Sprintf("its allocation is for other nodes (status.allocation.nodeSelector does not match %s)", g.NodeName))
	}
	return nil
}

func (g *Gate) elsewhere(req *claim.Request, text string) error {
	return g.refuse(req, AllocatedElsewhere, text,
		"run the pod on the node of the allocation: delete the pod and create it again without spec.nodeName, so that the scheduler places it")
}

// node returns this node for a request's selector, which mostly asks for the name alone.
func (g *Gate) node(ctx context.Context, req *claim.Request) (*corev1.Node, error) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: g.NodeName}}
	if !asksForLabels(req.NodeSelector) {
		return node, nil
	}
	err := insist(ctx, func(ctx context.Context) (err error) {
		node, err = g.Client.CoreV1().Nodes().Get(ctx, g.NodeName, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim %s/%s: look at node %s: %w", req.Namespace, req.Name, g.NodeName, err)
	}
	return node, nil
}

func asksForLabels(s *corev1.NodeSelector) bool {
	for i := range s.NodeSelectorTerms {
		if len(s.NodeSelectorTerms[i].MatchExpressions) > 0 {
			return true
		}
	}
	return false
}

package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/stage"
)

// listing has the objects of stages that were listed from the API server. The zero value has none.
type listing struct {
	pods   []*corev1.Pod
	claims []*resourceapi.ResourceClaim
	// slices are those of our driver, by node.
	slices map[string][]*resourceapi.ResourceSlice
}

// list lists the pods and claims of stages, and then the slices of some nodes. Without a resource version the answers are
// consistent. [stage.View] requires this order. list gives up after listLimit.
func (s *stages) list(ctx context.Context, nodes []string) (*listing, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listLimit, errors.New("no answer in time"))
	defer cancel()
	client, namespace := s.controller.config.Client, s.controller.config.Sanitizers.Namespace
	l := &listing{slices: map[string][]*resourceapi.ResourceSlice{}}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: stageLabels()})
	if err != nil {
		return nil, fmt.Errorf("list the pods of stages: %w", err)
	}
	l.pods = pointers(pods.Items)
	claims, err := client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{LabelSelector: stageLabels()})
	if err != nil {
		return nil, fmt.Errorf("list the claims of stages: %w", err)
	}
	l.claims = pointers(claims.Items)
	for _, node := range nodes {
		list, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: nodeSlices(node)})
		if err != nil {
			return nil, fmt.Errorf("list the ResourceSlices of node %s: %w", node, err)
		}
		l.slices[node] = pointers(list.Items)
	}
	return l, nil
}

// nodeSlices selects our slices of a node.
func nodeSlices(node string) string {
	return fields.Set{resourceapi.ResourceSliceSelectorDriver: v1alpha1.DriverName, resourceapi.ResourceSliceSelectorNodeName: node}.String()
}

func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}

// view returns what a decision about stages needs: the listed objects, and the rest from the caches.
func (s *stages) view(l *listing) *stage.View {
	v := &stage.View{Sanitizers: s.controller.config.Sanitizers, Cluster: &cluster.Cluster{}, Fresh: map[string]bool{}}
	pods, own := l.pods, l.claims
	if l.slices == nil {
		pods = stored[*corev1.Pod](s.controller.informers.pods.GetIndexer())
		own = indexed[*resourceapi.ResourceClaim](s.controller.informers.claims.GetIndexer(), byStage, string(stage.OwnScope))
	}
	addAll(v.Cluster, pods)
	addAll(v.Cluster, own)
	for node := range s.nodes(l, pods, own) {
		s.addNode(v, l, node)
	}
	return v
}

// nodes returns the nodes with a device that waits or has a stage, and those that were listed.
func (s *stages) nodes(l *listing, pods []*corev1.Pod, claims []*resourceapi.ResourceClaim) map[string]bool {
	nodes := map[string]bool{}
	add := func(o metav1.Object) {
		if id, ok := stage.AnnotatedDevice(o); ok {
			nodes[id.Node()] = true
		}
	}
	for _, p := range pods {
		add(p)
	}
	for _, c := range claims {
		add(c)
	}
	for _, slice := range indexed[*resourceapi.ResourceSlice](s.controller.informers.slices[0].GetIndexer(), byStage, string(stage.WaitingScope)) {
		nodes[*slice.Spec.NodeName] = true
	}
	for node := range l.slices {
		nodes[node] = true
	}
	return nodes
}

// addNode adds a node's slices, and the claims that have devices of the node and are not of stages.
func (s *stages) addNode(v *stage.View, l *listing, node string) {
	slices, listed := l.slices[node]
	if listed {
		v.Fresh[node] = true
	} else {
		slices = indexed[*resourceapi.ResourceSlice](s.controller.informers.slices[0].GetIndexer(), byStage, string(stage.NodeScope(node)))
	}
	addAll(v.Cluster, slices)
	for _, c := range indexed[*resourceapi.ResourceClaim](s.controller.informers.claims.GetIndexer(), byStage, string(stage.NodeScope(node))) {
		if c.Namespace != v.Sanitizers.Namespace && v.Cluster.Claim(c.Namespace, c.Name) == nil {
			v.Cluster.Add(c)
		}
	}
}

// stageCollector collects what the caches have of stages.
type stageCollector struct {
	stages           *stages
	waiting, running *prometheus.Desc
}

func newStageCollector(s *stages) *stageCollector {
	for _, p := range s.controller.config.Sanitizers.Profiles {
		s.controller.config.Metrics.stageTime.WithLabelValues(p.Name) // a rate needs a sample of 0 before the first stage
	}
	return &stageCollector{
		stages:  s,
		waiting: prometheus.NewDesc("kata_vfio_sanitize_waiting", "Devices that no claim has and that wait for a sanitizing stage, by profile.", []string{"profile"}, nil),
		running: prometheus.NewDesc("kata_vfio_sanitize_running", "Sanitizing stages whose pods have not ended, by profile.", []string{"profile"}, nil),
	}
}

// Describe implements [prometheus.Collector].
func (c *stageCollector) Describe(into chan<- *prometheus.Desc) {
	into <- c.waiting
	into <- c.running
}

// Collect implements [prometheus.Collector].
func (c *stageCollector) Collect(into chan<- prometheus.Metric) {
	for profile, n := range c.stages.view(&listing{}).Counts() {
		into <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(n.Waiting), profile)
		into <- prometheus.MustNewConstMetric(c.running, prometheus.GaugeValue, float64(n.Running), profile)
	}
}

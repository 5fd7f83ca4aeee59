// Package fleet derives from the API server's objects which claim has which device, the states of claims and their reasons,
// and the cluster's evidence for a conformance profile. The caller lists the objects and prints the result. [ReadReports]
// reads the nodes' own results, as `kata-vfio-audit node` writes them: files, directories and logs. All texts are unchanged,
// and may come from anyone.
package fleet

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// Kind is a kind of object that is listed, by its name in the API.
type Kind string

// Kinds of objects from which rows are made.
const (
	Slices  Kind = "resourceslices"
	Claims  Kind = "resourceclaims"
	Classes Kind = "deviceclasses"
	Pods    Kind = "pods"
	Events  Kind = "events"
	// Components are the pods of kata-vfio itself.
	Components  Kind = "pods of kata-vfio"
	Deployments Kind = "deployments"
	// TaintRules exist in Kubernetes 1.37 and newer.
	TaintRules Kind = "devicetaintrules"
	// Namespaces and ClassViews are read by name, and have no rows.
	Namespaces Kind = "namespaces"
	ClassViews Kind = "the view of DeviceClasses"
)

// State has the listed objects, including those of other drivers. It must be complete before the first question, because
// answers are cached.
type State struct {
	// Cluster has the slices, claims, classes and pods.
	Cluster *cluster.Cluster
	Events  []corev1.Event
	// Components, DaemonSets and Deployments are kata-vfio's own, for [State.Status].
	Components  []corev1.Pod
	DaemonSets  []appsv1.DaemonSet
	Deployments []appsv1.Deployment
	// TaintRules are the DeviceTaintRules, whose taints the scheduler adds to the devices' own; nil if they were not listed.
	TaintRules []resourceapi.DeviceTaintRule
	// Missing has the reason for each kind that could not be listed. Answers that depend on such a kind are unknown, never good.
	Missing map[Kind]string
	// Namespace is the only namespace whose claims were listed; empty if the claims of all namespaces were.
	Namespace string
	Now       time.Time
	// Reports are the nodes' own audits, for explanations. A node may have several, or none.
	Reports []*finding.Report

	devices []Device
	// rows are the indexes of devices.
	rows map[*cluster.Device]int
}

// Unfinished returns the names of the pools whose slices are being written, so that devices may be missing.
func (s *State) Unfinished() []string {
	var names []string
	for _, p := range s.Cluster.Pools() {
		if p.Unfinished() {
			names = append(names, p.Name)
		}
	}
	return names
}

// Nodes returns the nodes that have published something, sorted.
func (s *State) Nodes() []string { return s.Cluster.Nodes() }

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

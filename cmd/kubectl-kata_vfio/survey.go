package main

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
)

// chartLabels select the chart's plugin among DaemonSets.
const chartLabels = "app.kubernetes.io/name=kata-vfio"

// listForConformance lists the objects for the evidence, in all namespaces and within the
// limit. It notes a kind that can't be listed as missing. The error is a [forbiddenError]
// if the user may not even list ResourceSlices.
func listForConformance(ctx context.Context, client lister, now func() time.Time) (*fleet.ConformanceState, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	server, err := client.ServerVersion(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the API server for its version: %w", err)
	}
	w := want{needs: []fleet.Kind{fleet.Slices}, also: []fleet.Kind{fleet.Claims, fleet.Pods, fleet.Events}, eventKind: "Pod", now: now}
	listed, err := w.read(ctx, client)
	if err != nil {
		return nil, err
	}
	s := &fleet.ConformanceState{Kubernetes: server.GitVersion, Fleet: listed, Missing: map[string]string{}}
	l := &survey{ctx: ctx, client: client, missing: s.Missing}
	l.apis(s)
	each(l, fleet.Nodes, &corev1.NodeList{}, "", appendTo(&s.Nodes))
	each(l, fleet.DaemonSets, &appsv1.DaemonSetList{}, chartLabels, appendTo(&s.DaemonSets))
	each(l, fleet.Autoscalers, &autoscalingv2.HorizontalPodAutoscalerList{}, "", appendTo(&s.Autoscalers))
	model := func(o metav1.Object) { listed.Cluster.Add(o) }
	each(l, string(fleet.Classes), &resourceapi.DeviceClassList{}, "", model)
	each(l, fleet.Policies, &admissionv1.ValidatingAdmissionPolicyList{}, "", model)
	each(l, fleet.Bindings, &admissionv1.ValidatingAdmissionPolicyBindingList{}, "", model)
	each(l, fleet.Runtimes, &nodev1.RuntimeClassList{}, "", model)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list the cluster's objects: %w", context.Cause(ctx))
	}
	return s, nil
}

// survey lists kinds, and notes those that can't be listed.
type survey struct {
	ctx     context.Context
	client  lister
	missing map[string]string
}

// note notes the reason why a kind could not be listed.
func (l *survey) note(kind string, err error) {
	switch {
	case apierrors.IsForbidden(err):
		l.missing[kind] = "it is not permitted"
	case err != nil:
		l.missing[kind] = err.Error()
	}
}

func (l *survey) apis(s *fleet.ConformanceState) {
	served, err := l.client.Resources(l.ctx)
	l.note(fleet.APIs, err)
	for _, r := range served {
		s.APIs = append(s.APIs, fleet.API{Group: r.Group, Resource: r.Resource})
	}
}

// each calls keep for the objects of a list's kind, without their managed fields.
func each[T metav1.Object](l *survey, kind string, list runtime.Object, labels string, keep func(T)) {
	k := listing{client: l.client, page: list, labels: labels}
	p := pager.New(k.list)
	p.PageSize = pageSize
	l.note(kind, p.EachListItem(l.ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if item, ok := o.(T); ok {
			item.SetManagedFields(nil)
			keep(item)
		}
		return nil
	}))
}

// appendTo returns a keep that appends.
func appendTo[T any](to *[]T) func(*T) { return func(item *T) { *to = append(*to, *item) } }

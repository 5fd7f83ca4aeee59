package dra

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// HandedClaims go from sandbox to sandbox; [prepare.Preparer] has the methods.
type HandedClaims interface {
	HandOver(ctx context.Context, uid string, to journal.Sandbox) error
	Renew(ctx context.Context, uid, sandboxID string) ([]isolation.Proof, error)
}

// Sandboxes hands claims over, and tells the cluster of devices that were lost
// to a quarantine between two sandboxes of a pod: the kubelet has no part in
// that and says nothing of it.
type Sandboxes struct {
	Claims   HandedClaims
	Reporter *Reporter
	// Changed is told that what is published has changed; it must not block.
	Changed func()
}

// HandOver is that of [prepare.Preparer].
func (s *Sandboxes) HandOver(ctx context.Context, uid string, to journal.Sandbox) error {
	err := s.Claims.HandOver(ctx, uid, to)
	s.observe(err)
	return err
}

// Renew is that of [prepare.Preparer].
func (s *Sandboxes) Renew(ctx context.Context, uid, sandboxID string) ([]isolation.Proof, error) {
	proofs, err := s.Claims.Renew(ctx, uid, sandboxID)
	s.observe(err)
	return proofs, err
}

// observe reports a quarantine that is new: one that was found has been told.
func (s *Sandboxes) observe(err error) {
	q, ok := errors.AsType[*prepare.QuarantinedError](err)
	if !ok || q.Err == nil {
		return
	}
	s.Reporter.Lost(q)
	s.Changed()
}

// Lost reports a prepared claim that has lost its devices to a quarantine: on
// its status, and by events on it and its pods.
func (r *Reporter) Lost(q *prepare.QuarantinedError) {
	c := q.Record.Plan.Claim
	rep := &report{reason: reasonOf(q), problem: q.Error(), claim: &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: types.UID(c.UID)},
	}}
	now := metav1.Now()
	for _, d := range q.Record.Plan.Devices {
		rep.devices = append(rep.devices, resourceac.AllocatedDeviceStatus().
			WithDriver(v1alpha1.DriverName).WithPool(d.Pool).WithDevice(d.Name).WithConditions(
			condition(ConditionReady, metav1.ConditionFalse, rep.reason, rep.problem, now),
			condition(ConditionReset, metav1.ConditionFalse, rep.reason, rep.problem, now),
		))
	}
	r.enqueue(rep)
	r.report(claimRef(c.Namespace, c.Name, types.UID(c.UID)), c.Namespace, c.Pods, corev1.EventTypeWarning, rep.reason, "HandOver", rep.problem)
}

package dra

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// NotActive reports a prepared claim whose partition is no longer active, in the claim's status and by Events on the claim and its pods.
// Once the partition is active again, [StatusSync] reports that.
func (r *Reporter) NotActive(ctx context.Context, rec *journal.Record, attributes Attributes, cause error) {
	c := rec.Plan.Claim
	named := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: types.UID(c.UID)}}
	reason, why := rule.Classify(cause), strings.ReplaceAll(cause.Error(), "\n", "; ")
	rep := preparedReport(named, rec, attributes, r.config.Uplink.once().links(ctx, rec), r.anchor())
	for _, d := range rep.devices {
		for i := range d.Conditions {
			if *d.Conditions[i].Type == ConditionReady {
				d.Conditions[i] = *condition(ConditionReady, metav1.ConditionFalse, reason, why, metav1.Now())
			}
		}
	}
	r.enqueue(rep)
	r.report(claimRef(c.Namespace, c.Name, types.UID(c.UID)), c.Namespace, c.Pods, corev1.EventTypeWarning, reason, "HandOver", why)
}

package main

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// clean deletes the pods, waits until they are gone, and deletes the claim.
func (r *testRun) clean(ctx context.Context) error {
	o := &r.objects
	var errs []error
	for _, pod := range r.pods {
		errs = append(errs, r.remove(ctx, pod, &corev1.Pod{}, metav1.DeleteOptions{GracePeriodSeconds: new(int64(5))}))
	}
	for _, pod := range r.pods {
		errs = append(errs, r.awaitGone(ctx, pod, &corev1.Pod{}))
	}
	// The claim comes last: its finalizer (resource.kubernetes.io/delete-protection) keeps it while pods have it reserved.
	errs = append(errs, r.remove(ctx, o.base, &resourceapi.ResourceClaim{}, metav1.DeleteOptions{}), r.awaitGone(ctx, o.base, &resourceapi.ResourceClaim{}))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete what the test made: %w; delete it by `kubectl -n %s delete pods,resourceclaims -l %s`", err, o.namespace, testLabel)
	}
	return nil
}

func (r *testRun) remove(ctx context.Context, name string, object runtime.Object, o metav1.DeleteOptions) error {
	if err := r.client.Delete(ctx, r.objects.namespace, name, object, o); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (r *testRun) awaitGone(ctx context.Context, name string, object runtime.Object) error {
	for {
		if err := r.client.Get(ctx, r.objects.namespace, name, object); apierrors.IsNotFound(err) {
			return nil
		}
		r.say("waits until %s is gone", name)
		if !r.rest(ctx) {
			return fmt.Errorf("%s is still there after %s", name, cleanLimit)
		}
	}
}

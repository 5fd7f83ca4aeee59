package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiLimit is for a few requests to the API server.
const apiLimit = 10 * time.Second

// forget deletes the Node object and the pods that are bound to it: the next kubelet of that name would run them.
func (n *Node) forget(ctx context.Context) error {
	pods, err := n.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.config.Name})
	if err != nil {
		return fmt.Errorf("forget an earlier node: %w", err)
	}
	var errs []error
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	for _, pod := range pods.Items {
		errs = append(errs, n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, now))
	}
	errs = append(errs, n.client.CoreV1().Nodes().Delete(ctx, n.config.Name, metav1.DeleteOptions{}))
	for _, err := range errs {
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("forget an earlier node: %w", err)
		}
	}
	return nil
}

// isReady asks the API server.
func (n *Node) isReady(ctx context.Context) error {
	object, err := n.client.CoreV1().Nodes().Get(ctx, n.config.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("%s: %s", c.Reason, c.Message)
		}
	}
	return errors.New("it has no condition Ready")
}

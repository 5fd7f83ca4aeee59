package dra_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/dra"
)

// trainPod is the pod that claims are for, as a tenant should write it.
func trainPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "train", UID: "pod-uid"},
		Spec:       corev1.PodSpec{NodeName: "worker-1", RuntimeClassName: new("kata-gpu")},
	}
}

func runtimeClass(name, handler string) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
}

// cluster is an API server with the pod, RuntimeClasses and the objects.
func cluster(objects ...runtime.Object) *fake.Clientset {
	return fake.NewClientset(append(objects, trainPod(), runtimeClass("kata-gpu", "kata-gpu"), runtimeClass("plain", "runc"))...)
}

func gate(client *fake.Clientset) *dra.Gate {
	return &dra.Gate{Client: client, NodeName: "worker-1", Handlers: []string{"kata-gpu"}}
}

func request() *claim.Request {
	return &claim.Request{UID: "uid-1", Namespace: "team-a", Name: "gpu", Pods: []claim.Pod{{UID: "pod-uid", Name: "train"}}}
}

func TestGateAdmitsAPodInAVM(t *testing.T) {
	if err := gate(cluster()).Admit(t.Context(), request()); err != nil {
		t.Error(err)
	}
}

// TestGateRefuses: a pod that would not be in a VM, or not the claim's, gets
// nothing, whatever admission policies the cluster has.
func TestGateRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		pod     func(*corev1.Pod)
		request func(*claim.Request)
		code    dra.GateCode
		words   []string
	}{
		"without a RuntimeClass": {
			pod:  func(p *corev1.Pod) { p.Spec.RuntimeClassName = nil },
			code: dra.NoRuntimeClass, words: []string{"pod train has no runtimeClassName", "set runtimeClassName: kata-gpu"},
		},
		"with an empty RuntimeClass": {pod: func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("") }, code: dra.NoRuntimeClass},
		"under another handler": {
			pod:  func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("plain") },
			code: dra.HandlerNotAllowed, words: []string{`handler "runc"`, "allowedHandlers"},
		},
		"replaced by one of its name": {pod: func(p *corev1.Pod) { p.UID = "another" }, code: dra.PodReplaced},
		"gone":                        {pod: func(p *corev1.Pod) { p.Name = "another" }, code: dra.PodReplaced},
		"on another node":             {pod: func(p *corev1.Pod) { p.Spec.NodeName = "worker-2" }, code: dra.OtherNode},
		"not bound yet":               {pod: func(p *corev1.Pod) { p.Spec.NodeName = "" }, code: dra.OtherNode},
		"one of two": {
			request: func(r *claim.Request) { r.Pods = append(r.Pods, claim.Pod{UID: "pod-2", Name: "eval"}) },
			code:    dra.SharedClaim, words: []string{"train and eval", "ResourceClaimTemplate"},
		},
		"nobody": {request: func(r *claim.Request) { r.Pods = nil }, code: dra.NoPod},
	} {
		t.Run(name, func(t *testing.T) {
			pod, req := trainPod(), request()
			if tt.pod != nil {
				tt.pod(pod)
			}
			if tt.request != nil {
				tt.request(req)
			}
			client := fake.NewClientset(pod, runtimeClass("kata-gpu", "kata-gpu"), runtimeClass("plain", "runc"))
			err := gate(client).Admit(t.Context(), req)
			refused, ok := errors.AsType[*dra.GateError](err)
			if !ok || refused.Code != tt.code {
				t.Fatalf("Admit = %v, want code %s", err, tt.code)
			}
			for _, word := range append(tt.words, "claim team-a/gpu") {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
		})
	}
}

// TestGateWithoutAnAnswer: a RuntimeClass that can't be looked at admits nobody.
func TestGateWithoutAnAnswer(t *testing.T) {
	for name, answer := range map[string]error{
		"forbidden":   apierrors.NewForbidden(nodev1.Resource("runtimeclasses"), "kata-gpu", errors.New("no")),
		"no such one": apierrors.NewNotFound(nodev1.Resource("runtimeclasses"), "kata-gpu"),
	} {
		t.Run(name, func(t *testing.T) {
			client := cluster()
			client.PrependReactor("get", "runtimeclasses", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, answer })
			err := gate(client).Admit(t.Context(), request())
			if err == nil || !strings.Contains(err.Error(), "RuntimeClass kata-gpu") {
				t.Errorf("Admit = %v, want an error that names the RuntimeClass", err)
			}
		})
	}
}

// TestGateInsists: the kubelet's next try comes after a minute, so a moment
// without the API server is waited out within this one, and no longer.
func TestGateInsists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, asked := cluster(), 0
		client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			asked++
			return asked <= 3, nil, errors.New("connection refused")
		})
		if err := gate(client).Admit(t.Context(), request()); err != nil || asked != 4 {
			t.Errorf("Admit = %v after %d tries, want success at the fourth", err, asked)
		}
		asked = -1000
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		begin := time.Now()
		err := gate(client).Admit(ctx, request())
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("Admit = %v, want the deadline and what was in the way", err)
		}
		if took := time.Since(begin); took != 40*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

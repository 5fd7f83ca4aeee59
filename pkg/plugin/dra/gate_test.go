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
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

func hostPath(path string) corev1.Volume {
	return corev1.Volume{Name: "path", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}
}

func request() *claim.Request {
	return &claim.Request{UID: "uid-1", Namespace: "team-a", Name: "gpu", Pods: []claim.Pod{{UID: "pod-uid", Name: "train"}}}
}

func TestGateAdmitsAPodInAVM(t *testing.T) {
	pod := plugintest.TrainPod()
	pod.Annotations = map[string]string{"example.com/io.katacontainers.": "x"}
	pod.Spec.Volumes = []corev1.Volume{hostPath("/var/data"), hostPath("/dev/shm"), {Name: "none"}}
	client := plugintest.Cluster()
	if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, pod.Namespace); err != nil {
		t.Fatal(err)
	}
	if err := plugintest.Gate(client).Admit(t.Context(), request()); err != nil {
		t.Error(err)
	}
}

// TestGateRefuses: a pod that would not be in a VM, or not the claim's, gets
// nothing, whatever admission policies the cluster has.
func TestGateRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		pod     func(*corev1.Pod)
		request func(*claim.Request)
		code    rule.Code
		words   []string
	}{
		"without a RuntimeClass": {
			pod:  func(p *corev1.Pod) { p.Spec.RuntimeClassName = nil },
			code: rule.NoRuntimeClass, words: []string{"pod train has no runtimeClassName", "set runtimeClassName: kata-gpu"},
		},
		"with an empty RuntimeClass": {pod: func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("") }, code: rule.NoRuntimeClass},
		"under another handler": {
			pod:  func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("plain") },
			code: rule.HandlerNotAllowed, words: []string{`handler "runc"`, "allowedHandlers"},
		},
		"with an annotation for its VM": {
			pod: func(p *corev1.Pod) {
				p.Annotations = map[string]string{"io.katacontainers.config.runtime.vfio_mode": "vfio"}
			},
			code:  rule.AnnotationNotAllowed,
			words: []string{"pod train: the annotation io.katacontainers.config.runtime.vfio_mode could change its VM", "remove it from the pod"},
		},
		"with an annotation for devices": {
			pod:  func(p *corev1.Pod) { p.Annotations = map[string]string{"cdi.k8s.io/mine": "nvidia.com/pgpu=0"} },
			code: rule.AnnotationNotAllowed, words: []string{"the annotation cdi.k8s.io/mine"},
		},
		"with a volume that shows VFIO nodes": {
			pod:  func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "other"}, hostPath("/dev//vfio/")} },
			code: rule.MountNotAllowed, words: []string{"pod train: its mount of /dev/vfio shows", "remove the mount"},
		},
		"replaced by one of its name": {pod: func(p *corev1.Pod) { p.UID = "another" }, code: rule.PodReplaced},
		"gone":                        {pod: func(p *corev1.Pod) { p.Name = "another" }, code: rule.PodReplaced},
		"on another node":             {pod: func(p *corev1.Pod) { p.Spec.NodeName = "worker-2" }, code: rule.OtherNode},
		"not bound yet":               {pod: func(p *corev1.Pod) { p.Spec.NodeName = "" }, code: rule.OtherNode},
		"one of two": {
			request: func(r *claim.Request) { r.Pods = append(r.Pods, claim.Pod{UID: "pod-2", Name: "eval"}) },
			code:    rule.SharedClaim, words: []string{"train and eval", "ResourceClaimTemplate"},
		},
		"nobody": {request: func(r *claim.Request) { r.Pods = nil }, code: rule.NoPod},
	} {
		t.Run(name, func(t *testing.T) {
			pod, req := plugintest.TrainPod(), request()
			if tt.pod != nil {
				tt.pod(pod)
			}
			if tt.request != nil {
				tt.request(req)
			}
			client := fake.NewClientset(pod, plugintest.RuntimeClass("kata-gpu", "kata-gpu"), plugintest.RuntimeClass("plain", "runc"))
			err := plugintest.Gate(client).Admit(t.Context(), req)
			refused, ok := errors.AsType[*rule.RefusedError](err)
			if !ok || refused.Code() != tt.code {
				t.Fatalf("Admit = %v, want code %s", err, tt.code)
			}
			ruletest.VerdictsAt(t, rule.AtPrepare, refused.Verdicts)
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
			client := plugintest.Cluster()
			client.PrependReactor("get", "runtimeclasses", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, answer })
			err := plugintest.Gate(client).Admit(t.Context(), request())
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
		client, asked := plugintest.Cluster(), 0
		client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			asked++
			return asked <= 3, nil, errors.New("connection refused")
		})
		if err := plugintest.Gate(client).Admit(t.Context(), request()); err != nil || asked != 4 {
			t.Errorf("Admit = %v after %d tries, want success at the fourth", err, asked)
		}
		asked = -1000
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		begin := time.Now()
		err := plugintest.Gate(client).Admit(ctx, request())
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("Admit = %v, want the deadline and what was in the way", err)
		}
		if took := time.Since(begin); took != 40*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestGateComparesTheAllocation: a tenant may bind a second pod of a claim to another node
// by spec.nodeName. What is allocated there is not here at the same address.
func TestGateComparesTheAllocation(t *testing.T) {
	named := func(name string) *corev1.NodeSelector {
		return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
		}}}
	}
	labeled := func(value string) *corev1.NodeSelector {
		return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{value}}},
		}}}
	}
	either := func(a, b *corev1.NodeSelector) *corev1.NodeSelector {
		return &corev1.NodeSelector{NodeSelectorTerms: append(a.NodeSelectorTerms, b.NodeSelectorTerms...)}
	}
	for name, tt := range map[string]struct {
		pool     string
		selector *corev1.NodeSelector
		words    string // of the refusal; empty if there is none
	}{
		"the node's pool":             {pool: "worker-1/kata-vfio.dev", selector: named("worker-1")},
		"the pool of one of its PFs":  {pool: "worker-1/kata-vfio.dev/pf-0000-21-00-0", selector: named("worker-1")},
		"no node selector":            {pool: "worker-1/kata-vfio.dev"},
		"a pool's former name":        {pool: "worker-1", selector: named("worker-1")},
		"a former name of a PF's":     {pool: "worker-1/pf-0000-21-00-0"},
		"labels of the node":          {pool: "worker-1/kata-vfio.dev", selector: labeled("a")},
		"another node's pool":         {pool: "worker-2", selector: named("worker-2"), words: "allocated from pool worker-2, which is not of node worker-1"},
		"another node's PF":           {pool: "worker-2/pf-0000-21-00-0", words: "allocated from pool worker-2/pf-0000-21-00-0"},
		"a node with a like name":     {pool: "worker-10", words: "allocated from pool worker-10"},
		"a selector of another node":  {pool: "worker-1/kata-vfio.dev", selector: named("worker-2"), words: "does not match worker-1"},
		"labels of another node":      {pool: "worker-1/kata-vfio.dev", selector: labeled("b"), words: "does not match worker-1"},
		"a selector of no node":       {pool: "worker-1/kata-vfio.dev", selector: &corev1.NodeSelector{}, words: "does not match worker-1"},
		"a selector nobody can read":  {pool: "worker-1/kata-vfio.dev", selector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: "Like"}}}}}, words: "can't be read"},
		"a selector of several nodes": {pool: "worker-1/kata-vfio.dev", selector: either(named("worker-2"), named("worker-1"))},
	} {
		t.Run(name, func(t *testing.T) {
			client := plugintest.Cluster(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", Labels: map[string]string{"zone": "a"}}})
			req := request()
			req.Devices = []claim.Device{{Request: "gpu", Class: "gpu.kata-vfio.dev", Name: "gpu-0000-3b-00-0", Pool: tt.pool}}
			req.NodeSelector = tt.selector
			err := plugintest.Gate(client).Admit(t.Context(), req)
			refused, ok := errors.AsType[*rule.RefusedError](err)
			if ok != (tt.words != "") || !ok && err != nil {
				t.Fatalf("Admit = %v, want a refusal: %t", err, tt.words != "")
			}
			if ok && (refused.Code() != rule.AllocatedElsewhere || !strings.Contains(err.Error(), tt.words)) {
				t.Errorf("Admit = %v (%s), want %q", err, refused.Code(), tt.words)
			}
		})
	}
}

// TestGateWithoutTheNode: labels that can't be looked at admit nobody.
func TestGateWithoutTheNode(t *testing.T) {
	req := request()
	req.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpExists}},
	}}}
	if err := plugintest.Gate(plugintest.Cluster()).Admit(t.Context(), req); err == nil || !strings.Contains(err.Error(), "look at node worker-1") {
		t.Errorf("Admit = %v, want an error that names the node", err)
	}
}
